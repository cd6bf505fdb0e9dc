"""Servers are replaced, one after another, while real clients hold and wait: nothing is lost, and nobody is granted twice."""

from __future__ import annotations

import pathlib
import re
import signal
import subprocess
import sys
import time

from test_contrib import BIN, PATIENCE, ROOT, Case, clean_environment, free_port

# Adds 1 to a number in a file, again and again until there is a file `stop`, each time under a lock.
PYTHON = """
import os, sys, time
from tenure_client import Tenure
url, folder = sys.argv[1:]
tenure, count = Tenure(url, patience="30s"), os.path.join(folder, "count")
while not os.path.exists(os.path.join(folder, "stop")):
    with tenure.mutex("counter", ttl="5s") as hold:
        number = int(open(count).read())
        time.sleep(0.002)
        hold.check()
        open(count, "w").write(str(number + 1))
        open(os.path.join(folder, "fences"), "a").write(f"{hold.fence} python\\n")
print("done")
"""

NODE = """
import { appendFileSync, existsSync, readFileSync, writeFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
const [client, url, folder] = process.argv.slice(1);
const { connect } = await import(client);
const tenure = connect(url, { ttl: "5s", patience: "30s" });
while (!existsSync(`${folder}/stop`)) {
    await tenure.mutex("counter").run(async ({ fence, check }) => {
        const number = Number(readFileSync(`${folder}/count`, "utf8"));
        await sleep(2);
        check();
        writeFileSync(`${folder}/count`, String(number + 1));
        appendFileSync(`${folder}/fences`, `${fence} node\\n`);
    });
}
console.log("done");
"""

# Holds a name until there is a file `stop`, and says so when it is lost.
PYTHON_HOLDS = """
import os, sys, time
from tenure_client import Tenure
url, folder = sys.argv[1:]
with Tenure(url).mutex("held by python", ttl="4s") as hold:
    print("held", flush=True)
    while not os.path.exists(os.path.join(folder, "stop")):
        hold.check()
        time.sleep(0.05)
print("done")
"""

NODE_HOLDS = """
import { existsSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
const [client, url, folder] = process.argv.slice(1);
const { connect } = await import(client);
await connect(url, { ttl: "4s" }).mutex("held by node").run(async ({ check }) => {
    console.log("held");
    while (!existsSync(`${folder}/stop`)) {
        check();
        await sleep(50);
    }
});
console.log("done");
"""

# Waits in line, and says when it is served.
PYTHON_WAITS = """
import sys
from tenure_client import Tenure
url, folder, owner = sys.argv[1:]
with Tenure(url).mutex("line", owner=owner):
    open(f"{folder}/served", "a").write(f"{owner}\\n")
"""

NODE_WAITS = """
import { appendFileSync } from "node:fs";
const [client, url, folder, owner] = process.argv.slice(1);
const { connect } = await import(client);
const tenure = connect(url);
await tenure.mutex("line", { owner }).run(async () => appendFileSync(`${folder}/served`, `${owner}\\n`));
"""


