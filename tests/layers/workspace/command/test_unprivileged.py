"""All of this for an ordinary user: the tests of this folder once more, as uid 65534."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from .world import PYTHON, must_be_root, needs_bwrap

pytestmark = [needs_bwrap, must_be_root]

HERE = Path(__file__).parent
TOP = HERE.parents[3]
NOBODY = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]

SKIPPED_AT_MOST = 8
"""Tests that need root, or what an ordinary user may not have. More of them would mean that nothing was tried."""


def test_b_01_t_03_everything_holds_for_an_ordinary_user_too(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The interpreter of the system has to be of the same version, since the packages are those of this one."""
    packages = sysconfig.get_path("purelib")
    places = os.pathsep.join((str(TOP / ".dev"), packages))
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": places,
        "PYTHONDONTWRITEBYTECODE": "1",
        "HOME": "/nonexistent",
    }
    command = [*NOBODY, PYTHON, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(HERE)]
    if shutil.which("setpriv") is None or not can_import(environment):
        pytest.skip("no other user can execute these tests: setpriv, or an interpreter that it may execute, is missing")
    done = subprocess.run(command, cwd=TOP, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-8_000:] + done.stderr[-2_000:]
    assert " passed" in done.stdout
    assert done.stdout.count("SKIPPED") <= SKIPPED_AT_MOST, done.stdout[-4_000:]


def can_import(environment: dict[str, str]) -> bool:
    version = f"import sys, pytest, pydantic_core, stepwell; sys.exit(sys.version_info[:2] != {sys.version_info[:2]})"
    done = subprocess.run([*NOBODY, PYTHON, "-c", version], env=environment, capture_output=True, check=False, cwd=TOP)
    return done.returncode == 0
