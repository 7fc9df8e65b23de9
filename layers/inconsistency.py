"""Who decides about a cache that contradicts itself: who lets nothing pass, who lets all pass, and who takes notes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

from ..core.step_cache import RecordedRef
from ..services.inconsistency import Inconsistency, Tolerance
from .layer import Layer, provides

__all__ = [
    "FixedInconsistency",
    "NotedConflict",
    "NotedCorruption",
    "layer",
    "layer_noop",
    "layer_test",
    "layer_tolerant",
]


@dataclass(frozen=True, slots=True)
class NotedConflict:
    existing: RecordedRef
    offered: RecordedRef


@dataclass(frozen=True, slots=True)
class NotedCorruption:
    ref: RecordedRef | None
    path: str
    recorded: str
    measured: str | None


@final
class FixedInconsistency:
    """Decides alike whatever it is told, and keeps that in `noted` if it was given a list."""

    def __init__(self, verdict: Tolerance, noted: list[NotedConflict | NotedCorruption] | None = None) -> None:
        self._verdict: Tolerance = verdict
        self.noted = noted

    async def note_conflict(self, existing: RecordedRef, offered: RecordedRef) -> Tolerance:
        if self.noted is not None:
            self.noted.append(NotedConflict(existing, offered))
        return self._verdict

    async def note_corruption(
        self, ref: RecordedRef | None, path: str, recorded: str, measured: str | None
    ) -> Tolerance:
        if self.noted is not None:
            self.noted.append(NotedCorruption(ref, path, recorded, measured))
        return self._verdict


def _fixed(
    verdict: Tolerance, noted: list[NotedConflict | NotedCorruption] | None = None
) -> Layer[Inconsistency, Inconsistency]:
    @provides
    def recipe() -> Iterator[Inconsistency]:
        yield FixedInconsistency(verdict, noted)

    return recipe


# --- layers -----------------------------------------------------------------


def layer() -> Layer[Inconsistency, Inconsistency]:
    """A step that meets one fails, so that somebody looks into it."""
    return _fixed("fail")


def layer_tolerant() -> Layer[Inconsistency, Inconsistency]:
    """A step that meets one goes on: a damaged row is made anew, and of two results each run keeps its own."""
    return _fixed("tolerate")


def layer_test(
    noted: list[NotedConflict | NotedCorruption] | None = None, *, verdict: Tolerance = "fail"
) -> Layer[Inconsistency, Inconsistency]:
    """Decides as it is told to, and keeps what was noted in `noted`, or a list of its own."""
    return _fixed(verdict, [] if noted is None else noted)


def layer_noop() -> Layer[Inconsistency, Inconsistency]:
    """Nobody to decide: what cannot be decided fails."""
    return _fixed("fail")
