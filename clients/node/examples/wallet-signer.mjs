// Several signers, two wallets: the transactions of a wallet must be numbered without gaps and without duplicates.
//
//     tenure serve &
//     node wallet-signer.mjs
//
// Start it in several terminals at once: they all sign for the same wallets. A signer that finds a wallet busy does its
// other jobs first, and waits in line when there are none left. TENURE_URL names another lock server, TENURE_TOKEN its
// token; the arguments are another folder for the files that stand in for the chain, and how many transactions each
// signer sends.

import { appendFileSync, mkdirSync, readFileSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { connect } from "tenure-client";

const SIGNERS = 3;
const WALLETS = ["0xab", "0xcd"];
const [folder = path.join(os.tmpdir(), "tenure-example-node"), jobsEach = "10"] = process.argv.slice(2);
mkdirSync(folder, { recursive: true });

const tenure = connect(process.env.TENURE_URL, { token: process.env.TENURE_TOKEN, ttl: "5s" });

/** The transactions of a wallet in the order in which they were mined; each line begins with its nonce. */
class Chain {
    constructor(wallet) {
        this.file = path.join(folder, `chain-${wallet}.txt`);
    }

    /** How many there are, which is the next nonce. */
    count() {
        let text = "";
        try {
            text = readFileSync(this.file, "utf8");
        } catch (error) {
            if (error.code !== "ENOENT") throw error; // A wallet that was never used has no file yet.
        }
        const lines = text.split("\n").filter(Boolean);
        lines.forEach((line, nonce) => {
            if (!line.startsWith(`${nonce} `)) throw new Error(`nonce ${nonce} is missing or was used twice: ${line}`);
        });
        return lines.length;
    }

    /** Only one signer at a time may do this: another one between the count and the write would use the same nonce. */
    async send(hold, signer) {
        const nonce = this.count();
        await sleep(5);
        // A chain refuses a nonce that was used. This file does not, so this is the last moment to check.
        hold.check();
        appendFileSync(this.file, `${nonce} by ${signer}, fence ${hold.fence}\n`);
        return nonce;
    }
}

async function sign(signer) {
    const jobs = Array.from({ length: Number(jobsEach) }, (_, job) => WALLETS[job % WALLETS.length]);
    let signed = 0;
    let putOff = 0;
    while (jobs.length > 0) {
        const wallet = jobs.shift();
        const lock = tenure.mutex(`wallet:${wallet}`, { owner: signer, wait: "30s" });
        let hold = await lock.tryAcquire();
        if (!hold && putOff < jobs.length) {
            jobs.push(wallet);
            putOff += 1;
            continue;
        }
        hold ??= await lock.acquire();
        try {
            const nonce = await new Chain(wallet).send(hold, signer);
            console.log(`${signer} sent nonce ${nonce} of ${wallet}, fence ${hold.fence}; put off ${putOff} before`);
        } finally {
            await hold.release();
        }
        signed += 1;
        putOff = 0;
    }
    return signed;
}

const signers = Array.from({ length: SIGNERS }, (_, number) => sign(`signer ${process.pid}-${number}`));
const signed = (await Promise.all(signers)).reduce((sum, count) => sum + count, 0);
for (const wallet of WALLETS) {
    const count = await tenure.mutex(`wallet:${wallet}`).run(() => new Chain(wallet).count());
    console.log(`${wallet}: ${count} transactions in order`);
}
console.log(`${signed} of them sent here`);
await tenure.close();
