"""`open` and `open_blocking`: a whole application for as long as a `with` block lasts."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass
from os import PathLike
from types import TracebackType
from typing import Final, Never, TypeVar, TypeVarTuple, Unpack, final

from ...core.journal import Tampered
from ...core.model import TooLarge, Unavailable
from ...core.outcome import Failure, Outcome
from ...core.run import RunState
from ...services.engine import Engine, ResultFailure, RunHandle, RunMismatch, RunNotFound, RunStatus
from ...services.ledger import CannotOpen
from ...services.revisions import Revisions
from ...services.run import Run
from ...services.run_store import Timeout
from ...services.signal import InvalidSignal, RunEnded
from ...services.step_sandbox import WorkspaceRefusal
from ...services.store import Store, StoreDefinition, StoreHandle
from ...services.workflow import AnyWorkflow, WorkflowCall
from .. import app as apps
from ..app import Services
from ..cache_metrics import CacheMetrics
from ..engine import EngineOptions, LedgerEngine
from ..layer import Env, Failed, Layer, LayerError, build, get
from .portal import BlockingApp, Portal

__all__ = ["MEMORY", "App", "admit_path", "admit_workspace", "current_app", "open", "open_blocking", "open_layer"]

_R = TypeVar("_R")
_T = TypeVar("_T")
_Ts = TypeVarTuple("_Ts")

MEMORY: Final = "memory:"
"""The path of an application that is gone with its process."""


class App(Engine):
    """The engine's calls, `store`, and the services. `open` gives it; it is of no use after the block has ended."""

    __slots__ = ("_engine", "_env", "_revisions", "_store")

    def __init__(self, env: Env[Services]) -> None:
        self._env = env
        self._engine: Engine = get(env, Engine)
        self._revisions: Revisions = get(env, Revisions)
        self._store: Store = get(env, Store)

    @property
    def env(self) -> Env[Services]:
        """The services: `get(app.env, Ledger)`."""
        return self._env

    @property
    def revisions(self) -> Revisions:
        """What stores were before: their history, its retention, and its end."""
        return self._revisions

    def store(self, definition: StoreDefinition[_T], id: str) -> StoreHandle[_T]:
        """The calls of one store. It reads nothing, and the store need not exist."""
        return self._store.handle(definition, id)

    async def start(
        self, workflow: Callable[[Run, *_Ts], WorkflowCall[_R]], *args: *_Ts, id: str | None = None
    ) -> Outcome[RunHandle[_R], RunMismatch | TooLarge | Unavailable]:
        token = _OPENED.set(_Slot(self))  # the run may be driven from here
        try:
            return await self._engine.start(workflow, *args, id=id)
        finally:
            _OPENED.reset(token)

    async def status(self, id: str) -> Outcome[RunStatus, RunNotFound | Unavailable]:
        return await self._engine.status(id)

    async def result(self, id: str, *, timeout: Timeout = None) -> Outcome[object, ResultFailure]:
        return await self._engine.result(id, timeout=timeout)

    async def signal(
        self, id: str, name: str, value: object, *, dedupe: str | None = None
    ) -> Outcome[None, RunNotFound | RunEnded | InvalidSignal | TooLarge | Unavailable]:
        return await self._engine.signal(id, name, value, dedupe=dedupe)

    async def cancel(self, id: str) -> Outcome[None, RunNotFound | Unavailable]:
        return await self._engine.cancel(id)

    async def resume(
        self, id: str, *, drop: Sequence[str] = (), reopen: bool = False
    ) -> Outcome[None, RunNotFound | Unavailable]:
        return await self._engine.resume(id, drop=drop, reopen=reopen)

    async def runs(
        self,
        *,
        state: RunState | None = None,
        workflow: str | None = None,
        limit: int = 100,
        after: str | RunStatus | None = None,
        newest_first: bool = False,
    ) -> Outcome[tuple[RunStatus, ...], Unavailable]:
        return await self._engine.runs(
            state=state, workflow=workflow, limit=limit, after=after, newest_first=newest_first
        )

    @property
    def cache_metrics(self) -> CacheMetrics:
        """How often cached steps that were driven here asked the step cache, and what came of it."""
        engine = self._engine
        return engine.cache_metrics if isinstance(engine, LedgerEngine) else CacheMetrics()

    def __repr__(self) -> str:
        return f"App({self._env!r})"


@dataclass(slots=True)
class _Slot:
    """An application, once it has been opened: what drives runs is there a moment before."""

    app: App | None = None


_OPENED: Final[ContextVar[_Slot | None]] = ContextVar("stepwell_application", default=None)


def current_app() -> App:
    """The application that drives the run of which this is called: in its workflow, or in the function of a step.

    It is there for a step that needs a service, as in `get(current_app().env, StepSandbox)`, in the commands `run` and
    `worker` too. A RuntimeError elsewhere, and where runs are driven by a composition that `open` did not make.
    """
    slot = _OPENED.get()
    if slot is None or slot.app is None:
        raise RuntimeError("current_app() tells which application drives the run that calls it, and this is none")
    return slot.app