class Upgrade(Case):
    def setUp(self) -> None:
        super().setUp()
        (self.folder / "count").write_text("0")
        (self.folder / "fences").write_text("")
        self.environment = clean_environment(
            PYTHONPATH=str(ROOT / "clients/python/src"), PYTHONDONTWRITEBYTECODE="1", PYTHONUNBUFFERED="1"
        )
        self.programs: list[tuple[str, subprocess.Popen[bytes]]] = []

    def serve(self, port: int) -> subprocess.Popen[bytes]:
        own = ["--key-file", f"{self.folder}/key", "--url", f"file:{self.folder}/locks.db"]
        server = self.start([BIN, "serve", "--listen", f"127.0.0.1:{port}", *own], clean_environment())
        self.until(lambda: self.answers(f"http://127.0.0.1:{port}/readyz"), "the server is ready")
        return server

    def stop(self, server: subprocess.Popen[bytes]) -> None:
        server.send_signal(signal.SIGTERM)
        self.assertEqual(server.wait(PATIENCE), 0, self.logs())

    def program(self, name: str, *command: str) -> subprocess.Popen[bytes]:
        program = self.start(list(command), self.environment)
        self.programs.append((name, program))
        return program

    def python(self, source: str, url: str, *more: str) -> None:
        self.program("python", sys.executable, "-c", source, url, str(self.folder), *more)

    def node(self, source: str, url: str, *more: str) -> None:
        client = str(ROOT / "clients/node/tenure.mjs")
        self.program("node", "node", "--input-type=module", "-e", source, client, url, str(self.folder), *more)

    def counted(self) -> int:
        return len((self.folder / "fences").read_text().splitlines())

    def clients(self, url: str) -> None:
        """Some that contend, some that hold, and four in line behind a holder."""
        for _ in range(2):
            self.python(PYTHON, url)
            self.node(NODE, url)
        self.python(PYTHON_HOLDS, url)
        self.node(NODE_HOLDS, url)
        # The `http://` engine.
        wait = f"echo held; until [ -e {self.folder}/stop ]; do sleep 0.05; done"
        run = [BIN, "run", "-q", "-t", "4s", "-k", "1s", "-u", url]
        self.program("tenure run", *run, "held by a command", "--", "sh", "-c", wait)
        let_go = f"until [ -e {self.folder}/release ]; do sleep 0.05; done"
        self.program("tenure run", *run, "line", "--", "sh", "-c", f"echo held; {let_go}")
        self.until(lambda: self.logs().count("held\n") == 4, "all of them hold")
        for place, (start, source) in enumerate(
            [(self.node, NODE_WAITS), (self.python, PYTHON_WAITS), (self.node, NODE_WAITS), (self.python, PYTHON_WAITS)]
        ):
            start(source, url, f"waiter-{place}")
            self.until(lambda: f"waiter-{place}" in self.show("line", url), "it is in line")

    def show(self, name: str, url: str) -> str:
        command = [BIN, "show", name, "-u", url, "--json"]
        return subprocess.run(command, capture_output=True, text=True, env=clean_environment()).stdout

    def more_is_counted(self) -> None:
        before = self.counted()
        self.until(lambda: self.counted() > before + 20, "they go on")

    def check(self) -> None:
        for name, program in self.programs:
            self.assertIsNone(program.poll(), f"{name} has ended: {self.logs()}")
        (self.folder / "release").touch()
        served = self.folder / "served"
        self.until(lambda: served.exists() and len(served.read_text().splitlines()) == 4, "the line is served")
        self.assertEqual(served.read_text().splitlines(), [f"waiter-{place}" for place in range(4)])
        (self.folder / "stop").touch()
        for name, program in self.programs:
            self.assertEqual(program.wait(PATIENCE), 0, f"{name}: {self.logs()}")
        counts = (self.folder / "fences").read_text().splitlines()
        self.assertEqual(int((self.folder / "count").read_text()), len(counts), "an update was lost")
        fences = [int(line.split()[0]) for line in counts]
        self.assertEqual(fences, sorted(set(fences)))
        self.assertEqual({line.split()[1] for line in counts}, {"python", "node"})

    def test_a_server_that_is_replaced_at_its_address(self) -> None:
        port = free_port()
        server = self.serve(port)
        self.clients(f"http://127.0.0.1:{port}")
        for _ in range(3):
            self.more_is_counted()
            self.stop(server)
            server = self.serve(port)
            self.more_is_counted()
        self.check()

    def test_two_servers_that_are_replaced_in_turn_behind_nginx(self) -> None:
        ports, at, folder = (free_port(), free_port()), free_port(), self.folder / "nginx"
        folder.mkdir()
        servers = [self.serve(port) for port in ports]
        temporary = "".join(
            f"{kind}_temp_path {folder}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        )
        settings = pathlib.Path(ROOT / "contrib/nginx/tenure.conf").read_text()
        both = "".join(f"server 127.0.0.1:{port} max_fails=0;" for port in ports)
        settings = settings.replace("server 127.0.0.1:7117 max_fails=0;", both).replace("listen 443 ssl;", f"listen 127.0.0.1:{at};")
        settings = re.sub(r"ssl_\w+ .*;|server_name .*;", "", settings)
        (folder / "nginx.conf").write_text(
            f"daemon off; master_process off; pid {folder}/pid; events {{ worker_connections 1024; }}\n"
            f"http {{ access_log off; {temporary}\n{settings}\n}}\n"
        )
        command = ["nginx", "-p", str(folder), "-e", "stderr", "-c", str(folder / "nginx.conf")]
        self.start(command, clean_environment())
        url = f"http://127.0.0.1:{at}"
        self.until(lambda: self.answers(f"{url}/readyz"), "nginx answers")
        self.clients(url)
        for _ in range(2):
            for place, port in enumerate(ports):
                self.more_is_counted()
                self.stop(servers[place])
                self.more_is_counted()
                servers[place] = self.serve(port)
        self.check()
