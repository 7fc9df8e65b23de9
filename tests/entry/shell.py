"""The command line as tests use it: in this process for what it says, in one of its own for how it ends."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import stepwell
from stepwell.layers.entry.cli import main
from stepwell.layers.entry.cli.modules import load_module

SHOP = str(Path(__file__).with_name("shop.py"))


@dataclass(frozen=True)
class Said:
    """What a command said and how it ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def error(self) -> Any:
        return json.loads(self.err)


class Shell:
    """Commands in a folder of their own."""

    def __init__(self, folder: Path, captured: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self._captured = captured

    def __call__(self, *words: str) -> Said:
        """In this process."""
        path = list(sys.path)
        with contextlib.chdir(self.folder):
            try:
                code = main(words)
            finally:
                sys.path[:] = path
        out, err = self._captured.readouterr()
        return Said(code, out, err)

    def begin(self, *words: str, **environment: str) -> subprocess.Popen[str]:
        """In a process of its own, whose pipes the caller reads."""
        return self._python("-m", "stepwell", *words, **environment)

    def run(self, *words: str, **environment: str) -> Said:
        """In a process of its own, to its end."""
        return self.python("-m", "stepwell", *words, **environment)

    def python(self, *words: str, **environment: str) -> Said:
        """Any program, to its end."""
        with self._python(*words, **environment) as process:
            out, err = process.communicate(timeout=60)
        return Said(process.returncode, out, err)

    def run_unprivileged(self, *words: str) -> Said:
        """In a process for which permissions count, also where root runs the tests."""
        prefix = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"] if os.geteuid() == 0 else []
        with self._process([*prefix, sys.executable, "-m", "stepwell", *words], {}) as process:
            out, err = process.communicate(timeout=60)
        return Said(process.returncode, out, err)

    def on_terminal(self, *words: str, **environment: str) -> str:
        """What somebody at a terminal sees of it."""
        ours, theirs = pty.openpty()
        process = subprocess.Popen(
            [sys.executable, "-m", "stepwell", *words],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TERM": "xterm", **environment},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
        )
        os.close(theirs)
        seen = b""
        with process, open(ours, "rb", buffering=0) as screen, contextlib.suppress(OSError):
            # An error is how Linux says that nobody writes to the terminal any more.
            while part := screen.read(4096):
                seen += part
        return seen.decode()

    def _python(self, *words: str, **environment: str) -> subprocess.Popen[str]:
        return self._process([sys.executable, *words], environment)

    def _process(self, words: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[str]:
        return subprocess.Popen(
            words,
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def start(self, workflow: str, *arguments: object, id: str) -> None:
        """Start a run that nobody drives yet."""
        started = vars(load_module(SHOP))[workflow]
        with stepwell.open_blocking(self.folder / "stepwell.db", drive=False) as portal:
            portal.call(lambda: portal.app.start(started, *arguments, id=id)).unwrap()

    def marks(self) -> list[str]:
        """What steps have left outside, in order."""
        file = self.folder / "marks.txt"
        return file.read_text().split() if file.exists() else []


@pytest.fixture
def shell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(tmp_path, capsys)
