"""stepwell: typed durable stores, exactly-once steps and workflows that survive crashes, in your own process.

The names in `__all__` are the public surface; whatever else can be imported may change without notice. A name's module
is loaded when the name is first asked for: a program that only defines stores and workflows loads no host.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stepwell.core.model import (
        Conflict,
        Contended,
        Deleted,
        InvalidState,
        Issue,
        ReceiptMismatch,
        RecordedError,
        Replace,
        Revision,
        Snapshot,
        StepId,
        StoreKey,
        StoreNotFound,
        Taken,
        TimedOut,
        TooLarge,
        Unavailable,
        Unmatched,
        Updated,
    )
    from stepwell.core.outcome import Failure, Outcome, Success
    from stepwell.core.retry import Retry
    from stepwell.layers.app import Services
    from stepwell.layers.entry.open import App, open, open_blocking
    from stepwell.layers.entry.portal import BlockingApp
    from stepwell.layers.layer import (
        Cycle,
        Env,
        Failed,
        Layer,
        LayerError,
        Missing,
        build,
        fresh,
        get,
        provide,
        provides,
    )
    from stepwell.services.artifacts import ArtifactCorruption, ArtifactMissing, Artifacts
    from stepwell.services.cache_fold import CacheFold, Explanation, Rebuilt, Verification
    from stepwell.services.clock import Clock, ManualClock
    from stepwell.services.effect_dispatcher import Effect, EffectDispatcher
    from stepwell.services.engine import Engine, RunCancelled, RunFailed, RunHandle, RunMismatch, RunNotFound, RunStatus
    from stepwell.services.ids import Ids
    from stepwell.services.inconsistency import Inconsistency
    from stepwell.services.journal import (
        Appended,
        Checkpoint,
        Compacted,
        Entry,
        IdempotencyConflict,
        InvalidCheckpoint,
        InvalidEvent,
        Journal,
        JournalError,
        Owner,
        Page,
        Projection,
        Source,
        Tampered,
        Verified,
    )
    from stepwell.services.ledger import AlreadyApplied, Committed, Fenced, Ledger
    from stepwell.services.revisions import Absent, Changed, Collected, Difference, Purged, Retention, Revisions
    from stepwell.services.run import Run
    from stepwell.services.run_store import RunStore
    from stepwell.services.signal import InvalidSignal, RunEnded
    from stepwell.services.step import DuplicateKey, NotReplaySafe, StepContext, StepFailed, Suspended, current_step
    from stepwell.services.step_cache import (
        CacheConflict,
        CacheEntry,
        CacheMiss,
        ExistingSame,
        Inserted,
        InvalidEntry,
        RecordedRef,
        StepCache,
    )
    from stepwell.services.step_sandbox import (
        Accepted,
        BodyFailed,
        Boundary,
        Command,
        CommandOutput,
        FileChange,
        LimitExceeded,
        MaterializationConflict,
        Materialized,
        MissingOutput,
        StepSandbox,
        SurvivingRemoval,
        UndeclaredRead,
        UndeclaredWrite,
        UnsupportedBoundary,
        Violations,
        Workspace,
        WorkspaceError,
        WorkspaceRefusal,
        WorkspaceTransaction,
    )
    from stepwell.services.store import Store, StoreDefinition, StoreHandle, define_store
    from stepwell.services.waiters import Registered, Waiter, Waiters
    from stepwell.services.wake_bus import WakeBus, WakeToken
    from stepwell.services.workflow import AnyWorkflow, Workflow, WorkflowCall, workflow

__version__ = "0.1.0"

__all__ = [
    "Absent",
    "Accepted",
    "AlreadyApplied",
    "AnyWorkflow",
    "App",
    "Appended",
    "ArtifactCorruption",
    "ArtifactMissing",
    "Artifacts",
    "BlockingApp",
    "BodyFailed",
    "Boundary",
    "CacheConflict",
    "CacheEntry",
    "CacheFold",
    "CacheMiss",
    "Changed",
    "Checkpoint",
    "Clock",
    "Collected",
    "Command",
    "CommandOutput",
    "Committed",
    "Compacted",
    "Conflict",
    "Contended",
    "Cycle",
    "Deleted",
    "Difference",
    "DuplicateKey",
    "Effect",
    "EffectDispatcher",
    "Engine",
    "Entry",
    "Env",
    "ExistingSame",
    "Explanation",
    "Failed",
    "Failure",
    "Fenced",
    "FileChange",
    "IdempotencyConflict",
    "Ids",
    "Inconsistency",
    "Inserted",
    "InvalidCheckpoint",
    "InvalidEntry",
    "InvalidEvent",
    "InvalidSignal",
    "InvalidState",
    "Issue",
    "Journal",
    "JournalError",
    "Layer",
    "LayerError",
    "Ledger",
    "LimitExceeded",
    "ManualClock",
    "MaterializationConflict",
    "Materialized",
    "Missing",
    "MissingOutput",
    "NotReplaySafe",
    "Outcome",
    "Owner",
    "Page",
    "Projection",
    "Purged",
    "Rebuilt",
    "ReceiptMismatch",
    "RecordedError",
    "RecordedRef",
    "Registered",
    "Replace",
    "Retention",
    "Retry",
    "Revision",
    "Revisions",
    "Run",
    "RunCancelled",
    "RunEnded",
    "RunFailed",
    "RunHandle",
    "RunMismatch",
    "RunNotFound",
    "RunStatus",
    "RunStore",
    "Services",
    "Snapshot",
    "Source",
    "StepCache",
    "StepContext",
    "StepFailed",
    "StepId",
    "StepSandbox",
    "Store",
    "StoreDefinition",
    "StoreHandle",
    "StoreKey",
    "StoreNotFound",
    "Success",
    "SurvivingRemoval",
    "Suspended",
    "Taken",
    "Tampered",
    "TimedOut",
    "TooLarge",
    "Unavailable",
    "UndeclaredRead",
    "UndeclaredWrite",
    "Unmatched",
    "UnsupportedBoundary",
    "Updated",
    "Verification",
    "Verified",
    "Violations",
    "Waiter",
    "Waiters",
    "WakeBus",
    "WakeToken",
    "Workflow",
    "WorkflowCall",
    "Workspace",
    "WorkspaceError",
    "WorkspaceRefusal",
    "WorkspaceTransaction",
    "build",
    "current_step",
    "define_store",
    "fresh",
    "get",
    "open",
    "open_blocking",
    "provide",
    "provides",
    "workflow",
]

_NAMES = {
    "core.model": (
        "Conflict Contended Deleted InvalidState Issue ReceiptMismatch RecordedError Replace Revision "
        "Snapshot StepId StoreKey StoreNotFound Taken TimedOut TooLarge Unavailable Unmatched Updated"
    ),
    "core.outcome": "Failure Outcome Success",
    "core.retry": "Retry",
    "layers.app": "Services",
    "layers.entry.open": "App open open_blocking",
    "layers.entry.portal": "BlockingApp",
    "layers.layer": "Cycle Env Failed Layer LayerError Missing build fresh get provide provides",
    "services.artifacts": "ArtifactCorruption ArtifactMissing Artifacts",
    "services.cache_fold": "CacheFold Explanation Rebuilt Verification",
    "services.clock": "Clock ManualClock",
    "services.effect_dispatcher": "Effect EffectDispatcher",
    "services.engine": "Engine RunCancelled RunFailed RunHandle RunMismatch RunNotFound RunStatus",
    "services.ids": "Ids",
    "services.inconsistency": "Inconsistency",
    "services.journal": (
        "Appended Checkpoint Compacted Entry IdempotencyConflict InvalidCheckpoint InvalidEvent Journal JournalError "
        "Owner Page Projection Source Tampered Verified"
    ),
    "services.ledger": "AlreadyApplied Committed Fenced Ledger",
    "services.revisions": "Absent Changed Collected Difference Purged Retention Revisions",
    "services.run": "Run",
    "services.run_store": "RunStore",
    "services.signal": "InvalidSignal RunEnded",
    "services.step": "DuplicateKey NotReplaySafe StepContext StepFailed Suspended current_step",
    "services.step_cache": (
        "CacheConflict CacheEntry CacheMiss ExistingSame Inserted InvalidEntry RecordedRef StepCache"
    ),
    "services.step_sandbox": (
        "Accepted BodyFailed Boundary Command CommandOutput FileChange LimitExceeded MaterializationConflict "
        "Materialized MissingOutput StepSandbox SurvivingRemoval UndeclaredRead UndeclaredWrite "
        "UnsupportedBoundary Violations Workspace WorkspaceError WorkspaceRefusal WorkspaceTransaction"
    ),
    "services.store": "Store StoreDefinition StoreHandle define_store",
    "services.waiters": "Registered Waiter Waiters",
    "services.wake_bus": "WakeBus WakeToken",
    "services.workflow": "AnyWorkflow Workflow WorkflowCall workflow",
}
"""From each module to its public names: the imports above, for the time when they are asked for."""

_HOME_OF = {name: module for module, names in _NAMES.items() for name in names.split()}

if not TYPE_CHECKING:  # a checker that saw it would take every name for one of ours

    def __getattr__(name):
        if name not in _HOME_OF:
            raise AttributeError(f"module 'stepwell' has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(f"stepwell.{_HOME_OF[name]}"), name)
        return value

    def __dir__():
        return [*__all__, *(name for name in globals() if name.startswith("__"))]
