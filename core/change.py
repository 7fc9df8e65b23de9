"""One change of a store's state as a pure decision: what the updater did, made valid and written down."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from .model import Issue, Paths, Replace
from .outcome import Outcome
from .schema import StateSchema

__all__ = ["Change", "decide_change"]

_T = TypeVar("_T")
_T_co = TypeVar("_T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Change(Generic[_T_co]):
    """The state after a change, its document, the patch that leads to it from the document before, and what changed."""

    state: _T_co
    json: bytes
    patch_json: bytes
    changed_paths: Paths


def decide_change(
    schema: StateSchema[_T], state: _T, json: bytes, updater: Callable[[_T], Replace[_T] | None]
) -> Outcome[Change[_T], tuple[Issue, ...]]:
    """What `updater` makes of `state`, whose document is `json`; or all that is wrong with the state it made.

    `state` is canonical (from `validate`, `decode` or an earlier change) and is never changed. What the updater raises
    is passed on, and so is TypeError for an updater that breaks a rule of `draft.apply`.
    """
    raise NotImplementedError
