# SPDX-License-Identifier: Apache-2.0
"""pip makes a wheel of the module, and what is in it can be imported from an empty environment."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import zipfile

TOP = pathlib.Path(__file__).resolve().parents[2]


class Wheel(unittest.TestCase):
    def test_wheel_holds_the_module_its_stubs_and_its_types(self):
        build = pathlib.Path(os.environ["PYTHONPATH"].split(":")[0]).resolve().parent
        with tempfile.TemporaryDirectory(prefix="weft-wheel-") as name:
            work = pathlib.Path(name)
            source = work / "python"
            # In the sources pip would leave traces of its own.
            subprocess.run(["cp", "-r", TOP / "python", source], check=True, timeout=60)
            (source / "setup.py").write_text(
                (TOP / "python" / "setup.py").read_text().replace(
                    "pathlib.Path(__file__).resolve().parents[1]", f'pathlib.Path("{TOP}")'))
            environment = dict(os.environ, WEFT_BUILD_DIR=str(build), HOME=str(work))
            environment.pop("PYTHONPATH")
            done = subprocess.run(
                [sys.executable, "-m", "pip", "wheel", "--no-build-isolation", "--no-deps", "--no-index",
                 "--wheel-dir", work / "wheels", source],
                env=environment, capture_output=True, text=True, timeout=280, check=False)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            wheel, = (work / "wheels").glob("weft-*.whl")
            with zipfile.ZipFile(wheel) as archive:
                names = set(archive.namelist())
                archive.extractall(work / "site")
            self.assertLessEqual({"weft/__init__.py", "weft/_weft.pyi", "weft/errors.py", "weft/py.typed"}, names)
            said = subprocess.run(
                [sys.executable, "-I", "-c",
                 f"import sys; sys.path.insert(0, {str(work / 'site')!r}); import weft; print(weft.Publisher.__name__)"],
                capture_output=True, text=True, timeout=60, check=False)
            self.assertEqual(said.stdout.strip(), "Publisher", said.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
