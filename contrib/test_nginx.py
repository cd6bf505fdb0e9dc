"""`tenure serve` behind a real nginx: with the settings of docs/http.md, with none, and with one that buffers everything."""

from __future__ import annotations

import http.client
import json
import ssl
import subprocess
import sys
import threading
import time
from typing import Any

from test_contrib import BIN, HERE, PATIENCE, ROOT, Case, clean_environment, free_port

sys.path.insert(0, str(ROOT / "clients/python/src"))

from tenure_client import Tenure  # noqa: E402

SETTINGS = HERE / "nginx/tenure.conf"
NODE = ROOT / "clients/node/test/programs/holder.mjs"


class Proxied(Case):
    """A server, and an nginx in front of it."""

    def setUp(self) -> None:
        super().setUp()
        tokens = str(self.folder / "tokens")
        command = [BIN, "token", "new", "all", "--role", "lock,read,admin,engine", "--tokens-file", tokens]
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=clean_environment())
        self.token = done.stdout.strip()
        self.context: ssl.SSLContext | None = None
        self.port = self.serve()

    def serve(self) -> int:
        """Another server of the same locks; its port."""
        port = free_port()
        own = ["--key-file", f"{self.folder}/key", "--tokens-file", f"{self.folder}/tokens"]
        url = ["--url", f"file:{self.folder}/locks.db"]
        self.start([BIN, "serve", "--listen", f"127.0.0.1:{port}", *own, *url], clean_environment())
        self.until(lambda: self.answers(f"http://127.0.0.1:{port}/readyz"), "the server is ready")
        return port

    def nginx(self, settings: str) -> None:
        """nginx with these settings, which listens on `self.at`."""
        folder = self.folder / "nginx"
        folder.mkdir()
        temporary = "".join(
            f"{kind}_temp_path {folder}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        )
        (folder / "nginx.conf").write_text(
            f"daemon off; master_process off; pid {folder}/pid; events {{ worker_connections 1024; }}\n"
            f"http {{ access_log {folder}/access.log; {temporary}\n{settings}\n}}\n"
        )
        command = ["nginx", "-p", str(folder), "-e", "stderr", "-c", str(folder / "nginx.conf")]
        self.start(command, clean_environment())

        def answers() -> bool:
            try:
                return self.ask("GET", "/healthz")[0] == 200
            except OSError:
                return False

        self.until(answers, "nginx answers")

    def plain(self, location: str) -> None:
        """nginx without TLS, with these settings of its only location."""
        self.at = free_port()
        self.url = f"http://127.0.0.1:{self.at}"
        self.nginx(f"server {{ listen 127.0.0.1:{self.at}; location / {{ {location} }} }}")

    def connect(self) -> http.client.HTTPConnection:
        if self.context is None:
            return http.client.HTTPConnection("127.0.0.1", self.at, timeout=PATIENCE)
        return http.client.HTTPSConnection("localhost", self.at, timeout=PATIENCE, context=self.context)

    def send(self, method: str, path: str, body: Any, headers: dict[str, str]) -> http.client.HTTPResponse:
        connection = self.connect()
        self.addCleanup(connection.close)
        head = {"authorization": f"Bearer {self.token}", "content-type": "application/json", **headers}
        connection.request(method, path, None if body is None else json.dumps(body), head)
        return connection.getresponse()

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        answer = self.send(method, path, body, headers)
        text = answer.read()
        is_json = "json" in (answer.headers["content-type"] or "")
        return answer.status, json.loads(text) if is_json else text

    def python(self) -> Tenure:
        tenure = Tenure(self.url, token=self.token, ssl_context=self.context)
        self.addCleanup(tenure.close)
        return tenure

    def waits(self, name: str) -> None:
        self.until(lambda: self.ask("GET", f"/v1/name?name={name}")[1].get("waiters"), f"someone waits for {name}")

    def takes_its_turn(
        self, name: str, command: list[str], within: float, held_for: float = 0, **environment: str
    ) -> str:
        """Starts a program while the name is held, which must have it soon after the release. Returns its errors."""
        hold = self.python().mutex(name).acquire()
        program = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=clean_environment(**environment)
        )
        self.addCleanup(program.kill)
        self.waits(name)
        time.sleep(held_for)
        hold.release()
        released = time.monotonic()
        out, errors = program.communicate(timeout=PATIENCE)
        took = time.monotonic() - released
        self.assertEqual(program.returncode, 0, errors)
        self.assertIn("held", out)
        self.assertLess(took, within, errors)
        return errors

    def check_clients(self) -> None:
        """Turns and pulses, for the three kinds of clients."""
        first, second = self.python(), self.python()
        hold = first.mutex("python", ttl="2s").acquire()
        turns: list[float] = []

        def wait() -> None:
            with second.mutex("python"):
                turns.append(time.monotonic())

        waiting = threading.Thread(target=wait)
        waiting.start()
        self.waits("python")
        time.sleep(4)
        hold.check()
        hold.release()
        released = time.monotonic()
        waiting.join(PATIENCE)
        self.assertLess(turns[0] - released, 2)
        options = json.dumps({"token": self.token, **self.node_options()})
        command = ["node", str(NODE), self.node_url(), "node", "block:10", options]
        self.takes_its_turn("node", command, 5)

    def node_url(self) -> str:
        return self.url

    def node_options(self) -> dict[str, str]:
        return {}

    def run_command(self, name: str, within: float, held_for: float = 0) -> str:
        """Runs `tenure run`, which uses the `http://` engine. Returns its errors."""
        command = [BIN, "run", "-u", self.engine_url(), name, "--", "echo", "held"]
        environment = {"TENURE_TOKEN": self.token, "TENURE_LOG_LEVEL": "warn"}
        return self.takes_its_turn(name, command, within, held_for, **environment)

    def engine_url(self) -> str:
        return self.url

    def stream(self, method: str, path: str, body: Any = None) -> Events:
        events = Events(self.send(method, path, body, {}))
        self.assertEqual(events.answer.status, 200)
        return events

    def check_streams(self) -> None:
        """A tether brings its turn and its loss, and events come, while the streams are open."""
        told = self.stream("GET", "/v1/events?prefix=tether")
        told.next("hello")
        hold = self.python().mutex("tether").acquire()
        claim = "1" * 32
        tether = self.stream("POST", "/v1/tethers", {"name": "tether", "claim": claim, "ttl": "30s"})
        tether.next("hello")
        self.assertEqual(tether.next("place")["position"], 1)
        hold.release()
        granted = tether.next("granted")
        renew = {"name": "tether", "claim": claim, "fence": granted["fence"]}
        self.assertEqual(self.ask("POST", "/v1/holds/renew", renew)[0], 200)
        by_force = {"name": "tether", "fence": granted["fence"], "reason": "test"}
        self.assertEqual(self.ask("POST", "/v1/break", by_force)[0], 200)
        self.assertEqual(tether.next("lost")["ended"], "broken")
        for event in ("granted", "waiting", "released", "granted", "broken"):
            told.next(event)


