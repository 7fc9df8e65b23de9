"""stepwell: typed durable stores, exactly-once steps and workflows that survive crashes, in your own process.

The names in `__all__` are the public surface; whatever else can be imported may change without notice.
"""

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

__version__ = "0.1.0"

__all__ = [
    "Conflict",
    "Contended",
    "Cycle",
    "Deleted",
    "Env",
    "Failed",
    "Failure",
    "InvalidState",
    "Issue",
    "Layer",
    "LayerError",
    "Missing",
    "Outcome",
    "ReceiptMismatch",
    "RecordedError",
    "Replace",
    "Revision",
    "Snapshot",
    "StepId",
    "StoreKey",
    "StoreNotFound",
    "Success",
    "Taken",
    "TimedOut",
    "TooLarge",
    "Unavailable",
    "Unmatched",
    "Updated",
    "build",
    "fresh",
    "get",
    "provide",
    "provides",
]
