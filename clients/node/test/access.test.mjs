// Tokens, TLS, and a server that has forgotten everything.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { command, directory, Server } from "./setup.mjs";

test("a token is needed where the server has them, and its prefix binds", async (t) => {
    const dir = directory(t);
    const file = path.join(dir, "tokens");
    const token = command("token", "new", "shop", "--role", "lock,read", "--prefix", "shop/", "--tokens-file", file)
        .split("\n").at(-1);
    const server = await Server.start(t, { dir, args: ["--tokens-file", file] });
    const code = (options, name) => server.connect(t, options).mutex(name).tryAcquire().then(() => "held", (error) => error.code);
    assert.equal(await code({}, "shop/x"), "unauthorized");
    assert.equal(await code({ token: "wrong" }, "shop/x"), "unauthorized");
    assert.equal(await code({ token }, "bank/x"), "forbidden");
    assert.equal(await code({ token }, "shop/x"), "held");
    const tenure = server.connect(t, { token, ns: "shop", ttl: "1s" });
    const hold = await tenure.mutex("long").acquire();
    await new Promise((resolve) => setTimeout(resolve, 2500));
    hold.check();
});

function certificate(dir) {
    const [cert, key] = [path.join(dir, "cert.pem"), path.join(dir, "key.pem")];
    const subject = ["-subj", "/CN=tenure test", "-addext", "subjectAltName=IP:127.0.0.1"];
    const args = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"];
    execFileSync("openssl", [...args, "-keyout", key, "-out", cert, ...subject], { stdio: "ignore" });
    return { cert, key };
}

function hasOpenssl() {
    try {
        execFileSync("openssl", ["version"], { stdio: "ignore" });
        return true;
    } catch {
        return false;
    }
}

test("over TLS, with a certificate of one's own", { skip: !hasOpenssl() && "openssl is not installed" }, async (t) => {
    const dir = directory(t);
    const { cert, key } = certificate(dir);
    const server = await Server.start(t, { dir, tls: true, args: ["--tls-cert", cert, "--tls-key", key] });
    const tenure = server.connect(t, { ca: readFileSync(cert, "utf8"), ttl: "3s" });
    const hold = await tenure.mutex("secure").acquire();
    await new Promise((resolve) => setTimeout(resolve, 4500));
    hold.check();
    assert.equal(tenure.thread, "worker");
    assert.equal(await hold.release(), true);
    const stranger = await server.connect(t).mutex("secure").tryAcquire().catch((error) => error);
    assert.equal(stranger.code, "unavailable");
    assert.match(stranger.message, /certificate/);
});

test("over a unix socket", async (t) => {
    const server = await Server.start(t, { unix: true });
    const [tenure, other] = [server.connect(t, { ttl: "2s" }), server.connect(t)];
    const hold = await tenure.mutex("socket").acquire();
    const next = other.mutex("socket").acquire();
    await new Promise((resolve) => setTimeout(resolve, 3000));
    hold.check();
    assert.equal(tenure.thread, "worker");
    assert.equal(await tenure.ready(), true);
    assert.equal(await hold.release(), true);
    assert((await next).fence > hold.fence);
    await server.kill();
    const error = await other.mutex("other").acquire({ wait: 0 }).catch((error) => error);
    assert.equal(error.code, "unavailable");
    for (const wrong of ["http+unix:", "http+unix://host/path", "http+unix:relative", "unix:/path"]) {
        assert.throws(() => server.connect(t, {}, wrong), TypeError, wrong);
    }
});

test("a server that has forgotten everything is another engine: what was held is lost", async (t) => {
    const server = await Server.start(t, { memory: true });
    const tenure = server.connect(t, { ttl: "10s" });
    const hold = await tenure.mutex("memory").acquire();
    await server.kill();
    await server.start();
    await new Promise((resolve) => hold.signal.addEventListener("abort", resolve));
    assert.equal(hold.signal.reason.ended, "other_engine");
});
