// One of several processes does the work, and another takes over.
//
//     tenure serve &
//     node worker.mjs                 # in two terminals
//     PORT=3001 node worker.mjs
// `/` shows whether this worker works and who leads, `/health` whether the lock server answers.
// `/` says whether this worker works and who leads, `/health` whether the lock server answers.

import { randomUUID } from "node:crypto";
import http from "node:http";
import { setTimeout as sleep } from "node:timers/promises";
import { connect } from "tenure-client";

const id = randomUUID();
const tenure = connect(process.env.TENURE_URL, { token: process.env.TENURE_TOKEN, ttl: "10s", owner: id });
const election = tenure.elect("resource-worker", { value: id });
const stop = new AbortController();
const say = (text) => console.log(`${id} ${text}`);
let state = "waiting";

const server = http.createServer(async (request, response) => {
    if (request.url === "/health") return response.writeHead((await tenure.ready()) ? 200 : 503).end();
    const leader = await election.leader().catch(() => null);
    response.end(`${id} is ${state}; leader: ${leader?.value ?? "nobody"}\n`);
});
server.listen(Number(process.env.PORT ?? 3000), "127.0.0.1", () => say(`listening on ${server.address().port}`));
for (const name of ["SIGTERM", "SIGINT"]) process.once(name, () => stop.abort());

try {
    await election.run(async ({ term, signal }) => {
        state = "working";
        try {
            for (;;) {
                say(`doing some heavy work, term ${term}`);
                await sleep(1000, undefined, { signal });
            }
        } finally {
            state = "waiting";
            say("work has stopped");
        }
    }, { signal: stop.signal });
} catch (error) {
    if (!stop.signal.aborted) throw error;
}
server.close();
await tenure.close();
say("done");
