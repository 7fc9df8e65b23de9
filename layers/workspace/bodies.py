"""Executing the body of a step: a Python callable with a scoped workspace, or a command in a sandbox of the system."""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import AsyncGenerator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from contextvars import copy_context
from dataclasses import dataclass
from typing import Final, cast, final

from ...core.boundary import Declaration
from ...core.command import Command
from ...core.evidence import Evidence
from ...core.measured import base_digest
from ...core.node import FileNode
from ...core.step_sandbox import LimitExceeded, WorkspaceError
from ...core.workspace_path import operation_path
from ...services.step_sandbox import Workspace, WorkspaceRefusal
from ..recorded import as_recorded, left_by_exit
from .commands import Commands
from .ended import Ended, Left
from .host import Seed
from .options import Options
from .scoped import ScopedWorkspace
from .session import Session
from .tripwire import Watch, unwatched, watch

__all__ = ["Bodies"]

THREADS: Final = 32
"""How many bodies that are not async may be executed at once; more wait for their turn."""

_MOST_THREADS: Final = 10_000
"""A body that was given up has no turn any more, but goes on for as long as it likes, and keeps its thread."""

_CLOSED: Final = WorkspaceError("closed", "the sandbox has been closed, and executes no more bodies")


@final
class Bodies:
    """Executes bodies in this process, and commands by a runner."""

    def __init__(self, options: Options, commands: Commands) -> None:
        self._options = options
        self._commands = commands
        self._threads = ThreadPoolExecutor(_MOST_THREADS, thread_name_prefix="stepwell-body")
        self._turns = asyncio.Semaphore(THREADS)
        self._is_closed = False

    def close(self) -> None:
        """Begin no more. A body on a thread cannot be stopped and is not waited for: its workspace refuses all."""
        self._is_closed = True
        self._threads.shutdown(wait=False, cancel_futures=True)

    def policy_digest(self, body: Command | Callable[[Workspace], object]) -> str:
        """The digest of the rules by which such a body is executed."""
        return self._commands.policy_digest if isinstance(body, Command) else self._options.policy_digest

    @asynccontextmanager
    async def run(
        self,
        seed: Seed,
        declaration: Declaration,
        body: Command | Callable[[Workspace], object],
        has: Callable[[str], bool],
    ) -> AsyncGenerator[Ended | LimitExceeded | WorkspaceError]:
        """Execute a body on a seed. What it left can be read within the context."""
        if isinstance(body, Command):
            async with self._commands.run(seed, declaration, body, has) as ended:
                yield ended
            return
        if self._is_closed:
            yield _CLOSED
            return
        session = Session(seed, declaration, self._options.limits, self._options.roots, has)
        try:
            yield await self._call(session, seed, body)
        finally:
            session.close()

    async def _call(
        self, session: Session, seed: Seed, body: Callable[[Workspace], object]
    ) -> Ended | LimitExceeded | WorkspaceError:
        wall = self._options.limits.wall
        output: object = None
        failure: Exception | None = None
        seen: Watch | None = None
        limit = asyncio.timeout(wall / 1_000)
        cancelled = _cancellations()
        try:
            async with limit:
                with self._watching() as seen:
                    output = await self._result(body, ScopedWorkspace(session))
            if limit.expired():  # and the body went on
                return LimitExceeded("wall", wall, wall)
            session.finish()
        except TimeoutError as error:
            if limit.expired():
                return LimitExceeded("wall", wall, wall)
            failure = error
        except SystemExit as left:
            failure = left_by_exit(left, "the body")
        except asyncio.CancelledError as error:
            if (task := asyncio.current_task()) is not None and task.cancelling():
                raise
            failure = RuntimeError(f"the body cancelled itself: {error}")
        except Exception as error:
            failure = error
        finally:
            session.end()
        if _cancellations() > cancelled:
            raise asyncio.CancelledError("the body went on after it was cancelled")
        if session.exceeded is not None:
            return session.exceeded
        if seen is not None:
            await asyncio.to_thread(self._note_strays, session, seen)
        return self._ended(session, seed, output, failure, seen)

    def _watching(self) -> AbstractContextManager[Watch | None]:
        return watch(self._options.places) if self._options.tripwire else nullcontext()

    def _note_strays(self, session: Session, seen: Watch) -> None:
        """What a body read of the workspace's folder itself, past its copies, as undeclared looks."""
        for path in seen.reads:
            for spelled in {path, os.path.realpath(path)}:
                within = operation_path(spelled, self._options.places, self._options.limits)
                if isinstance(within, str) and spelled.startswith("/"):
                    session.note_stray(within)

    async def _result(self, body: Callable[[Workspace], object], workspace: Workspace) -> object:
        if inspect.iscoroutinefunction(body) or inspect.iscoroutinefunction(type(body).__call__):
            result = body(workspace)
        else:
            async with self._turns:
                called = await self._on_thread(body, workspace)
            if isinstance(called, BaseException):
                raise called
            result = called.output
        if inspect.isgenerator(result) or inspect.isasyncgen(result):
            raise TypeError("the body of a step is a generator, which is not executed; let it return instead of yield")
        return await cast(Awaitable[object], result) if inspect.isawaitable(result) else result

    async def _on_thread(self, body: Callable[[Workspace], object], workspace: Workspace) -> _Returned | BaseException:
        within = copy_context()

        def call() -> _Returned | BaseException:
            return within.run(_called, body, workspace)

        with unwatched():  # a thread that the pool starts is not the body's
            return await asyncio.get_running_loop().run_in_executor(self._threads, call)

    def _ended(
        self, session: Session, seed: Seed, output: object, failure: Exception | None, seen: Watch | None
    ) -> Ended:
        tree = session.overlay.tree()
        files = {path: node.digest for path, node in tree.items() if isinstance(node, FileNode)}
        evidence = Evidence(
            backend="python",
            policy_digest=self._options.policy_digest,
            probe_digest=None,
            completeness="complete" if session.observations.complete and not (seen and seen.more) else "partial",
            base_digest=base_digest(seed.tree),
            observed=tuple(session.observations),
            ambient=() if seen is None else seen.events,
        )
        return Ended(
            left=Left(tree, lambda path: session.contents(files[path]), session.observations.undeclared),
            output=output,
            level="cooperative" if seen is None else seen.level,
            evidence=evidence,
            effects=tuple(session.effects),
            failed=None if failure is None else as_recorded(failure),
            refused=failure.error if isinstance(failure, WorkspaceRefusal) else None,
        )


def _cancellations() -> int:
    """How often the present task was asked to end, and did not yet."""
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()


@dataclass(frozen=True, slots=True)
class _Returned:
    output: object


def _called(body: Callable[[Workspace], object], workspace: Workspace) -> _Returned | BaseException:
    """What the body gives or raises, as a value: a future cannot hold every exception."""
    try:
        return _Returned(body(workspace))
    except BaseException as error:
        return error
