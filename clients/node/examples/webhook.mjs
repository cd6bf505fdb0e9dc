// Webhooks that arrive twice, even at the same moment, are processed once.
//
//     tenure serve &
//     node webhook.mjs
//     curl -d '42 euros' http://127.0.0.1:3000/webhook/42      # again, and with another body

import http from "node:http";
import { setTimeout as sleep } from "node:timers/promises";
import { connect } from "tenure-client";

const tenure = connect(process.env.TENURE_URL, { token: process.env.TENURE_TOKEN });

async function webhook(id, body) {
    try {
        const { replayed, outcome } = await tenure.once(`webhook:${id}`, { content: body, wait: 0 }).run(async ({ fence }) => {
            await sleep(300);
            console.log(`processing ${id}: ${body}`);
            return { receipt: fence };
        });
        return [200, `${replayed ? "already processed" : "processed"}, receipt ${outcome.receipt}`];
    } catch ({ code }) {
        // The sender tries again, and by then it is done or can be begun.
        if (code === "busy") return [409, "duplicate: in progress"];
        // A process died while it did the work: a human has to check, unless the work may be repeated (`rerun: true`).
        if (code === "unsettled") return [409, "unsettled"];
        if (code === "other_content") return [422, "the same id with another body"];
        return [503, "try again"];
    }
}

const server = http.createServer(async (request, response) => {
    let body = "";
    for await (const part of request) body += part;
    const [status, says] = await webhook(request.url.split("/").at(-1), body);
    response.writeHead(status).end(`${says}\n`);
});
server.listen(Number(process.env.PORT ?? 3000), "127.0.0.1", () => {
    console.log(`listening on http://127.0.0.1:${server.address().port}`);
});