class Events:
    """A stream of events, read as it comes."""

    def __init__(self, answer: http.client.HTTPResponse) -> None:
        self.answer = answer
        self.last = time.monotonic()

    def next(self, kind: str) -> Any:
        """The data of the next event of this kind. None may be late: a buffer would hold back dozens of them."""
        event = None
        while True:
            line = self.answer.readline().decode().strip()
            assert line or event, f"the stream has ended before {kind}"
            if line.startswith("event: "):
                event = line.removeprefix("event: ")
            elif line.startswith("data: ") and event == kind:
                self.answer.readline()
                return json.loads(line.removeprefix("data: "))
            elif not line:
                event = "between"


class Documented(Proxied):
    """The settings that docs/http.md shows."""

    def setUp(self) -> None:
        super().setUp()
        certificate, key = self.folder / "cert.pem", self.folder / "key.pem"
        make = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost"
        names = ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE"]
        output = ["-keyout", str(key), "-out", str(certificate)]
        subprocess.run([*make.split(), *names, *output], check=True, capture_output=True)
        self.certificate = certificate
        self.context = ssl.create_default_context(cafile=str(certificate))
        self.at = free_port()
        self.url = f"https://localhost:{self.at}"
        settings = SETTINGS.read_text()
        # Only addresses and paths are changed.
        for theirs, ours in {
            "server 127.0.0.1:7117 max_fails=0;": f"server 127.0.0.1:{self.port} max_fails=0;",
            "listen 443 ssl;": f"listen 127.0.0.1:{self.at} ssl;",
            "server_name locks.example.org;": "server_name localhost;",
            "/etc/ssl/locks.example.org.pem": str(certificate),
            "/etc/ssl/locks.example.org.key": str(key),
        }.items():
            self.assertEqual(settings.count(theirs), 1, theirs)
            settings = settings.replace(theirs, ours)
        self.nginx(settings)

    def node_options(self) -> dict[str, str]:
        return {"ca": self.certificate.read_text()}

    def engine_url(self) -> str:
        return f"{self.url}?ca={self.certificate}"

    def test_turns_pulses_and_streams(self) -> None:
        self.check_clients()
        self.check_streams()
        errors = self.run_command("command", 3)
        self.assertNotIn("silent_stream", errors)

    def test_a_wait_that_takes_several_requests(self) -> None:
        hold = self.python().mutex("long").acquire()
        waits = threading.Thread(target=lambda: self.python().mutex("long", wait="60s").acquire().release())
        waits.start()
        self.waits("long")
        time.sleep(22)
        hold.release()
        waits.join(10)
        self.assertFalse(waits.is_alive())

    def test_pages_are_of_the_same_origin_and_names_arrive_as_they_are(self) -> None:
        page = {"origin": f"https://localhost:{self.at}", "sec-fetch-site": "same-origin"}
        name = "a/../b%2f//c d"
        hold = self.python().mutex(name).acquire()
        status, found = self.ask("GET", "/v1/name?name=a/../b%252f//c%20d")
        self.assertEqual((status, found["holders"][0]["fence"]), (200, hold.fence))
        by_force = {"name": name, "fence": hold.fence, "reason": "from the page"}
        self.assertEqual(self.ask("POST", "/v1/break", by_force, **page)[0], 200)
        status, _ = self.ask("POST", "/v1/break", by_force, origin="https://evil.example")
        self.assertEqual(status, 403)

    def test_the_page_shows_these_settings(self) -> None:
        page = (ROOT / "docs/http.md").read_text()
        settings = SETTINGS.read_text().split("\n", 2)[2]
        self.assertIn(f"```nginx\n{settings}```", page)

    def test_secrets_are_not_in_the_log_of_the_proxy(self) -> None:
        self.check_streams()
        self.run_command("logged", 3)
        file = self.folder / "nginx/access.log"
        # A request is in it when it has ended.
        self.until(lambda: "GET /v1/turns" in file.read_text(), "the stream has ended")
        log = file.read_text()
        self.assertIn("POST /v1/tethers", log)
        self.assertNotIn(self.token, log)
        # No claim, and no number of a process.
        self.assertNotRegex(log, "[0-9a-f]{32}")


