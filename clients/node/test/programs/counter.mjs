// Adds 1 to a number in a file, many times, each time under a lock. Arguments: URL, file, times.
import { appendFileSync, readFileSync, writeFileSync } from "node:fs";
import { connect } from "../../tenure.mjs";

const [url, file, times] = process.argv.slice(2);
const tenure = connect(url, { ttl: "5s", patience: "30s" });
for (let i = 0; i < Number(times); i += 1) {
    await tenure.mutex("counter").run(async ({ fence, check }) => {
        const count = Number(readFileSync(file, "utf8"));
        await new Promise((resolve) => setTimeout(resolve, 2));
        check();
        writeFileSync(file, String(count + 1));
        appendFileSync(`${file}.fences`, `${fence}\n`);
    });
}
console.log("done");
