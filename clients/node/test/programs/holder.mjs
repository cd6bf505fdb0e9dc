// Holds a lock, and says what happens. Arguments: URL, name, what to do, options of connect as JSON.
import { setTimeout as sleep } from "node:timers/promises";
import { connect } from "../../tenure.mjs";

const [url, name, what, options = "{}"] = process.argv.slice(2);
const tenure = connect(url, { ttl: "1s", ...JSON.parse(options) });
const hold = await tenure.mutex(name).acquire();
hold.signal.addEventListener("abort", () => console.log(`aborted ${hold.signal.reason.ended}`));
console.log(`held ${hold.fence} on ${tenure.thread}`);

function block(ms) {
    for (const end = Date.now() + ms; Date.now() < end; );
}

function check() {
    try {
        hold.check();
        console.log("check: held");
    } catch (error) {
        console.log(`check: ${error.code}: ${error.message}`);
    }
}

if (what === "exit") {
    // Nothing is released, and nothing keeps the program running.
} else if (what === "stay") {
    await sleep(600_000);
} else if (what === "tick") {
    while (!hold.lost) {
        check();
        await sleep(50);
    }
    check();
} else if (what.startsWith("block:")) {
    block(Number(what.slice(6)));
    check();
    await sleep(20);
    console.log(`released ${await hold.release()}`);
} else if (what.startsWith("compute:")) {
    // Blocks, but calls `check` now and then.
    for (const end = Date.now() + Number(what.slice(8)); Date.now() < end; hold.check()) block(100);
    check();
    console.log(`released ${await hold.release()}`);
}
