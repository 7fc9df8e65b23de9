"""How far the result of a step may be reused: as far as is known that it rests on nothing but what its key names.

    enforced      it could have read nothing else                        "shared"
    tripwire      it was watched, and seen to do nothing else            "local"
                  it was seen to do something else: `Evidence.ambient`   "run": only the run that it is a step of
    cooperative   nobody looked                                          "run"

A result of which that is not known at all is not recorded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, assert_never, final

from .boundary import Boundary, DeclaredRead
from .evidence import Evidence
from .glob import is_glob
from .measured import MeasuredReads
from .node import FileNode, Node
from .step_sandbox import Accepted, EvidenceLevel

__all__ = ["NotRecorded", "Reach", "Reason", "decide_reuse", "read_set_matches"]

Reach: TypeAlias = Literal["shared", "local", "run"]
"""Who may be served a result: everybody; whoever uses the same ledger; its own run."""

Reason: TypeAlias = Literal["not_hard", "deviation", "no_evidence", "partial_evidence", "unverified_read_set"]
"""Why a result is not recorded: its boundary is not "hard"; it departed from it; nothing is known of how it was
executed; some of its looks were not seen; it did not read what its key was made of."""

_ABSENT: Final = "absent"


@final
@dataclass(frozen=True, slots=True)
class NotRecorded:
    """The result is right for the run that asked for it, and for nobody else."""

    reason: Reason


def decide_reuse(accepted: Accepted[object], boundary: Boundary, measured: MeasuredReads) -> Reach | NotRecorded:
    """How far an accepted result may be reused. `measured` are the reads that its cache key was made of."""
    if boundary.mode != "hard":
        return NotRecorded("not_hard")
    if accepted.deviation is not None or accepted.violations.reads or accepted.violations.writes:
        return NotRecorded("deviation")
    evidence = accepted.record
    if evidence is None:
        return NotRecorded("no_evidence")
    if evidence.completeness == "partial":
        return NotRecorded("partial_evidence")
    if not _read_what_was_measured(evidence, measured) or not read_set_matches(boundary, measured):
        return NotRecorded("unverified_read_set")
    return _reach(accepted.evidence, evidence)


def read_set_matches(boundary: Boundary, measured: MeasuredReads) -> bool:
    """Whether all that a boundary reads was measured, and found to have the digests that it is declared with.

    A pattern is verified by the list of what it matched, each of which was measured. What was measured beyond that
    does not count.
    """
    files, matches = dict(measured.files), dict(measured.matches)
    for read in boundary.reads:
        path = read.path if isinstance(read, DeclaredRead) else read
        if is_glob(path):
            if path not in matches or any(files.get(found) is None for found in matches[path]):
                return False
        elif path not in files or not _has_digest(files[path], read):
            return False
    return True


def _read_what_was_measured(evidence: Evidence, measured: MeasuredReads) -> bool:
    return evidence.base_digest == measured.base_digest


def _has_digest(node: Node | None, read: str | DeclaredRead) -> bool:
    declared = read.digest if isinstance(read, DeclaredRead) else None
    if declared is None:
        return True
    return node is None if declared == _ABSENT else isinstance(node, FileNode) and node.digest == declared


def _reach(level: EvidenceLevel, evidence: Evidence) -> Reach:
    match level:
        case "enforced":
            return "shared"
        case "tripwire":
            return "run" if evidence.ambient else "local"
        case "cooperative":
            return "run"
        case _:
            assert_never(level)
