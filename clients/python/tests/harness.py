"""Real servers, a proxy that cuts connections, and child processes that use the client."""

from __future__ import annotations

import http.client
import os
import pathlib
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from collections.abc import Callable
from typing import Any

from tenure_client import Tenure, _ask, _query

ROOT = pathlib.Path(__file__).resolve().parents[1]
# A busy machine may need this long for what takes milliseconds; no test passes sooner because of it.
PATIENCE = 30.0


def tenure_command() -> str:
    """The command to test with: TENURE_BIN, or what `cargo build` makes in this repository."""
    found = os.environ.get("TENURE_BIN") or str(ROOT.parents[1] / "target/debug/tenure")
    if not os.access(found, os.X_OK):
        raise RuntimeError(f"{found} is not there: build the command (`cargo build -p tenure-cli`) or set TENURE_BIN")
    return found


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def until(condition: Callable[[], Any], what: str) -> Any:
    give_up = time.monotonic() + PATIENCE
    while time.monotonic() < give_up:
        if found := condition():
            return found
        time.sleep(0.02)
    raise AssertionError(f"waited in vain until {what}")


class Server:
    """`tenure serve` over a file, on a port of its own."""

    def __init__(self, *more: str, unix: bool = False) -> None:
        self.folder = tempfile.mkdtemp(prefix="tenure-python-")
        self.port = free_port()
        self.socket = f"{self.folder}/socket" if unix else None
        self.url = f"http+unix:{self.socket}" if unix else f"http://127.0.0.1:{self.port}"
        self._more = more
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        """Starts it, unless it runs."""
        if self._process is not None:
            return
        listen = f"127.0.0.1:{self.port}" if self.socket is None else f"unix:{self.socket}"
        command = [tenure_command(), "serve", "--listen", listen, "--key-file", f"{self.folder}/key"]
        engine = [] if "--memory" in self._more else ["--url", f"file:{self.folder}/locks"]
        command += [*engine, *self._more]
        self._log = open(f"{self.folder}/log", "ab")
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log)
        until(self._answers, "the server answers")

    def _answers(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise AssertionError(f"the server ended: {pathlib.Path(self.folder, 'log').read_text()}")
        if self.socket is not None:
            try:
                with socket.socket(socket.AF_UNIX) as client:
                    client.connect(self.socket)
                return True
            except OSError:
                return False
        connection: http.client.HTTPConnection
        if "--tls-cert" in self._more:
            unchecked = ssl._create_unverified_context()
            connection = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=5, context=unchecked)
        else:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            connection.request("GET", "/healthz")
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()

    def end(self, how: signal.Signals = signal.SIGKILL) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            if how == signal.SIGTERM:
                # One that does not end by itself must not stay behind.
                try:
                    self._process.wait(PATIENCE)
                except subprocess.TimeoutExpired:
                    self._process.kill()
            self._process.wait()
            self._process = None
            self._log.close()

    def remove(self) -> None:
        self.end()
        shutil.rmtree(self.folder, ignore_errors=True)


class Proxy:
    """Stands between client and server, and can lose replies."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._sockets: list[socket.socket] = []
        self._lock = threading.Lock()
        # How many replies are swallowed, with the connection; how many were.
        self.cut_replies = 0
        self.cut = 0
        # Nothing passes in either direction, and nothing is closed.
        self.silent = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._to))
            except OSError:
                return
            with self._lock:
                self._sockets += [client, server]
            for source, target, is_reply in ((client, server, False), (server, client, True)):
                threading.Thread(target=self._pump, args=(source, target, is_reply), daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket, is_reply: bool) -> None:
        try:
            while data := source.recv(65536):
                if self.silent.is_set():
                    continue
                with self._lock:
                    cut = is_reply and self.cut_replies > 0
                    if cut:
                        self.cut_replies -= 1
                        self.cut += 1
                if cut:
                    break
                target.sendall(data)
        except OSError:
            pass
        for each in (source, target):
            try:
                each.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def close(self) -> None:
        self._listener.close()
        with self._lock:
            for each in self._sockets:
                each.close()


class Child:
    """A Python process that runs `source`, with `tenure` made. Its lines are read as they come."""

    PRELUDE = """
import os, sys, time, threading, signal, tenure_client
from tenure_client import *
def say(*words): print(*words, flush=True)
tenure = Tenure(sys.argv[1])
"""

    def __init__(self, url: str, source: str, *arguments: str) -> None:
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONWARNINGS": "error", "PYTHONDEVMODE": ""}
        self.process = subprocess.Popen(
            [sys.executable, "-c", self.PRELUDE + source, url, *arguments],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
        )  # fmt: skip

    def line(self) -> str:
        """The next line. A child that says nothing is ended, so that a test fails instead of hanging."""
        timer = threading.Timer(PATIENCE, self.process.kill)
        timer.start()
        try:
            assert self.process.stdout is not None
            return self.process.stdout.readline().strip()
        finally:
            timer.cancel()

    def rest(self) -> tuple[int, str, str]:
        """Waits for the end: exit code, what else it said, and its standard error."""
        try:
            out, errors = self.process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            out, errors = self.process.communicate()
        return self.process.returncode, out.strip(), errors.strip()

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


class ServerCase(unittest.TestCase):
    """Tests that share a server. Each uses names of its own, so that they do not depend on each other."""

    server: Server
    options: tuple[str, ...] = ()

    @classmethod
    def setUpClass(cls) -> None:
        cls.server = Server(*cls.options)
        cls.addClassCleanup(cls.server.remove)

    def setUp(self) -> None:
        self.tenure = self.client()
        # Another process, as far as the server can tell.
        self.other = self.client()
        self.name = self.id().rsplit(".", 1)[1]

    def client(self, url: str | None = None, **options: Any) -> Tenure:
        tenure = Tenure(url or self.server.url, **options)
        self.addCleanup(tenure.close)
        return tenure

    def proxy(self) -> Proxy:
        proxy = Proxy(self.server.port)
        self.addCleanup(proxy.close)
        return proxy

    def child(self, source: str, *arguments: str) -> Child:
        child = Child(self.server.url, source, *arguments)
        self.addCleanup(child.end)
        return child

    def is_free(self, name: str | None = None) -> bool:
        hold = self.other.mutex(name or self.name).try_acquire()
        if hold is not None:
            hold.release()
        return hold is not None

    def waiting(self, name: str | None = None, kind: str = "lock") -> int:
        """How many stand in line."""
        found = self.other._run(_ask(self.other, _query("/v1/name", name=name or self.name, kind=kind)))
        return len(found["waiters"]) if found is not None else 0
