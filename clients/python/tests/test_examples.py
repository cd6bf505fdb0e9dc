"""The examples, as a user runs them."""

from __future__ import annotations

import http.client
import os
import pathlib
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading

from .harness import PATIENCE, ROOT, ServerCase, free_port, until


class Examples(ServerCase):
    def run_example(self, name: str, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, str(ROOT / "examples" / name), *arguments],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "TENURE_URL": self.server.url, **environment},
        )  # fmt: skip
        self.addCleanup(self.end, process)
        return process

    def end(self, process: subprocess.Popen[str]) -> None:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()

    def read_until(self, process: subprocess.Popen[str], words: str) -> list[str]:
        """Reads lines up to one that has these words. If none comes, the process is ended, and the test fails."""
        assert process.stdout is not None
        timer = threading.Timer(PATIENCE, process.kill)
        timer.start()
        lines: list[str] = []
        try:
            for line in process.stdout:
                lines.append(line.strip())
                if words in line:
                    return lines
        finally:
            timer.cancel()
        raise AssertionError(f"{words!r} was not said: {lines}")

    def test_a_seat_is_booked_once(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = str(pathlib.Path(folder, "bookings"))
            guests = [self.run_example("booking.py", "12", f"guest-{number}", BOOKINGS=path) for number in range(4)]
            said = [guest.communicate(timeout=PATIENCE)[0].strip() for guest in guests]
            with sqlite3.connect(path) as database:
                ((seat, guest, fence),) = database.execute("SELECT seat, guest, fence FROM seats").fetchall()
            self.assertEqual(sorted(said), sorted([f"12 is booked for {guest}"] + [f"12 is taken by {guest}"] * 3))
            self.assertGreater(fence, 0)

    def test_a_webhook_is_handled_once(self) -> None:
        ports = [free_port(), free_port()]
        servers = [self.run_example("webhook.py", str(port)) for port in ports]
        for server in servers:
            self.read_until(server, "listening")
        answers: list[tuple[int, str]] = []

        def deliver(port: int, body: str = "{}") -> None:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
            connection.request("POST", "/", body, {"Webhook-Id": "42"})
            reply = connection.getresponse()
            answers.append((reply.status, reply.read().decode()))
            connection.close()

        threads = [threading.Thread(target=deliver, args=(port,)) for port in ports * 3]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
        self.assertEqual(len(set(answers)), 1, answers)
        self.assertEqual((len(answers), answers[0][0]), (6, 200))
        deliver(ports[0], '{"another": "body"}')
        self.assertEqual(answers[-1][0], 422)
        for server in servers:
            server.kill()
        said = "".join(server.communicate()[0] for server in servers)
        self.assertEqual(said.count("charging"), 1)

    def test_one_of_many_hosts_runs_the_job_and_another_goes_on(self) -> None:
        first = self.run_example("cron_leader.py", "0.1")
        self.read_until(first, "job of term")
        second = self.run_example("cron_leader.py", "0.1")
        until(lambda: self.waiting("cron", "election") == 1, "the second is a candidate")
        first.send_signal(signal.SIGTERM)
        self.read_until(second, "job of term")
        self.assertEqual(first.wait(PATIENCE), 0)
        third = self.run_example("cron_leader.py", "0.1")
        until(lambda: self.waiting("cron", "election") == 1, "the third is a candidate")
        second.kill()
        self.read_until(third, "job of term")

    def test_a_worker_stops_before_the_next_one_starts(self) -> None:
        first = self.run_example("worker.py")
        term = self.read_until(first, "works")[-1]
        second = self.run_example("worker.py")
        until(lambda: self.waiting("reports", "election") == 1, "the second is a candidate")
        first.send_signal(signal.SIGTERM)
        lines = self.read_until(first, "done")
        self.assertIn("has stopped" + term[len("works") :], lines)
        self.assertEqual(first.wait(PATIENCE), 0)
        self.read_until(second, "works")
