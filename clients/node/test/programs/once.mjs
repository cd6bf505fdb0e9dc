// Begins a once and never ends it. Arguments: URL, key.
import { connect } from "../../tenure.mjs";

const [url, key] = process.argv.slice(2);
await connect(url, { ttl: "1s" }).once(key).run(() => {
    console.log("begun");
    return new Promise((resolve) => setTimeout(resolve, 600_000));
});