def open(
    path: str | PathLike[str],
    *,
    workflows: Iterable[AnyWorkflow] = (),
    drive: bool = True,
    workspace: str | PathLike[str] | None = None,
    artifacts: str | PathLike[str] | None = None,
    **options: Unpack[EngineOptions],
) -> AbstractAsyncContextManager[App, None]:
    """An application, for `async with`: in the SQLite file at `path`, made where it is missing, or at "memory:".

    The runs of `workflows` are driven here for as long as the block lasts, and set aside when it ends. With
    `drive=False`, or without workflows, nothing is driven: for clients. `workspace` is the folder on which sandboxed
    steps work, `artifacts` the one that keeps large outputs (by default within the workspace, in `.stepwell`).
    `options` are those of the engine about cached steps: `effects`, `environment`, `max_age`, `inconsistency`.
    A ValueError says what is wrong with the path, that the workspace is no folder, or that two workflows have one
    name; a TypeError what is no workflow. Entering raises `CannotOpen` for a database that cannot be used, and
    `WorkspaceRefusal` for a folder where a sandbox is not possible. Either changes nothing in the database.
    """
    return open_layer(_layer(path, workflows, drive, workspace, artifacts, options))


def open_blocking(
    path: str | PathLike[str],
    *,
    workflows: Iterable[AnyWorkflow] = (),
    drive: bool = True,
    workspace: str | PathLike[str] | None = None,
    artifacts: str | PathLike[str] | None = None,
    **options: Unpack[EngineOptions],
) -> AbstractContextManager[BlockingApp, None]:
    """The same for `with`, where there is no event loop: a script, a notebook. The loop has a thread of its own."""
    return Portal(open_layer(_layer(path, workflows, drive, workspace, artifacts, options)))


def open_layer(layer: Layer[Services, Services]) -> AbstractAsyncContextManager[App, None]:
    """An application of a composition of one's own, for `async with`. Entering raises the cause of a failure."""
    return _Opened(layer)


# --- what is opened ---------------------------------------------------------


def _layer(
    path: str | PathLike[str],
    workflows: Iterable[AnyWorkflow],
    drive: bool,
    workspace: str | PathLike[str] | None,
    artifacts: str | PathLike[str] | None,
    options: EngineOptions,
) -> Layer[Services, Services]:
    where = admit_path(path)
    if workspace is not None:
        admit_workspace(workspace)
    if where == MEMORY:
        return apps.layer_memory(workflows=workflows, drive=drive, workspace=workspace, artifacts=artifacts, **options)
    return apps.layer(where, workflows=workflows, drive=drive, workspace=workspace, artifacts=artifacts, **options)


def admit_path(path: str | PathLike[str]) -> str:
    """The path as text; a ValueError if it is none of a file that can be opened, nor `MEMORY`."""
    where = os.fsdecode(path)
    if where.startswith(("postgresql://", "postgres://")):
        raise ValueError(
            "this version of stepwell has no PostgreSQL host; give the path of an SQLite file, or 'memory:'"
        )
    if "\0" in where or not is_unicode(where):
        raise ValueError(f"{where!a} is no path of a database: it must be valid Unicode, without NUL")
    scheme, colon, _ = where.partition("://")
    if colon and scheme.isidentifier():
        raise ValueError(f"{where!r} is an address; give the path of the SQLite file alone, or {MEMORY!r}")
    if where == "memory" and not os.path.exists(where):
        raise ValueError(f"for an application in memory write {MEMORY!r}; for a file of that name, './memory'")
    if where in ("", ":memory:"):
        raise ValueError(f"{where!r} is no path of a file; for an application in memory write {MEMORY!r}")
    return where


def admit_workspace(folder: str | PathLike[str]) -> None:
    """A ValueError if it is no folder that exists: one that was mistyped is not to be made."""
    if os.path.isdir(folder):
        return
    what = "is no folder" if os.path.lexists(folder) else "does not exist"
    raise ValueError(f"the workspace {os.fsdecode(folder)!r} {what}: make the folder first, or name another one")


def is_unicode(text: str) -> bool:
    """Whether it holds no lone surrogates, which stand for bytes that are no text."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


@final
class _Opened(AbstractAsyncContextManager[App, None]):
    """Written out, because a context manager made of a generator says that it may swallow exceptions."""

    __slots__ = ("_built",)

    def __init__(self, layer: Layer[Services, Services]) -> None:
        self._built = build(layer)

    async def __aenter__(self) -> App:
        slot = _Slot()
        token = _OPENED.set(slot)
        try:
            built = await self._built.__aenter__()
        finally:
            _OPENED.reset(token)
        if isinstance(built, Failure):
            _raise(built.failure())
        slot.app = App(built.unwrap())  # nothing was awaited since the engine, which is built last
        return slot.app

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._built.__aexit__(kind, error, traceback)


def _raise(error: LayerError) -> Never:
    """The cause where it speaks for itself; otherwise the failure as text, from its cause."""
    cause = error.cause if isinstance(error, Failed) else None
    if isinstance(cause, (CannotOpen, WorkspaceRefusal)):
        raise cause
    if isinstance(cause, Tampered):
        remedy = "`stepwell journal verify` checks all of it; restore a backup from before."
        raise CannotOpen("the database", f"damage in {cause.place}: {cause.message}", remedy)
    raise RuntimeError(f"the application could not be opened: {error}") from (
        cause if isinstance(cause, BaseException) else None
    )
