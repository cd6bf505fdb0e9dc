"""Tokens, TLS, and a server that forgets."""

from __future__ import annotations

import asyncio
import io
import logging
import shutil
import ssl
import subprocess
import tempfile
import time
import unittest

from tenure_client import AsyncTenure, Forbidden, Lost, Tenure, Unauthorized, Unavailable, _now

from .harness import PATIENCE, Server, ServerCase, tenure_command


class Tokens(unittest.TestCase):
    server: Server
    token: str

    @classmethod
    def setUpClass(cls) -> None:
        folder = tempfile.mkdtemp(prefix="tenure-python-tokens-")
        cls.addClassCleanup(shutil.rmtree, folder)
        command = [
            tenure_command(),
            "token",
            "new",
            "shop",
            "--role",
            "lock",
            "--prefix",
            "shop/",
            "--tokens-file",
            f"{folder}/tokens",
        ]
        made = subprocess.run(command, capture_output=True, text=True, check=True)
        cls.token = made.stdout.split()[-1]
        cls.server = Server("--tokens-file", f"{folder}/tokens")
        cls.addClassCleanup(cls.server.remove)

    def client(self, **options: str) -> Tenure:
        tenure = Tenure(self.server.url, **options)  # type: ignore[arg-type]
        self.addCleanup(tenure.close)
        return tenure

    def test_a_token_opens_the_names_that_it_is_for(self) -> None:
        with self.client(token=self.token).mutex("shop/1") as hold:
            hold.check()
        with self.assertRaises(Forbidden):
            self.client(token=self.token).mutex("bank/1").acquire()

    def test_without_a_known_token_nothing_is_given(self) -> None:
        for tenure in (self.client(), self.client(token="wrong")):
            with self.assertRaises(Unauthorized) as refused:
                tenure.mutex("shop/1").acquire()
            self.assertEqual(refused.exception.code, "unauthorized")

    def test_secrets_are_in_no_log_and_no_error(self) -> None:
        written = io.StringIO()
        handler = logging.StreamHandler(written)
        logging.getLogger("tenure_client").addHandler(handler)
        logging.getLogger("tenure_client").setLevel(logging.DEBUG)
        self.addCleanup(logging.getLogger("tenure_client").removeHandler, handler)
        tenure = self.client(token=self.token)
        hold = tenure.mutex("shop/2", ttl="1s", max_hold="200ms").acquire()
        self.assertTrue(hold.lost.wait(PATIENCE))
        with self.assertRaises(Lost) as lost:
            hold.release()
        everything = written.getvalue() + str(lost.exception) + repr(lost.exception) + repr(hold) + repr(tenure)
        self.assertIn("shop/2", written.getvalue())
        self.assertNotIn(self.token, everything)
        self.assertNotIn(hold._grant.claim, everything)


@unittest.skipUnless(shutil.which("openssl"), "needs openssl to make a certificate")
class Tls(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.mkdtemp(prefix="tenure-python-tls-")
        self.addCleanup(shutil.rmtree, folder)
        self.certificate = f"{folder}/cert.pem"
        command = (
            "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost"
            " -addext basicConstraints=critical,CA:FALSE -addext subjectAltName=IP:127.0.0.1,DNS:localhost"
        )
        subprocess.run(
            [*command.split(), "-keyout", f"{folder}/key.pem", "-out", self.certificate],
            check=True,
            capture_output=True,
        )
        self.server = Server("--tls-cert", self.certificate, "--tls-key", f"{folder}/key.pem")
        self.addCleanup(self.server.remove)

    def test_both_clients_speak_tls_and_check_the_certificate(self) -> None:
        url = f"https://127.0.0.1:{self.server.port}"
        trusted = ssl.create_default_context(cafile=self.certificate)
        with Tenure(url, ssl_context=trusted) as tenure:
            with tenure.mutex("x") as hold:
                hold.check()

        async def use() -> None:
            async with AsyncTenure(url, ssl_context=trusted) as tenure:
                for _ in range(2):
                    async with tenure.mutex("x") as hold:
                        hold.check()

        asyncio.run(use())
        with Tenure(url, patience="100ms") as tenure, self.assertRaisesRegex(Unavailable, "certificate"):
            tenure.mutex("x", wait=0).acquire()


class UnixSocket(unittest.TestCase):
    def test_both_clients_use_a_unix_socket(self) -> None:
        server = Server(unix=True)
        self.addCleanup(server.remove)
        with Tenure(server.url, patience="100ms") as tenure:
            with tenure.mutex("x", ttl="2s") as hold:
                self.assertIsNone(tenure.mutex("x").try_acquire())
                time.sleep(3)
                hold.check()

        async def use() -> None:
            async with AsyncTenure(server.url) as tenure:
                for _ in range(2):
                    async with tenure.mutex("x") as hold:
                        hold.check()

        asyncio.run(use())
        server.end()
        with Tenure(server.url, patience="100ms") as tenure, self.assertRaisesRegex(Unavailable, "http.unix:/"):
            tenure.mutex("x", wait=0).acquire()

    def test_a_url_without_a_path_is_refused(self) -> None:
        for wrong in ("http+unix:", "http+unix://host/path", "http+unix:relative", "unix:/path"):
            self.assertRaises(ValueError, Tenure, wrong)


class Forgetting(ServerCase):
    options = ("--memory", "--fresh")

    def test_a_server_that_forgot_its_holds_has_lost_them(self) -> None:
        hold = self.tenure.mutex(self.name, ttl="5s").acquire()
        self.server.end()
        self.server.start()
        self.assertTrue(hold.lost.wait(PATIENCE))
        self.assertGreater(hold._deadline, _now(), "it was told, and did not only run out")
        self.assertRaises(Lost, hold.check)
