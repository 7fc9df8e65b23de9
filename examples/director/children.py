"""Processes that the director starts, and that end with it, even where it is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self, final

GRACE = 5.0
"""Seconds that a process has between being asked to end and being killed."""


@final
class Child:
    """One process. What it prints goes to a file, and the terminal's Ctrl-C reaches only the director."""

    def __init__(self, name: str, argv: Sequence[str], log: Path, environment: Mapping[str, str]) -> None:
        self.name = name
        self.log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "director.tether", str(os.getpid()), *argv],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, **environment},
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def ended(self) -> str | None:
        """None while it runs; otherwise how it ended, and the last lines that it printed."""
        code = self._process.poll()
        if code is None:
            return None
        last = "\n".join(self.log.read_text(errors="replace").splitlines()[-8:])
        return f"the {self.name} {self.pid} ended by itself, with code {code}; {self.log} ends with:\n{last}"

    def kill(self) -> bool:
        """Kill it with SIGKILL and wait until it is gone; whether it was this that ended it."""
        self._process.kill()
        return self._process.wait(GRACE) == -signal.SIGKILL

    def stop(self) -> None:
        """Ask it to end; kill it if it does not."""
        self._process.terminate()
        try:
            self._process.wait(GRACE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(GRACE)


@final
class Children:
    """The processes that run now. Leaving the block ends them all, whatever happened."""

    def __init__(self, logs: Path, environment: Mapping[str, str]) -> None:
        self._logs = logs
        self._environment = environment
        self._running: list[Child] = []

    def start(self, name: str, *argv: str) -> Child:
        """Start a process; what it prints is appended to `name`.log."""
        child = Child(name, argv, self._logs / f"{name}.log", self._environment)
        self._running.append(child)
        return child

    def kill(self, child: Child) -> bool:
        """Kill one of them; see `Child.kill`."""
        self._running.remove(child)
        return child.kill()

    def ended(self) -> str | None:
        """How one of them ended that should not have; None while all run."""
        return next((how for child in self._running if (how := child.ended())), None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        while self._running:
            self._running.pop().stop()
