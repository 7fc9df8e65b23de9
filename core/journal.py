"""An entry of the journal, and what it takes to fold entries to a state; values only.

A projection is a pure pair: `initial()` makes the state before any entry, and `reduce(state, entry)` the state after
one more. A reducer changes no state that it was given and reads nothing but its two arguments, so the entries of a
run fold to the same state whoever folds them, live or years later.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from .model import guarded

__all__ = ["Entry", "Projection", "Source"]

_S = TypeVar("_S")


@dataclass(frozen=True, slots=True)
class Source:
    """Who produced an entry, and under which number of its own: the pair makes a repeated append a duplicate."""

    id: str
    seq: int


@dataclass(frozen=True, slots=True)
class Entry:
    """One stored row of a run's journal.

    `seq` orders the entries of `run_id`, `payload` is the JSON value that the event type calls for, and `at_ms` is
    the instant of the append in milliseconds of the ledger's clock. `source` is None where nobody named one.
    """

    run_id: str
    seq: int
    event_type: str
    payload: object
    source: Source | None
    at_ms: int
    meta: Mapping[str, object] | None


@guarded
@dataclass(frozen=True, slots=True)
class Projection(Generic[_S]):
    """How entries become a state: what there is before the first one, and what each of them does to it."""

    initial: Callable[[], _S]
    reduce: Callable[[_S, Entry], _S]
