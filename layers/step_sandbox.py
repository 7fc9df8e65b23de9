"""The step sandbox over a folder, over files in memory, and its absence."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from importlib import import_module
from os import PathLike
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, final

from ..core.outcome import Failure, Outcome, Success
from ..core.workspace_limits import LIMITS, WorkspaceLimits
from ..services.artifacts import Artifacts
from ..services.step_sandbox import StepSandbox, WorkspaceRefusal, WorkspaceTransaction
from .layer import Layer, provides

if TYPE_CHECKING:
    from ..core.step_sandbox import UnsupportedBoundary
    from .workspace.memory_host import MemoryFiles
    from .workspace.settlement import Settled, settle

__all__ = ["MemoryFiles", "Settled", "layer", "layer_noop", "layer_test", "make", "settle"]

_LATER: Final = {"MemoryFiles": "memory_host", "Settled": "settlement", "settle": "settlement"}

if not TYPE_CHECKING:  # most programs have no sandbox, and none of them waits for its modules

    def __getattr__(name):
        if name not in _LATER:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f".workspace.{_LATER[name]}", __package__), name)

    def __dir__():
        return sorted({*globals(), *_LATER})


_NO_FILES: Final[Mapping[str, bytes | str]] = MappingProxyType({})

Opened: TypeAlias = "Outcome[WorkspaceTransaction, UnsupportedBoundary]"


@final
class _Sandbox:
    """A sandbox around any source of transactions."""

    __slots__ = ("_open",)

    def __init__(self, open_: Callable[[], Awaitable[Opened]]) -> None:
        self._open = open_

    async def open(self) -> Opened:
        return await self._open()


def make(transaction: Callable[[], Awaitable[Opened]]) -> StepSandbox:
    """A sandbox whose transactions are those that `transaction` gives."""
    return _Sandbox(transaction)


# --- layers -----------------------------------------------------------------


def layer(
    root: str | PathLike[str],
    *,
    limits: WorkspaceLimits = LIMITS,
    portable_names: bool = True,
    strict_probes: bool = False,
    durability: Literal["full", "process"] = "full",
    toolchain: Sequence[str] = (),
    network: bool = False,
    bwrap: str | PathLike[str] | None = None,
    tripwire: bool = True,
) -> Layer[StepSandbox, Artifacts]:
    """The sandbox over a folder that exists. Building fails with a `WorkspaceRefusal` whose error says why.

    "host_unavailable" names the call that a crash-safe copy-back needs and the folder's file system does not have;
    "recovery_required" a copy-back of before that is not understood. What an interrupted process left unfinished is
    ended before anything else.

    Commands are executed under bubblewrap (`bwrap`, or what `PATH` finds). They see copies of what is declared, `/usr`,
    the prefix of the program that is executed, and `toolchain`, further absolute folders that belong to the environment
    and not to a step; no network unless `network`. Where that cannot be proved they are refused, and Python bodies are
    still executed. With `strict_probes` looking for a file that is nowhere is an undeclared read too.

    Python bodies are watched by an audit hook of the interpreter, which a process keeps until it ends; on Python 3.11,
    where a thread that starts is no event, the functions that start one are wrapped. Without `tripwire` there is
    neither, and the evidence of Python bodies is "cooperative".

    With `durability="process"` results survive the end of the process, but not the loss of power.
    """

    roots = (os.path.realpath(root), os.path.abspath(root))

    @provides
    async def recipe(artifacts: Artifacts) -> AsyncIterator[StepSandbox]:
        if not hasattr(os, "O_DIRECTORY"):  # as on Windows, where the modules below cannot even be loaded
            from ..core.step_sandbox import WorkspaceError

            message = (
                f"a sandbox over a folder needs Linux, and this is {sys.platform}; layer_test keeps files in memory"
            )
            raise WorkspaceRefusal(WorkspaceError("host_unavailable", message))
        from .workspace.bodies import Bodies
        from .workspace.commands import LazyCommands
        from .workspace.file_host import FileHost, HostOptions
        from .workspace.options import Options
        from .workspace.transaction import Transaction

        host_options = HostOptions(durability=durability, portable_names=portable_names)
        opened = await asyncio.to_thread(FileHost.open, root, host_options)
        if isinstance(opened, Failure):
            raise WorkspaceRefusal(opened.failure())
        host = opened.unwrap()
        options = Options(limits, portable_names, strict_probes, roots, tripwire)
        commands = LazyCommands(options, None if bwrap is None else os.fspath(bwrap), toolchain, network)
        bodies = Bodies(options, commands)

        async def transaction() -> Opened:
            return Success(Transaction(host, artifacts, bodies, options))

        try:
            yield make(transaction)
        finally:
            bodies.close()
            await commands.close()
            host.close()

    return recipe


def layer_test(
    files: Mapping[str, bytes | str] = _NO_FILES,
    *,
    limits: WorkspaceLimits = LIMITS,
    portable_names: bool = True,
) -> Layer[StepSandbox, Artifacts]:
    """A sandbox over files in memory; `MemoryFiles` can be looked at, and changed, while it is in use.

    Python bodies keep to the rules of the sandbox over a folder. There are no commands: they are refused.
    """

    @provides
    def recipe(artifacts: Artifacts) -> Iterator[StepSandbox]:
        from .workspace.bodies import Bodies
        from .workspace.commands import NoCommands
        from .workspace.memory_host import MemoryFiles, MemoryHost
        from .workspace.options import Options
        from .workspace.transaction import Transaction

        host = MemoryHost(files if isinstance(files, MemoryFiles) else MemoryFiles(files), portable=portable_names)
        options = Options(limits, portable_names)
        bodies = Bodies(options, NoCommands())

        async def transaction() -> Opened:
            return Success(Transaction(host, artifacts, bodies, options))

        try:
            yield make(transaction)
        finally:
            bodies.close()

    return recipe


def layer_noop() -> Layer[StepSandbox, StepSandbox]:
    """No sandbox: `open` is refused, always."""

    async def refused() -> Opened:
        from ..core.step_sandbox import UnsupportedBoundary

        message = (
            "this application has no step sandbox: open it with workspace= (--workspace on the command line), or give "
            "it step_sandbox.layer(root)"
        )
        return Failure(UnsupportedBoundary(message=message))

    @provides
    def recipe() -> Iterator[StepSandbox]:
        yield make(refused)

    return recipe
