"""The files here say what is there: their flags, variables, paths and metrics are compared with the command itself, and what
can be run without Docker and cron is run. `cargo xtask test clients` does it; see CONTRIBUTING.md."""

from __future__ import annotations

import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import unittest
import urllib.error
import urllib.request
from typing import Any

import yaml

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
BIN = os.environ["TENURE_BIN"]
# A busy machine may need this long for what takes milliseconds.
PATIENCE = 60.0


def clean_environment(**more: str) -> dict[str, str]:
    """The tests' own settings, not those of whoever runs them."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TENURE_")}
    return {**kept, **more}


def help_of(command: str) -> str:
    done = subprocess.run([BIN, command, "--help"], capture_output=True, text=True, env=clean_environment(), check=True)
    return done.stdout


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def unknown_flags(words: list[str]) -> list[str]:
    """The flags of a `tenure` command line that the command does not have. `words` begin with the subcommand."""
    command, *rest = words
    text = help_of(command)
    own = rest[: rest.index("--")] if "--" in rest else rest
    flags = [word.split("=")[0] for word in own if word.startswith("-")]
    return [flag for flag in flags if not re.search(rf"(?<![\w-]){re.escape(flag)}(?![\w-])", text)]


class Case(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="tenure-contrib-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def start(self, command: list[str], environment: dict[str, str]) -> subprocess.Popen[bytes]:
        log = (self.folder / f"log-{time.monotonic_ns()}").open("wb")
        self.addCleanup(log.close)
        process = subprocess.Popen(
            command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=environment, start_new_session=True
        )
        self.addCleanup(self.end, process)
        return process

    def end(self, process: subprocess.Popen[bytes]) -> None:
        """With what it has started: the group is its own."""
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()

    def logs(self) -> str:
        return "\n".join(file.read_text() for file in sorted(self.folder.glob("log-*")))

    def until(self, condition: Any, what: str) -> Any:
        give_up = time.monotonic() + PATIENCE
        while not (found := condition()):
            self.assertLess(time.monotonic(), give_up, f"waited in vain until {what}: {self.logs()}")
            time.sleep(0.05)
        return found

    def answers(self, url: str) -> bool:
        try:
            urllib.request.urlopen(url, timeout=5).close()
            return True
        except OSError:
            return False


class Systemd(Case):
    UNIT = HERE / "systemd/tenure.service"

    def setting(self, name: str) -> list[str]:
        return re.findall(rf"^{name}=(.*)$", self.UNIT.read_text(), re.MULTILINE)

    def test_its_command_and_variables_exist(self) -> None:
        (command,) = self.setting("ExecStart")
        program, *words = shlex.split(command)
        self.assertEqual(program, "/usr/local/bin/tenure")
        self.assertEqual(unknown_flags(words), [])
        for setting in self.setting("Environment"):
            self.assertIn(f"[env: {setting.split('=')[0]}]", help_of("serve"))

    def test_it_runs_as_the_unit_says_and_ends_in_the_time_it_has(self) -> None:
        port = free_port()
        settings = dict(setting.split("=", 1) for setting in self.setting("Environment"))
        settings = {name: value.replace("/var/lib/tenure", str(self.folder)) for name, value in settings.items()}
        (command,) = self.setting("ExecStart")
        # What an administrator adds in serve.env.
        tokens = str(self.folder / "tokens")
        command_line = [BIN, "token", "new", "shop", "--role", "lock", "--tokens-file", tokens]
        subprocess.run(command_line, capture_output=True, env=clean_environment(), check=True)
        own = {"TENURE_LISTEN": f"127.0.0.1:{port}", "TENURE_TOKENS_FILE": tokens}
        environment = clean_environment(**settings, **own)
        server = self.start([BIN, *shlex.split(command)[1:]], environment)
        self.until(lambda: self.answers(f"http://127.0.0.1:{port}/readyz"), "it is ready")
        self.assertTrue((self.folder / "server.key").exists())
        server.send_signal(signal.SIGHUP)  # ExecReload
        time.sleep(0.3)
        self.assertTrue(self.answers(f"http://127.0.0.1:{port}/readyz"), self.logs())
        server.send_signal(signal.SIGTERM)
        server.wait(float(self.setting("TimeoutStopSec")[0]) + PATIENCE)
        self.assertEqual(server.returncode, 0, self.logs())

    @unittest.skipUnless(shutil.which("systemd-analyze"), "systemd-analyze is not installed")
    def test_systemd_understands_all_of_it(self) -> None:
        unit = self.folder / "tenure.service"
        unit.write_text(self.UNIT.read_text().replace("/usr/local/bin/tenure", BIN))
        done = subprocess.run(["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True)
        about = [line for line in done.stderr.splitlines() if "tenure.service" in line]
        self.assertEqual((about, done.returncode), ([], 0), done.stderr)


class Cron(Case):
    def lines(self) -> list[list[str]]:
        text = (HERE / "cron/tenure").read_text()
        lines = [line for line in text.splitlines() if line and not line.startswith("#")]
        return [line.split(maxsplit=7) for line in lines if not re.match(r"[A-Z]+(_[A-Z]+)*=", line)]

    def test_each_line_has_a_time_a_user_and_a_command_that_runs(self) -> None:
        lines = self.lines()
        self.assertGreaterEqual(len(lines), 4)
        environment = clean_environment(TENURE_URL=f"file:{self.folder}/locks.db", PATH=f"{self.folder}:/usr/bin:/bin")
        (self.folder / "tenure").symlink_to(BIN)
        for *times, user, program, rest in lines:
            self.assertEqual(len(times), 5)
            for time_of_day in times:
                self.assertRegex(time_of_day, r"^(\*(/\d+)?|\d+)$")
            self.assertRegex(user, r"^[a-z]+$")
            self.assertEqual(program, "tenure")
            # In a crontab a % that is not escaped ends the command.
            self.assertNotRegex(rest, r"(?<!\\)%")
            command = f"tenure {rest}".replace("\\%", "%")
            self.assertEqual(unknown_flags(shlex.split(command)[1:]), [])
            # The job itself is replaced, and so are the minutes for which it keeps its hold.
            command = re.sub(r"-- /usr/local/bin/\S+$", "-- sh -c 'echo ran'", command)
            command = command.replace("--hold-for 10m", "--hold-for 10ms")
            done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, env=environment, timeout=PATIENCE)
            self.assertEqual((done.returncode, done.stdout), (0, "ran\n"), f"{command}: {done.stderr}")

    def test_the_variables_exist(self) -> None:
        names = re.findall(r"^(TENURE_[A-Z_]+)=", (HERE / "cron/tenure").read_text(), re.MULTILINE)
        self.assertGreater(len(names), 0)
        for name in names:
            self.assertIn(f"[env: {name}]", help_of("run"))


class Docker(Case):
    FILE = HERE / "docker/Dockerfile"

    def instructions(self) -> list[tuple[str, str]]:
        lines = [line for line in self.FILE.read_text().splitlines() if line and not line.startswith("#")]
        return [(line.split(maxsplit=1)[0], line.split(maxsplit=1)[1]) for line in lines]

    def test_the_image_has_what_it_starts(self) -> None:
        words = dict(self.instructions())
        self.assertEqual([name for name, _ in self.instructions()][0], "FROM")
        self.assertEqual(json.loads(words["ENTRYPOINT"]), ["tenure"])
        self.assertEqual(unknown_flags(json.loads(words["CMD"])), [])
        for setting in shlex.split(words["ENV"]):
            self.assertIn(f"[env: {setting.split('=')[0]}]", help_of("serve"))
        copied = [text.split() for name, text in self.instructions() if name == "COPY"]
        self.assertEqual(copied[1], ["--from=build", "/src/target/release/tenure", "/usr/local/bin/tenure"])
        volume = words["VOLUME"]
        self.assertIn(f"--home-dir {volume} ", dict(self.instructions())["RUN"])
        for setting in shlex.split(words["ENV"]):
            self.assertIn(f"{volume}/", setting)
        minimum = re.search(r'rust-version = "([\d.]+)"', (ROOT / "Cargo.toml").read_text())
        assert minimum is not None
        self.assertIn(("FROM", f"rust:{minimum[1]}-slim-bookworm AS build"), self.instructions())

    def test_what_is_sent_to_the_build_is_enough_for_it(self) -> None:
        rules = (HERE / "docker/Dockerfile.dockerignore").read_text().splitlines()
        self.assertIn("*", rules)
        for rule in rules:
            if rule.startswith("!"):
                sent = ROOT / rule[1:]
                self.assertTrue(sent.exists(), rule)
                target = self.folder / rule[1:]
                leave_out = shutil.ignore_patterns("node_modules", "target", "__pycache__")
                shutil.copytree(sent, target, ignore=leave_out) if sent.is_dir() else shutil.copy(sent, target)
        command = ["cargo", "metadata", "--locked", "--offline", "--format-version", "1", "--no-deps"]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, env=clean_environment())
        self.assertEqual(done.returncode, 0, done.stderr)
        package = next(each for each in json.loads(done.stdout)["packages"] if each["name"] == "tenure-cli")
        self.assertIn("tenure", [target["name"] for target in package["targets"] if "bin" in target["kind"]])
        self.assertIn("serve", package["features"]["default"])
        # What the sources include from elsewhere in the repository.
        for source in (self.folder / "crates").glob("*/src/**/*.rs"):
            for path in re.findall(r'include_(?:str|bytes)!\(\s*"([^"]+)"', source.read_text()):
                self.assertTrue((source.parent / path).exists(), f"{source}: {path}")


class Compose(Case):
    def setUp(self) -> None:
        super().setUp()
        self.file = HERE / "docker/compose.yaml"
        self.compose = yaml.safe_load(self.file.read_text())
        self.services: dict[str, Any] = self.compose["services"]

    def test_what_it_names_is_there(self) -> None:
        for name, service in self.services.items():
            for build in filter(None, [service.get("build")]):
                context = (self.file.parent / build["context"]).resolve()
                self.assertEqual(context, ROOT)
                self.assertTrue((context / build["dockerfile"]).exists(), name)
            for volume in service.get("volumes", []):
                self.assertIn(volume.split(":")[0], self.compose["volumes"])
            for other in service.get("depends_on", {}):
                self.assertIn("healthcheck", self.services[other])
        self.assertEqual(unknown_flags(self.services["server"]["command"]), [])
        # The server's port is open to this machine alone.
        self.assertEqual(self.services["server"]["ports"], ["127.0.0.1:7117:7117"])

    def test_its_commands_work_together(self) -> None:
        redis, port = free_port(), free_port()
        at = {"redis:6379": f"127.0.0.1:{redis}", "server:7117": f"127.0.0.1:{port}", "127.0.0.1:7117": f"127.0.0.1:{port}",
              "0.0.0.0:7117": f"127.0.0.1:{port}"}  # fmt: skip

        def here(text: str) -> str:
            return re.sub("|".join(map(re.escape, at)), lambda found: at[found[0]], text).replace("$$", "$")

        def environment(name: str) -> dict[str, str]:
            own = {key: here(value) for key, value in self.services[name].get("environment", {}).items()}
            return clean_environment(
                PATH=f"{self.folder}:{os.environ['PATH']}", TENURE_KEY_FILE=str(self.folder / "key"), **own
            )

        (self.folder / "tenure").symlink_to(BIN)
        arguments = ["--port", str(redis), "--bind", "127.0.0.1", "--dir", str(self.folder)]
        self.start([*self.services["redis"]["command"], *arguments], clean_environment())
        kind, program, *words = self.services["redis"]["healthcheck"]["test"]
        self.assertEqual(kind, "CMD")
        ping = [program, "-p", str(redis), *words]
        # The server starts when Redis is healthy.
        self.until(lambda: subprocess.run(ping, capture_output=True).stdout == b"PONG\n", "Redis is healthy")
        self.start([BIN, *map(here, self.services["server"]["command"])], environment("server"))
        kind, *check = self.services["server"]["healthcheck"]["test"]
        self.assertEqual(kind, "CMD")
        command = [*map(here, check)]

        def is_healthy() -> bool:
            done = subprocess.run(command, env=environment("server"), capture_output=True, timeout=PATIENCE)
            return done.returncode == 0

        self.until(is_healthy, "the server is healthy")
        demo = self.services["demo"]
        for _ in range(demo["deploy"]["replicas"]):
            # In the demo, each line takes a second.
            line = here(demo["command"][0]).replace("sleep 1", "sleep 0.1")
            self.start([*demo["entrypoint"], line], environment("demo"))

        def fences() -> list[int]:
            return [int(found) for found in re.findall(r"^fence (\d+)$", self.logs(), re.MULTILINE)]

        self.until(lambda: len(fences()) >= 6, "they take turns")
        self.assertEqual(len(set(fences())), len(fences()), "no two had the same grant")


class Metrics(Case):
    """The board and the alerts ask for what a server really exports: metric, labels, and the values that are selected."""

    def told(self) -> dict[str, dict[str, set[str]]]:
        port, down = free_port(), free_port()
        tokens = self.folder / "tokens"
        keys = ["--key-file", str(self.folder / "key")]
        command = [BIN, "token", "new", "x", "--role", "lock,read", "--tokens-file", str(tokens)]
        token = subprocess.run(command, capture_output=True, text=True, check=True, env=clean_environment())
        head = {"authorization": f"Bearer {token.stdout.split()[-1]}", "content-type": "application/json"}
        memory = [BIN, "serve", "--memory", "--tokens-file", str(tokens), *keys]
        self.start([*memory, "--fresh", "--listen", f"127.0.0.1:{port}"], clean_environment())
        # It grants nothing for a minute after its start: 503.
        self.start([*memory, "--listen", f"127.0.0.1:{down}"], clean_environment())
        text = ""
        for each in (port, down):
            url = f"http://127.0.0.1:{each}"
            self.until(lambda: self.answers(f"{url}/healthz"), "it answers")

            def ask(path: str, body: Any, headers: dict[str, str] = head) -> Any:
                request = urllib.request.Request(url + path, json.dumps(body).encode(), headers)
                try:
                    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                        return json.loads(answer.read() or b"null")
                except urllib.error.HTTPError as error:
                    error.close()
                    return {}

            hold = ask("/v1/holds", {"name": "shop:1", "confirm": False})
            ask("/v1/holds", {"name": "shop:1"})
            ask("/v1/holds", {"name": "shop:1"}, {"content-type": "application/json"})
            for claim in (hold.get("claim", "1" * 32), "2" * 32):
                ask("/v1/holds/renew", {"name": "shop:1", "claim": claim, "fence": hold.get("fence", 1)})
            request = urllib.request.Request(f"{url}/metrics", headers=head)
            with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                text += answer.read().decode()
        told: dict[str, dict[str, set[str]]] = {}
        for name, labels in re.findall(r"^([a-z_]+)(?:\{(.*)\})? \S+$", text, re.MULTILINE):
            for label, value in re.findall(r'([a-z_]+)="([^"]*)"', labels):
                told.setdefault(name, {}).setdefault(label, set()).add(value)
            told.setdefault(name, {})
        return told

    def test_the_board_and_the_alerts_ask_for_what_is_reported(self) -> None:
        told = self.told()
        rules = yaml.safe_load((HERE / "prometheus/tenure-server.rules.yml").read_text())["groups"][0]["rules"]
        board = json.loads((HERE / "grafana/tenure-server.json").read_text())
        queries = [target["expr"] for panel in board["panels"] for target in panel.get("targets", [])]
        self.assertGreater(len(queries), 8)
        queries += [rule["expr"] for rule in rules]
        # Prometheus adds these itself.
        own = {"instance", "job", "le"}
        for query in queries:
            asked = re.findall(r"\b((?:tenure|http)_[a-z_]+)(?:\{([^}]*)\})?", re.sub(r"by \([^)]*\)", "", query))
            asked = [(name, labels) for name, labels in asked if not name.startswith("http_route")]
            self.assertGreater(len(asked), 0, query)
            for name, labels in asked:
                self.assertIn(name, told, query)
                for label, kind, value in re.findall(r'([a-z_]+)(=~|=)"([^"]*)"', labels):
                    if label in own:
                        continue
                    self.assertIn(label, told[name], query)
                    values = told[name][label]
                    fits = re.compile(value if kind == "=~" else re.escape(value)).fullmatch
                    self.assertTrue(any(map(fits, values)), f"{query}: {label} is {values}")
            for grouped in re.findall(r"by \(([^)]*)\)", query):
                labels_told = set().union(*(told[name] for name, _ in asked))
                self.assertLessEqual({word.strip() for word in grouped.split(",")}, labels_told | own, query)

    def test_each_alert_has_a_section(self) -> None:
        rules = yaml.safe_load((HERE / "prometheus/tenure-server.rules.yml").read_text())["groups"][0]["rules"]
        page = (ROOT / "docs/alerts-server.md").read_text()
        names = [rule["alert"] for rule in rules]
        self.assertEqual(re.findall(r"^## (.*)$", page, re.MULTILINE), names)
        for rule in rules:
            self.assertEqual(rule["annotations"]["runbook"], f"docs/alerts-server.md#{rule['alert'].lower()}")
            self.assertIn(rule["labels"]["severity"], {"page", "warn"})


if __name__ == "__main__":
    unittest.main()
