// Jobs that are installed on every instance and run on one.
//
//     tenure serve &
//     node cron-leader.mjs        # in several terminals
//
// One instance leads and runs the jobs; the others wait. SIGTERM or Ctrl-C hands over at once; a leader that is killed is
// replaced within its ttl. A leader that loses its term stops its jobs and campaigns again.

import { setTimeout as sleep } from "node:timers/promises";
import { connect } from "tenure-client";

const tenure = connect(process.env.TENURE_URL, { token: process.env.TENURE_TOKEN, ttl: "5s" });
const instance = `instance ${process.pid}`;
const stop = new AbortController();
for (const name of ["SIGTERM", "SIGINT"]) process.once(name, () => stop.abort(new Error(`told to stop by ${name}`)));

async function runJobs({ term, signal }) {
    console.log(`${instance} leads, term ${term}`);
    for (let job = 1; ; job += 1) {
        // Whatever a job writes to should refuse numbers below that of the term.
        console.log(`${instance} runs job ${job}, term ${term}`);
        await sleep(300, undefined, { signal });
    }
}

console.log(`${instance} campaigns`);
try {
    await tenure.elect("cron", { value: instance }).run(runJobs, { signal: stop.signal });
} catch (error) {
    if (!stop.signal.aborted) throw error;
}
await tenure.close();
console.log(`${instance} has handed over`);
