"""The package of the Python client, as it would be published: built, inspected, and imported from the wheel."""

from __future__ import annotations

import pathlib
import subprocess
import sys
import tarfile
import tempfile
import unittest
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[1]


class Package(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="tenure-package-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        command = [sys.executable, "-m", "hatchling", "build", "-d", str(self.folder)]
        built = subprocess.run(command, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.assertEqual(built.returncode, 0, built.stdout)

    def test_the_wheel_has_the_client_with_its_types_and_its_licence(self) -> None:
        (wheel,) = self.folder.glob("*.whl")
        with zipfile.ZipFile(wheel) as files:
            names = set(files.namelist())
            source = files.read("tenure_client/__init__.py")
            metadata = next(files.read(name).decode() for name in names if name.endswith("/METADATA"))
        self.assertEqual({name for name in names if ".dist-info/" not in name},
                         {"tenure_client/__init__.py", "tenure_client/py.typed"})  # fmt: skip
        self.assertTrue(any(name.endswith("/licenses/LICENSE") for name in names), names)
        self.assertEqual(source, (ROOT / "src/tenure_client/__init__.py").read_bytes())
        for line in ("Name: tenure-client", "License-Expression: MIT", "Requires-Python: >=3.10", "Typing :: Typed"):
            self.assertIn(line, metadata)
        self.assertNotIn("Requires-Dist", metadata, "it has no dependencies")
        # Isolated: nothing but the wheel and the standard library.
        program = f"import sys; sys.path.insert(0, {str(wheel)!r}); import tenure_client; print(tenure_client.__version__)"
        done = subprocess.run([sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn(f"Version: {done.stdout.strip()}\n", metadata)

    def test_the_source_package_has_its_tests_and_nothing_of_the_machine(self) -> None:
        (package,) = self.folder.glob("*.tar.gz")
        with tarfile.open(package) as files:
            names = {name.split("/", 1)[1] for name in files.getnames()}
        for name in ("pyproject.toml", "README.md", "LICENSE", "tests/test_protocol.py", "examples/webhook.py"):
            self.assertIn(name, names)
        self.assertEqual([name for name in names if "__pycache__" in name or name.startswith("tools/")], [])


if __name__ == "__main__":
    unittest.main()
