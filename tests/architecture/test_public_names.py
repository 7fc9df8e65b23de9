"""The public surface is this list, and nothing else."""

from __future__ import annotations

import importlib
import pkgutil

import stepwell

NAMES = [
    "AlreadyApplied",
    "AnyWorkflow",
    "App",
    "BlockingApp",
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
    "Services",
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
    "open",
    "open_blocking",
    "provide",
    "provides",
    "workflow",
]


def test_the_public_names_are_these_and_sorted() -> None:
    assert stepwell.__all__ == NAMES


def test_every_public_name_can_be_imported() -> None:
    missing = [name for name in stepwell.__all__ if not hasattr(stepwell, name)]
    assert missing == []


def test_nothing_else_looks_public() -> None:
    """Beside its modules, the package shows no name that it does not list."""
    modules = {"core", "services", "layers"}
    assert {name for name in vars(stepwell) if not name.startswith("_")} - modules == set(stepwell.__all__)


def test_every_module_imports_and_lists_its_names() -> None:
    wrong: list[str] = []
    for found in pkgutil.walk_packages(stepwell.__path__, "stepwell."):
        if found.name.endswith("__main__"):
            continue
        module = importlib.import_module(found.name)
        names = getattr(module, "__all__", [])
        wrong += [f"{found.name} lists {name}, which it has not" for name in names if not hasattr(module, name)]
        if list(names) != sorted(names):
            wrong.append(f"{found.name}: __all__ is not sorted")
    assert wrong == []
