"""What the steps of this process run in, as their cache keys have it."""

from __future__ import annotations

import platform
import shutil
import sys
from functools import cached_property
from hashlib import sha256
from importlib.metadata import distributions
from typing import final

from ...core.command import Command

__all__ = ["ProcessSurroundings"]


@final
class ProcessSurroundings:
    """This interpreter with its packages, on this system: read once, when it is first asked for."""

    def digest(self) -> str | None:
        return self._digest

    def tool(self, command: Command) -> str | None:
        return shutil.which(command.argv[0])

    @cached_property
    def _digest(self) -> str:
        packages = sorted(f"{found.name}=={found.version}" for found in distributions())
        parts = [sys.version, platform.system(), platform.machine(), *packages]
        return sha256("\0".join(parts).encode()).hexdigest()
