"""Who executes commands as bodies: nobody, or a runner that is loaded when the first command asks for it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Final, Protocol, final

from ...core.boundary import Declaration
from ...core.command import Command
from ...core.node import digest_of
from ...core.step_sandbox import LimitExceeded, WorkspaceError
from .ended import Ended
from .host import Seed
from .options import Options

if TYPE_CHECKING:
    from .command.runner import CommandRunner

__all__ = ["Commands", "LazyCommands", "NoCommands"]


class Commands(Protocol):
    @property
    def policy_digest(self) -> str:
        """The digest of the rules by which commands are executed; of none, where they are not."""
        ...

    def run(
        self, seed: Seed, declaration: Declaration, command: Command, has: Callable[[str], bool]
    ) -> AbstractAsyncContextManager[Ended | LimitExceeded | WorkspaceError, bool | None]:
        """Execute a command on a seed. What it left can be read within the context."""
        ...


@final
class NoCommands:
    """Refuses every command."""

    @property
    def policy_digest(self) -> str:
        return _NO_COMMANDS

    @asynccontextmanager
    async def run(
        self, seed: Seed, declaration: Declaration, command: Command, has: Callable[[str], bool]
    ) -> AsyncGenerator[Ended | LimitExceeded | WorkspaceError]:
        message = "commands need a folder and bubblewrap; this sandbox has neither: give it a Python function"
        yield WorkspaceError("unsupported_boundary", message)


@final
class LazyCommands:
    """Executes commands under bubblewrap. Sandboxes that never do so need not wait for the modules that it takes."""

    def __init__(self, options: Options, bwrap: str | None, toolchain: Sequence[str], network: bool) -> None:
        self._options = options
        self._bwrap = bwrap
        self._toolchain = tuple(toolchain)
        self._network = network
        self._runner: CommandRunner | None = None

    @property
    def policy_digest(self) -> str:
        rules = [self._options.policy_digest, list(self._toolchain), self._network]
        return digest_of(json.dumps(rules).encode())

    @asynccontextmanager
    async def run(
        self, seed: Seed, declaration: Declaration, command: Command, has: Callable[[str], bool]
    ) -> AsyncGenerator[Ended | LimitExceeded | WorkspaceError]:
        await asyncio.to_thread(_load)
        from .command_bodies import IsolatedCommands

        commands = IsolatedCommands(self._loaded(), self._options)
        async with commands.run(seed, declaration, command, has) as ended:
            yield ended

    async def close(self) -> None:
        """End the processes of the runner, if there are any."""
        if self._runner is not None:
            await self._runner.close()

    def _loaded(self) -> CommandRunner:
        from .command.policy import Policy
        from .command.runner import CommandRunner

        if self._runner is None:
            # The folder itself may lie in what is shown, e.g. in /usr/src.
            policy = Policy(self._toolchain, self._network, hidden=self._options.roots)
            self._runner = CommandRunner(bwrap=self._bwrap, policy=policy)
        return self._runner


_NO_COMMANDS: Final = digest_of(b"no commands")


def _load() -> None:
    """Beside the loop, so that nobody else waits for it."""
    from . import command_bodies

    _ = command_bodies
