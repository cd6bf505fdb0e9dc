"""Handles each webhook once, even if it is delivered twice: `python webhook.py PORT`, then

curl -X POST localhost:PORT/ -H 'Webhook-Id: 42' -d '{"amount": 5}'
"""

import os
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tenure_client import Busy, OtherContent, Run, Tenure, Unavailable, Unsettled

tenure = Tenure(os.environ.get("TENURE_URL", "http://127.0.0.1:7117"), token=os.environ.get("TENURE_TOKEN"))


def charge(body: str, run: Run) -> str:
    """The work. Whatever it returns is the answer to every delivery."""
    print(f"charging {body}", flush=True)
    return f"receipt {run.fence}"


class Webhooks(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        once = tenure.once(f"webhook:{self.headers['Webhook-Id']}", content=body, wait="2s")
        try:
            self.answer(200, once.run(lambda run: charge(body, run)))
        except Busy:
            self.answer(409, "in progress: deliver it again later")
        except OtherContent:
            self.answer(422, "another webhook had this id")
        except Unsettled:
            self.answer(500, "a process died in it: look before it is done again")
        except Unavailable:
            self.answer(503, "deliver it again later")

    def answer(self, status: int, text: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(text.encode())))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format: str, *arguments: object) -> None:
        pass


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Webhooks)
    print(f"listening on {server.server_port}", flush=True)
    server.serve_forever()
