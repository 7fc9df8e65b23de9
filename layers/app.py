"""The composition root: whole applications, every service that exists over one ledger.

`stepwell.open` and the command line are built from these; a test overrides what it swaps.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from os import PathLike
from typing import TypeAlias, Unpack

from ..services.artifacts import Artifacts
from ..services.cache_fold import CacheFold
from ..services.clock import Clock
from ..services.engine import Engine
from ..services.ids import Ids
from ..services.journal import Journal
from ..services.ledger import Ledger
from ..services.revisions import Revisions
from ..services.step_cache import StepCache
from ..services.step_sandbox import StepSandbox
from ..services.store import Store
from ..services.waiters import Waiters
from ..services.wake_bus import WakeBus
from ..services.workflow import AnyWorkflow
from . import artifacts as artifacts_layers
from . import (
    cache_fold,
    clock,
    engine,
    ids,
    journal,
    ledger,
    revisions,
    step_cache,
    step_sandbox,
    store,
    waiters,
    wake_bus,
)
from .engine import EngineOptions
from .layer import Layer
from .sql.inspect import Disk, Inspection, has_wal_fix, sqlite_version
from .sql.inspect import inspect as inspect_database

__all__ = [
    "Disk",
    "Inspection",
    "Services",
    "has_wal_fix",
    "inspect",
    "layer",
    "layer_memory",
    "layer_noop",
    "layer_test",
    "sqlite_version",
]

Services: TypeAlias = (
    Artifacts
    | CacheFold
    | Clock
    | Engine
    | Ids
    | Journal
    | Ledger
    | Revisions
    | StepCache
    | StepSandbox
    | Store
    | Waiters
    | WakeBus
)
"""What every application gives."""


def inspect(path: str | PathLike[str]) -> Inspection:
    """What can be told about a database and the machine that it is on; see `layers/sql/inspect.py`."""
    return inspect_database(path, clock.SystemClock().now_ms)


def _files(
    workspace: str | PathLike[str] | None, artifacts: str | PathLike[str] | None
) -> Layer[Artifacts | StepSandbox, Artifacts | StepSandbox | Clock]:
    if workspace is None:
        kept = artifacts_layers.layer_noop() if artifacts is None else artifacts_layers.layer(artifacts)
        return kept | step_sandbox.layer_noop()
    inside = os.path.join(workspace, ".stepwell", "artifacts")
    return artifacts_layers.layer(inside if artifacts is None else artifacts) | step_sandbox.layer(workspace)


# --- layers -----------------------------------------------------------------


def layer(
    path: str | PathLike[str],
    *,
    workflows: Iterable[AnyWorkflow] = (),
    drive: bool = True,
    create: bool = True,
    check: bool = True,
    workspace: str | PathLike[str] | None = None,
    artifacts: str | PathLike[str] | None = None,
    **options: Unpack[EngineOptions],
) -> Layer[Services, Services]:
    """An application in one SQLite file. With `create=False` a file that is not there cannot be opened; with
    `check=False` one can whose journal is damaged.

    It drives the runs of its `workflows`; with `drive=False` it only knows their types. `workspace` is the folder on
    which sandboxed steps work, and `artifacts` the one that keeps large outputs, by default within the workspace, in
    `.stepwell`. Without a workspace there is no sandbox, and without either no artifacts: they fail closed. `options`
    are those of the engine, as `effects`, who sends what cached steps ask for.
    """
    host = ledger.layer(path, create=create) | clock.layer() | ids.layer() | wake_bus.layer()
    kept = host | store.layer() | revisions.layer() | waiters.layer() | journal.layer_spilling(check=check)
    files = _files(workspace, artifacts)  # first: one that is refused leaves no database; the engine is last
    return files | kept | step_cache.layer() | cache_fold.layer() | engine.layer(workflows, drive, **options)


def layer_memory(
    *,
    workflows: Iterable[AnyWorkflow] = (),
    drive: bool = True,
    workspace: str | PathLike[str] | None = None,
    artifacts: str | PathLike[str] | None = None,
    **options: Unpack[EngineOptions],
) -> Layer[Services, Services]:
    """An application that is gone with its process, on the machine's clock: for trying things out."""
    host = ledger.layer_test() | clock.layer() | ids.layer() | wake_bus.layer()
    kept = host | store.layer() | revisions.layer() | waiters.layer() | journal.layer_spilling()
    files = _files(workspace, artifacts)  # first: one that is refused leaves no database; the engine is last
    return files | kept | step_cache.layer() | cache_fold.layer() | engine.layer(workflows, drive, **options)


def layer_test(
    *, workflows: Iterable[AnyWorkflow] = (), drive: bool = True, **options: Unpack[EngineOptions]
) -> Layer[Services, Services]:
    """An application in memory, deterministic: its clock stands until a test advances it, its ids are counted."""
    host = ledger.layer_test() | clock.layer_test() | ids.layer_test() | wake_bus.layer_test()
    kept = host | store.layer_test() | revisions.layer_test() | waiters.layer_test() | journal.layer_test()
    files = artifacts_layers.layer_test() | step_sandbox.layer_test()
    cached = step_cache.layer_test() | cache_fold.layer_test()
    return kept | files | cached | engine.layer_test(workflows, drive, **options)


def layer_noop() -> Layer[Services, Services]:
    """An application of which every service is absent; override those that a test is about."""
    host = ledger.layer_noop() | clock.layer_noop() | ids.layer_noop() | wake_bus.layer_noop()
    kept = host | store.layer_noop() | revisions.layer_noop() | waiters.layer_noop() | journal.layer_noop()
    files = artifacts_layers.layer_noop() | step_sandbox.layer_noop()
    return kept | files | step_cache.layer_noop() | cache_fold.layer_noop() | engine.layer_noop()
