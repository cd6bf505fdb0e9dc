"""The programs in the guide and the README are valid Python, and use only what exists."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import unittest

import tenure_client

from .harness import PATIENCE, ROOT, Server

PAGES = (ROOT / "README.md", ROOT.parents[1] / "docs/clients/python.md")


class Docs(unittest.TestCase):
    def test_the_programs_can_be_compiled_and_their_methods_exist(self) -> None:
        count = 0
        known = {name for kind in vars(tenure_client).values() for name in dir(kind)}
        for page in PAGES:
            for program in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL):
                count += 1
                tree = compile(
                    program,
                    str(page),
                    "exec",
                    flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT | ast.PyCF_ONLY_AST,
                    dont_inherit=True,
                )
                for node in ast.walk(tree):
                    if isinstance(node, ast.ImportFrom):
                        for name in node.names:
                            self.assertTrue(hasattr(tenure_client, name.name), name.name)
                    if isinstance(node, ast.Attribute):
                        self.assertIn(node.attr, known | {"fence", "lost", "run"})
        self.assertGreater(count, 5)

    def test_the_first_programs_of_the_guide_run_as_they_are_printed(self) -> None:
        server = Server()
        self.addCleanup(server.remove)
        programs = re.findall(r"```python\n(.*?)```", PAGES[1].read_text(), re.DOTALL)[:3]
        self.assertIn("asyncio.run", programs[-1])
        source = "".join(programs).replace("http://127.0.0.1:7117", server.url)
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
        # The second run would find whatever the first forgot to release.
        for _ in range(2):
            command = [sys.executable, "-c", source]
            ran = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=PATIENCE)
            self.assertRegex(ran.stdout, r"^(mine, with fence \d+\n){2}$", ran.stderr)
            self.assertEqual(ran.returncode, 0, ran.stderr)

    def test_the_guide_lists_every_error_and_every_option(self) -> None:
        guide = PAGES[1].read_text()
        for name, kind in vars(tenure_client).items():
            if (
                isinstance(kind, type)
                and issubclass(kind, tenure_client.TenureError)
                and kind is not tenure_client.TenureError
            ):
                self.assertIn(f"`{name}`", guide)
                self.assertIn(f"`{kind.code}`", guide)
        for option in tenure_client.Options.__annotations__:
            self.assertIn(f"`{option}`", guide)

    def test_everything_public_is_exported(self) -> None:
        public = {
            name
            for name, kind in vars(tenure_client).items()
            if isinstance(kind, type) and kind.__module__ == tenure_client.__name__ and not name.startswith("_")
        }
        self.assertEqual(public | {"Duration"}, set(tenure_client.__all__))
