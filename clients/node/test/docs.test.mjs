// The JavaScript of the README and of the guide runs as printed, with the client that the server serves.

import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import http from "node:http";
import path from "node:path";
import { before, test } from "node:test";
import { pathToFileURL } from "node:url";
import { connect } from "../tenure.mjs";
import { directory, Server } from "./setup.mjs";

let server;
before(async (t) => (server = await Server.start(t)));

const read = (file) => readFileSync(new URL(`../../../${file}`, import.meta.url), "utf8");

test("the server gives out the clients as they are in the repository", async () => {
    const files = { "client.mjs": "clients/node/tenure.mjs", "client.py": "clients/python/src/tenure_client/__init__.py" };
    for (const [name, file] of Object.entries(files)) {
        const answer = await fetch(`${server.url}/${name}`);
        assert.equal(answer.status, 200);
        assert.match(answer.headers.get("content-type"), name.endsWith(".py") ? /python/ : /javascript/);
        assert((await answer.text()) === read(file), `${name} is not ${file}: build the command again`);
    }
});

/** What the page's programs write to: it remembers the fences. */
async function bank(t) {
    const fences = [];
    const listener = http.createServer((request, response) => {
        fences.push(Number(request.headers["x-fence"]));
        response.writeHead(200, { "content-type": "application/json" }).end('{"paid":true}');
    });
    await new Promise((resolve) => listener.listen(0, "127.0.0.1", resolve));
    t.after(() => {
        listener.closeAllConnections();
        listener.close();
    });
    return { fences, url: `http://127.0.0.1:${listener.address().port}/pay` };
}

/**
 * Runs all blocks of a page as one program, in the order of the page, and returns the values of `names`. Only addresses
 * are changed, and `await using` where this Node cannot read it.
 */
async function run(t, page, { bankUrl = "", given = {}, names = [] } = {}) {
    const blocks = [...read(page).matchAll(/^```js\n(.*?)^```$/gms)].map(([, code]) => code);
    assert(blocks.length > 0, page);
    const imports = [];
    let program = blocks.join("\n").replace(/^import .*$/gm, (line) => imports.push(line) && "");
    program = program.replaceAll("http://127.0.0.1:7117", server.url).replaceAll("https://example.com/pay", bankUrl);
    if (Number(process.versions.node.split(".")[0]) < 24) {
        program = program.replace(/await using (\w+) = /g, "const $1 = disposed.at[disposed.at.length] = ");
    }
    const file = path.join(directory(t), "page.mjs");
    const client = await (await fetch(`${server.url}/client.mjs`)).text();
    writeFileSync(path.join(path.dirname(file), "tenure.mjs"), client);
    const head = imports.join("\n").replace('"tenure-client"', '"./tenure.mjs"');
    const all = ["tenure", ...names].join();
    writeFileSync(file, `${head}\nexport default async ({ disposed, ${Object.keys(given).join()} }) => {\n${program}\nreturn { ${all} };\n};`);
    const disposed = { at: [] };
    const values = await (await import(pathToFileURL(file))).default({ disposed, ...given });
    for (const one of disposed.at) await one.release();
    t.after(() => values.tenure.close());
    return values;
}

test("the README's program runs", async (t) => {
    const said = [];
    await run(t, "README.md", { given: { console: { log: (...words) => said.push(words) } } });
    assert.equal(said.length, 1);
    assert.equal(said[0][0], "sending, fence");
    assert(said[0][1] > 0);
});

test("the package's own README runs", async (t) => {
    const { fences, url } = await bank(t);
    await run(t, "clients/node/README.md", { bankUrl: url });
    assert.equal(fences.length, 1);
    assert(fences[0] > 0);
});

test("the programs of the guide run", async (t) => {
    const { fences, url } = await bank(t);
    const booked = [];
    const given = { respond: (status) => ({ tenure: { close: () => undefined }, status }), book: (...what) => booked.push(what) };
    const { receipt, hold } = await run(t, "docs/clients/node.md", { bankUrl: url, given, names: ["receipt", "hold"] });
    assert.deepEqual(receipt, { paid: true });
    assert(fences[0] > 0);
    assert.deepEqual(booked, [[12, hold.fence]]);
    assert.throws(() => hold.check(), /was released/);
    const other = connect(server.url);
    t.after(() => other.close());
    // The other case on the same page: somebody else has the table.
    const taken = await other.mutex("table:12").acquire();
    assert.equal((await run(t, "docs/clients/node.md", { bankUrl: url, given })).status, 409);
    assert.equal(booked.length, 1);
    await taken.release();
});

test("the guide lists every code and every event of the types", () => {
    const [types, guide] = [read("clients/node/index.d.ts"), read("docs/clients/node.md")];
    const events = [...types.matchAll(/\| \{ event: "(\w+)"/g)].map(([, event]) => event);
    const codes = [...types.match(/export type ErrorCode =(.*?)\n\s*\| \(string/s)[1].matchAll(/"(\w+)"/g)].map(([, code]) => code);
    const options = [...types.match(/export interface ConnectOptions \{(.*?)\n\}/s)[1].matchAll(/^ {4}(\w+)\?:/gm)].map(([, option]) => option);
    assert(events.length > 8 && codes.length > 10 && options.length > 8);
    // The others are the server's; for those the guide refers to the server's page.
    const own = new Set(["too_many", "too_large", "not_found", "misdirected", "invalid"]);
    for (const word of [...events, ...options, ...codes.filter((code) => !own.has(code))]) {
        assert(guide.includes(`\`${word}\``), `${word} is not in the guide`);
    }
    const problems = read("docs/http.md");
    for (const code of own) assert(problems.includes(`\`${code}\``), code);
});
