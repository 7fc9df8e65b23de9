"""What the journal of a run is told of its cached steps, beside what becomes of rows: facts and digests."""

from __future__ import annotations

from hashlib import sha256
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from msgspec.json import encode

from .entry import NewEntry, identity_of
from .journal import Source

if TYPE_CHECKING:
    from .step_sandbox import Accepted

__all__ = ["CACHE_EVENTS", "CacheEventType", "captured_entry", "corruption_entry", "settled_entry"]

CacheEventType: TypeAlias = Literal[
    "stepwell.cache-corruption", "stepwell.diff-bundle-captured", "stepwell.copy-back-settled"
]

CACHE_EVENTS: Final = MappingProxyType[CacheEventType, str](
    {
        "stepwell.cache-corruption": "What is kept of an output is not what was recorded: digests, and the verdict.",
        "stepwell.diff-bundle-captured": "A step was executed in the sandbox and accepted: digests of what it made.",
        "stepwell.copy-back-settled": "The files of a step are on the host, and so many effects were sent.",
    }
)
"""The types, with a sentence each."""


def corruption_entry(
    key_digest: str, path: str, recorded: str, measured: str, verdict: Literal["fail", "tolerate"]
) -> NewEntry:
    """An output of the row of a key is damaged."""
    facts = {"key_digest": key_digest, "path": path, "recorded": recorded, "measured": measured, "verdict": verdict}
    return _entry("stepwell.cache-corruption", f"{key_digest}\0{path}\0{recorded}\0{measured}", 0, facts)


def captured_entry(
    step: str,
    at_ms: int,
    accepted: Accepted[object],
    key_digest: str | None,
    reach: str | None = None,
    why: str | None = None,
) -> NewEntry:
    """A step made this, as it was recorded at an instant; `key_digest` is None if the step cache has nothing of it.

    `reach` is who may be served it, and `why` says what holds it back, if that is less than everybody.
    """
    facts = {
        "step": step,
        "evidence": accepted.evidence,
        "diff_identity": accepted.diff_identity,
        "files": len(accepted.changes),
        "key_digest": key_digest,
        "reach": reach,
        "why": why,
    }
    return _entry("stepwell.diff-bundle-captured", step, at_ms, facts)


def settled_entry(step: str, at_ms: int, rebases: int, queued: int, dispatched: int) -> NewEntry:
    """The files of a step are there, and so many of its effects were sent.

    `rebases` counts how often it was executed again, because its files were changed meanwhile.
    """
    facts = {"step": step, "rebases": rebases, "queued": queued, "dispatched": dispatched}
    return _entry("stepwell.copy-back-settled", step, at_ms, facts)


def _entry(event_type: CacheEventType, about: str, number: int, facts: object) -> NewEntry:
    """Told once: a batch may be committed again by who does not know whether it was."""
    payload = encode(facts)
    source = Source(f"{event_type}:{sha256(about.encode()).hexdigest()}", number)
    return NewEntry(event_type, payload, source, identity_of(event_type, payload, None))
