"""The server's own description of its API, against the server: schemathesis makes requests from `/openapi.json`, valid ones
and wrong ones, and every answer must be one that the document names, in the form that it names. None is a 500.

`cargo xtask test clients` runs it. Alone, in this folder, where `cargo xtask test set-up` has put schemathesis:

    TENURE_BIN=$PWD/../../../target/debug/tenure PYTHONPATH=$PWD/../../../target/servers/tools python3 -m unittest
"""

from __future__ import annotations

import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
# Streams do not end; their first bytes are tested elsewhere.
STREAMS = ("/v1/events", "/v1/tethers", "/v1/turns")
# A run takes 20 s on a machine with nothing else to do.
LIMIT = 300


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


class OpenApi(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="tenure-openapi-")
        self.addCleanup(folder.cleanup)
        self.url = f"http://127.0.0.1:{(port := free_port())}"
        self.log = pathlib.Path(folder.name, "log")
        command = [os.environ["TENURE_BIN"], "serve", "--memory", "--fresh", "--listen", f"127.0.0.1:{port}"]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TENURE_")}
        with self.log.open("wb") as log:
            self.server = subprocess.Popen(
                [*command, "--key-file", f"{folder.name}/key"], stdout=log, stderr=log, env=environment
            )
        self.addCleanup(self.end)
        give_up = time.monotonic() + 60
        while True:
            try:
                urllib.request.urlopen(f"{self.url}/readyz").close()
                return
            except OSError:
                if self.server.poll() is not None or time.monotonic() > give_up:
                    raise AssertionError(f"the server does not answer: {self.log.read_text()}") from None
                time.sleep(0.05)

    def end(self) -> None:
        self.server.kill()
        self.server.wait()

    def test_every_answer_is_one_that_the_document_names(self) -> None:
        left_out = [part for path in STREAMS for part in ("--exclude-path", path)]
        command = [
            sys.executable, "-m", "schemathesis.cli", "run", f"{self.url}/openapi.json", *left_out,
            "--checks", CHECKS, "--phases", "examples,coverage,fuzzing", "--max-examples", "10",
            # The same requests in every run, so that a failure can be reproduced. One worker, because Python 3.11
            # counts the depth of syntax trees for all threads together, and fails now and then when two of them build
            # one.
            "--generation-deterministic", "--workers", "1", "--request-timeout", "30", "--no-color",
        ]  # fmt: skip
        environment = {**os.environ, "SCHEMATHESIS_HOOKS": "hooks"}
        with tempfile.TemporaryDirectory() as elsewhere:
            # Away from here, because it leaves a folder of its own behind.
            environment["PYTHONPATH"] = os.pathsep.join([str(HERE), environment.get("PYTHONPATH", "")])
            run = subprocess.run(
                command, cwd=elsewhere, env=environment, timeout=LIMIT, text=True,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            )  # fmt: skip
        self.assertEqual(run.returncode, 0, run.stdout)
        print(*[line.strip() for line in run.stdout.splitlines() if "generated," in line])
        self.assertIsNone(self.server.poll(), f"the server ended: {self.log.read_text()}")


if __name__ == "__main__":
    unittest.main()
