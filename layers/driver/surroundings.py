"""What the steps of an engine run in, as their cache keys have it: an environment, and the program of a command."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal, final

from ...core.canonical_json import NotCanonical
from ...core.command import Command
from ...core.environment import Environment, environment_digest
from ...core.outcome import Success
from ..environment import find_tool, read_environment, tool_digest
from ..workspace.calls import SystemCalls
from ..workspace.command.toolchain import DEFAULT_PATH
from ..workspace.memo import DigestMemo

__all__ = ["Surrounding", "Surroundings"]


@final
@dataclass(frozen=True, slots=True)
class Surrounding:
    """The digest of what a step runs in, None if that is not known, and that of its program, if it has one."""

    environment: str | None
    tool: str | None = None


_UNKNOWN: Final = Surrounding(None)


@final
class Surroundings:
    """`named` is what the application says that its steps run in; None says that it is not known.

    "process" is this one: the interpreter, the machine, and what is installed, read when it is first asked for.
    """

    __slots__ = ("_digest", "_memo", "_named")

    def __init__(self, named: Environment | Literal["process"] | None, now_ms: Callable[[], int]) -> None:
        self._named = named
        self._memo = DigestMemo(SystemCalls(), now_ms)
        self._digest: str | None = None

    def known(self, body: object) -> Surrounding | None:
        """The same, if nothing has to be read for it; otherwise None."""
        if self._named is None:
            return _UNKNOWN
        if self._digest is None or (self._digest and isinstance(body, Command)):
            return None
        return Surrounding(self._digest or None)

    async def of(self, body: object) -> Surrounding:
        """What a step runs in; of a command the program too. Where that cannot be read it is not known."""
        if self._named is not None and self._digest is None:
            self._digest = await asyncio.to_thread(self._read)
        if (known := self.known(body)) is not None:
            return known
        assert self._digest is not None
        assert isinstance(body, Command)
        return await asyncio.to_thread(self._with_tool, self._digest, body)

    def _read(self) -> str:
        environment = self._named if isinstance(self._named, Environment) else read_environment()
        try:
            return environment_digest(environment)
        except NotCanonical:
            return ""

    def _with_tool(self, digest: str, command: Command) -> Surrounding:
        program = command.argv[0]
        if "/" in program and not program.startswith("/"):
            return Surrounding(digest)  # in the workspace, where it is read as any file is
        path = find_tool(program, command.env.get("PATH", DEFAULT_PATH))
        if path is None:
            return Surrounding(digest)  # the command fails, and nothing is kept of it
        read = tool_digest(path, self._memo.digest)
        return Surrounding(digest, read.unwrap()) if isinstance(read, Success) else _UNKNOWN
