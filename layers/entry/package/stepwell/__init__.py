"""stepwell: typed durable stores, exactly-once steps and workflows that survive crashes, in your own process.

The names in `__all__` are the public surface; whatever else can be imported may change without notice.
"""

from stepwell.core.journal import Entry, Projection, Source
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
from stepwell.core.step_cache import RecordedRef
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
from stepwell.services.clock import Clock, ManualClock
from stepwell.services.engine import Engine, RunCancelled, RunFailed, RunHandle, RunMismatch, RunNotFound, RunStatus
from stepwell.services.ids import Ids
from stepwell.services.ledger import AlreadyApplied, Committed, Fenced, Ledger
from stepwell.services.run import (
    DuplicateKey,
    NotReplaySafe,
    Run,
    RunStore,
    StepContext,
    StepFailed,
    Suspended,
    current_step,
)
from stepwell.services.store import Store, StoreDefinition, StoreHandle, define_store
from stepwell.services.workflow import AnyWorkflow, Workflow, WorkflowCall, workflow

__version__ = "0.1.0"

__all__ = [
    "AlreadyApplied",
    "AnyWorkflow",
    "Clock",
    "Committed",
    "Conflict",
    "Contended",
    "Cycle",
    "Deleted",
    "DuplicateKey",
    "Engine",
    "Entry",
    "Env",
    "Failed",
    "Failure",
    "Fenced",
    "Ids",
    "InvalidState",
    "Issue",
    "Layer",
    "LayerError",
    "Ledger",
    "ManualClock",
    "Missing",
    "NotReplaySafe",
    "Outcome",
    "Projection",
    "ReceiptMismatch",
    "RecordedError",
    "RecordedRef",
    "Replace",
    "Retry",
    "Revision",
    "Run",
    "RunCancelled",
    "RunFailed",
    "RunHandle",
    "RunMismatch",
    "RunNotFound",
    "RunStatus",
    "RunStore",
    "Snapshot",
    "Source",
    "StepContext",
    "StepFailed",
    "StepId",
    "Store",
    "StoreDefinition",
    "StoreHandle",
    "StoreKey",
    "StoreNotFound",
    "Success",
    "Suspended",
    "Taken",
    "TimedOut",
    "TooLarge",
    "Unavailable",
    "Unmatched",
    "Updated",
    "Workflow",
    "WorkflowCall",
    "build",
    "current_step",
    "define_store",
    "fresh",
    "get",
    "provide",
    "provides",
    "workflow",
]
