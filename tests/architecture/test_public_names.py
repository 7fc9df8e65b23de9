"""The public surface is this list, and nothing else."""

from __future__ import annotations

import ast
import importlib
import pkgutil

import pytest

import stepwell

from .source import PACKAGE_ROOT

NAMES = [
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


def test_the_public_names_are_these_and_sorted() -> None:
    assert stepwell.__all__ == NAMES


def test_every_public_name_can_be_imported() -> None:
    missing = [name for name in stepwell.__all__ if not hasattr(stepwell, name)]
    assert missing == []


def test_nothing_else_looks_public() -> None:
    assert [name for name in dir(stepwell) if not name.startswith("_")] == NAMES
    with pytest.raises(AttributeError, match="module 'stepwell' has no attribute 'opne'"):
        _ = vars(stepwell)["__getattr__"]("opne")


def test_checkers_and_the_running_program_find_each_name_in_the_same_module() -> None:
    """The imports that only a checker sees, and the table by which a name is loaded, say the same."""
    tree = ast.parse((PACKAGE_ROOT / "stepwell" / "__init__.py").read_text("utf-8"))
    seen = {
        each.name: node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for each in node.names
    }
    homes: dict[str, str] = vars(stepwell)["_HOME_OF"]
    assert {name: f"stepwell.{module}" for name, module in homes.items()} == {n: seen[n] for n in NAMES}


def test_every_module_imports_and_lists_its_names() -> None:
    wrong: list[str] = []
    for found in pkgutil.walk_packages(stepwell.__path__, "stepwell."):
        if found.name.endswith("__main__"):
            continue
        module = importlib.import_module(found.name)
        names = getattr(module, "__all__", [])
        wrong += [f"{found.name} lists {name}, which it has not" for name in names if not hasattr(module, name)]
    assert wrong == []
