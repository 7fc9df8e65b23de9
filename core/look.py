"""One look at a store: what a selector finds in the state that is held, and what it read there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

from . import draft
from .held import Held
from .model import InvalidState, Paths, Revision, StoreKey, StoreNotFound
from .outcome import Failure, Outcome, Success
from .schema import StateSchema

__all__ = ["Looked", "decide_look"]

_R = TypeVar("_R")
_R_co = TypeVar("_R_co", covariant=True)
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Looked(Generic[_R_co]):
    """What a selector found in the state at `revision`, None or False if nothing, and the paths that it read."""

    selected: _R_co | Literal[False] | None
    read_paths: Paths
    revision: Revision


def decide_look(
    key: StoreKey, schema: StateSchema[_T], held: Held | None, selector: Callable[[_T], _R | Literal[False] | None]
) -> Outcome[Looked[_R], StoreNotFound | InvalidState]:
    """What `selector` finds in what is held; it is the caller's own, and nothing that is held is copied for it.

    What the selector raises is passed on, and so is TypeError for one that breaks a rule of selectors.
    """
    if held is None:
        return Failure(StoreNotFound(key))
    read = held.read(schema)
    if not isinstance(read, Success):
        return Failure(InvalidState(key, read.failure()))
    selected, read_paths = draft.track_reads(read.unwrap(), selector)
    return Success(Looked(selected, held.reads(schema, read_paths), held.revision))
