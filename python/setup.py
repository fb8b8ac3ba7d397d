# SPDX-License-Identifier: Apache-2.0
"""Builds the native part with CMake, in the build directory of the repository (WEFT_BUILD_DIR names another)."""

import os
import pathlib
import shutil
import subprocess
import sys

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]


class CMakeBuild(build_ext):
    def build_extension(self, ext):
        build = pathlib.Path(os.environ.get("WEFT_BUILD_DIR", REPOSITORY / "build" / "release"))
        subprocess.run(["cmake", "--preset", "release", "-B", build, f"-DPython_EXECUTABLE={sys.executable}",
                        "--log-level=WARNING"], cwd=REPOSITORY, check=True)
        jobs = os.environ.get("WEFT_JOBS", str(os.cpu_count() or 1))
        subprocess.run(["cmake", "--build", build, "--target", "weft_python", "--parallel", jobs], check=True)
        place = pathlib.Path(self.get_ext_fullpath(ext.name))
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(build / "python" / "weft" / place.name, place)


setup(ext_modules=[Extension("weft._weft", sources=[])], cmdclass={"build_ext": CMakeBuild})
