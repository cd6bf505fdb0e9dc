// Compiled, never run: what the types must allow, and, after each `@ts-expect-error`, must not.

import { connect, TenureError, type Hold, type TenureEvent } from "tenure-client";

const tenure = connect("http://127.0.0.1:7117", { token: "t", ns: "shop", ttl: "10s", maxBlock: 60_000 });

const booked: number = await tenure.mutex("table:12", { ttl: "5s", meta: { request: "r-17" } }).run(
    async ({ fence, signal, check, hold }) => {
        check();
        await fetch("http://example.com", { signal });
        const same: number = hold.fence;
        return fence + same;
    },
);

const perhaps: Hold | null = await tenure.mutex("x").tryAcquire({ signal: AbortSignal.timeout(1000) });
if (perhaps) {
    const freed: boolean = await perhaps.release();
    console.log(freed, perhaps.remaining, perhaps.deadline, perhaps.lost, booked);
}
// @ts-expect-error a busy lock is null
perhaps.release();
// @ts-expect-error a misspelt option
tenure.mutex("x", { tll: "5s" });
// @ts-expect-error not a duration
tenure.mutex("x", { ttl: "soon" });
// @ts-expect-error how many permits?
tenure.semaphore("x");

await using held = await tenure.semaphore("api", 5, { weight: 2 }).acquire({ wait: "10s" });
held.check();
await tenure.rwlock("catalog").read().run(() => undefined);
await tenure.rwlock("catalog").write({ wait: 0 }).acquire();

const term: number = await tenure.elect("cron", { value: "10.0.0.1" }).run(({ term }) => term);
const { outcome, replayed } = await tenure.once("charge:1", { content: "10 EUR" }).run(() => ({ receipt: term }));
const receipt: number = outcome.receipt;
console.log(receipt, replayed satisfies boolean);
const done: true = (await tenure.once("charge:2").run(async () => {})).outcome;
console.log(done);

try {
    await tenure.mutex("x").acquire({ wait: "1s" });
} catch (error) {
    if (error instanceof TenureError && error.code === "busy") console.log(error.holder?.owner, error.position);
}

const onEvent = (event: TenureEvent) => {
    if (event.event === "lost") console.log(event.fence, event.error.ended);
};
await connect(undefined, { onEvent }).close();

const told: Promise<void> = tenure.close({ wait: "10s" });
// @ts-expect-error not a duration
tenure.close({ wait: "soon" });
connect("http://127.0.0.1:7117", { onEvent: async (event: TenureEvent) => console.log(event.event, await told) });