class WithoutSettings(Proxied):
    """nginx as it is: answers over HTTP/1.0, buffered unless the server asks for something else, which it does."""

    def test_turns_pulses_and_streams(self) -> None:
        self.plain(f"proxy_pass http://127.0.0.1:{self.port};")
        self.check_clients()
        self.check_streams()
        errors = self.run_command("command", 3)
        self.assertNotIn("silent_stream", errors)


class Buffering(Proxied):
    """A proxy that buffers what the server sends until there is enough of it."""

    def setUp(self) -> None:
        super().setUp()
        location = "proxy_buffering on; proxy_ignore_headers X-Accel-Buffering Cache-Control;"
        self.plain(f"proxy_pass http://127.0.0.1:{self.port}; {location}")

    def test_clients_that_ask_notice_nothing(self) -> None:
        self.check_clients()

    def test_a_command_gets_its_turn_and_says_what_is_wrong(self) -> None:
        # It notices within 5 s.
        errors = self.run_command("command", 3, held_for=7)
        self.assertIn("a proxy before the server seems to buffer", errors)

    def test_commands_that_contend_all_get_it(self) -> None:
        command = [BIN, "run", "-q", "-u", self.url, "many", "--", "sh", "-c", "sleep 0.5; echo held"]
        environment = clean_environment(TENURE_TOKEN=self.token)
        began = time.monotonic()
        programs = [
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment) for _ in range(4)
        ]
        for program in programs:
            self.addCleanup(program.kill)
            _, errors = program.communicate(timeout=PATIENCE)
            self.assertEqual(program.returncode, 0, errors)
        self.assertLess(time.monotonic() - began, 30)

    def test_a_tether_is_silent_and_its_claim_continues_without_it(self) -> None:
        body = {"name": "tether", "claim": "1" * 32, "ttl": "10s"}

        def open_it() -> None:
            connection = self.connect()
            connection.timeout = 3
            self.addCleanup(connection.close)
            head = {"authorization": f"Bearer {self.token}", "content-type": "application/json"}
            connection.request("POST", "/v1/tethers", json.dumps(body), head)
            connection.getresponse().readline()

        self.assertRaises(TimeoutError, open_it)
        # What the stream did not report, a request with the same claim does.
        status, answer = self.ask("POST", "/v1/holds", body)
        self.assertEqual((status, answer["claim"]), (201, body["claim"]))

