"""What becomes of a cached step at each thing that is found on its way, as a table.

A step that asks the step cache finds nothing, or a row. A row is served, or there is something against it:

    weak_evidence     how it was executed is not known well enough to be served to others
    invalid_meta      what is kept with it cannot be read, or does not belong to what the step declares
    expired           it is older than rows are served
    stale             the declared reads are not what they are declared to be
    host              its outputs could not be brought back: bytes are missing, or the host refuses
    corruption        what is kept of its outputs is not what was recorded

Whatever stands against a row is said in the journal, once for the run and the row; the step is executed then. A row
that is wrong goes out of force, one that only could not be used stays. Each consultation counts as one decision.
"""

from __future__ import annotations

from hashlib import sha256
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

from msgspec import Struct
from msgspec.json import encode

from .cache_fold import EVENT_TYPE
from .entry import NewEntry
from .journal import Source
from .provenance import Action, provenance_entry
from .step_cache import RecordedRef

__all__ = ["REACTIONS", "Decided", "Finding", "Reaction", "age_problem", "reaction_entries", "unrecorded_entry"]

Finding: TypeAlias = Literal[
    "nothing", "served", "weak_evidence", "invalid_meta", "expired", "stale", "host", "corruption"
]

Decided: TypeAlias = Literal["miss", "verified_hit", "stale_read_set", "replay_failed"]
"""What a consultation counts as."""


class Reaction(Struct, frozen=True, gc=False):
    """What is to be done: the entry that is appended with its reason, whether the row goes, and what it counts as."""

    counts: Decided
    action: Action | None = None
    reason: str | None = None
    evicts: bool = False


REACTIONS: Final = MappingProxyType[Finding, Reaction](
    {
        "nothing": Reaction("miss"),
        "served": Reaction("verified_hit", "hit"),
        "weak_evidence": Reaction("miss", "unverified_read_set", "weak_evidence"),
        "invalid_meta": Reaction("replay_failed", "replay_failed", "invalid_meta"),
        "expired": Reaction("miss", "expired", evicts=True),
        "stale": Reaction("stale_read_set", "stale_read_set", evicts=True),
        "host": Reaction("replay_failed", "replay_failed", "host"),
        "corruption": Reaction("replay_failed", "replay_failed", "corruption", evicts=True),
    }
)


def age_problem(created_at_ms: int, now_ms: int, ttl_ms: int | None) -> int | None:
    """The age of a row that is too old to be served, in milliseconds. One of exactly `ttl_ms` is not."""
    age_ms = now_ms - created_at_ms
    return None if ttl_ms is None or age_ms <= ttl_ms else age_ms


def reaction_entries(
    finding: Finding, ref: RecordedRef, *, ttl_ms: int | None = None, age_ms: int | None = None
) -> tuple[NewEntry, ...]:
    """What is appended to the run's journal for what was found of a row.

    Where rows have a time to live the verdict about their age comes first.
    """
    reaction = REACTIONS[finding]
    entries: list[NewEntry] = []
    if ttl_ms is not None and finding in _AGED:
        verdict = "expired" if finding == "expired" else "admitted"
        entries.append(provenance_entry("ttl", ref, verdict=verdict))
    if reaction.action == "expired":
        entries.append(provenance_entry("expired", ref, ttl_ms=ttl_ms, age_ms=age_ms))
    elif reaction.action is not None:
        entries.append(provenance_entry(reaction.action, ref, reaction.reason))
    return tuple(entries)


def unrecorded_entry(key_digest: str, run_id: str, reason: str) -> NewEntry:
    """That the run has a result for the key that may be nobody else's, and why: told once. It names no row."""
    payload = {"action": "unverified_read_set", "key_digest": key_digest, "recorded_run_id": run_id, "reason": reason}
    identity = sha256(f"unrecorded\0{key_digest}".encode()).digest()
    return NewEntry(EVENT_TYPE, encode(payload), Source(f"cache:unrecorded:{key_digest}", 0), identity)


_AGED: Final[frozenset[Finding]] = frozenset({"served", "expired", "stale", "host", "corruption"})
"""What is found once the age of a row was looked at."""
