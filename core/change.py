"""One change of a store's state as a pure decision: what an updater did, made valid and written down."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Literal, TypeVar

import msgspec
from msgspec import Struct

from . import draft, patch
from .draft import Drafted, run
from .model import Issue, Paths, Replace
from .outcome import Failure, Outcome, Success
from .paths import diff, minimal
from .schema import StateSchema, Valid
from .value import NotStorable

__all__ = ["Change", "Claimed", "Miss", "decide_change", "decide_take"]

_R = TypeVar("_R")
_R_co = TypeVar("_R_co", covariant=True)
_T = TypeVar("_T")
_T_co = TypeVar("_T_co", covariant=True)


class Change(Struct, Generic[_T_co], frozen=True):
    """A canonical state after a change, its document, the patch to it from the document before, and what changed."""

    state: _T_co
    json: bytes
    patch_json: bytes
    changed_paths: Paths


class Claimed(Struct, Generic[_T_co, _R_co], frozen=True):
    """What a selector found, as the claim left it and shared with nobody, and the change that the claim made."""

    selected: _R_co
    change: Change[_T_co]


class Miss(Struct, frozen=True):
    """A selector found nothing; what it read."""

    read_paths: Paths


def decide_change(
    schema: StateSchema[_T],
    state: _T,
    json: bytes,
    updater: Callable[[_T], Replace[_T] | None],
    *,
    as_encoded: bool = False,
) -> Outcome[Change[_T], tuple[Issue, ...]]:
    """What `updater` makes of `state`, whose document is `json`; or all that is wrong with the state it made.

    `state` is canonical, and is never changed. What the updater raises is passed on, and so is TypeError for an updater
    that breaks a rule of drafts. The changed paths are what the updater wrote; where it replaced the state, or where
    validation changed more, they come from a strict comparison of the two states. An updater that changed nothing, or
    wrote what was there already, leaves the very state, an empty patch and no paths. `as_encoded` says that `json` is
    known to be what the schema makes of `state`, as it is after a change; otherwise that is looked at.
    """
    try:
        drafted = run(state, updater, schema.key_types)
    except NotStorable as error:
        return Failure((Issue((), str(error)),))
    return _settled(schema, state, json, drafted, as_encoded)


def decide_take(
    schema: StateSchema[_T],
    state: _T,
    json: bytes,
    selector: Callable[[_T], _R | Literal[False] | None],
    claim: Callable[[_T, _R], None],
    *,
    as_encoded: bool = False,
) -> Outcome[Claimed[_T, _R] | Miss, tuple[Issue, ...]]:
    """What `claim` makes of what `selector` finds in `state`, as `decide_change` does; or what the selector read."""
    try:
        took = draft.take(state, selector, claim, schema.key_types)
    except NotStorable as error:
        return Failure((Issue((), str(error)),))
    selected = took.selected
    if took.drafted is None or selected is None or selected is False:
        return Success(Miss(took.read_paths))
    settled = _settled(schema, state, json, took.drafted, as_encoded)
    return settled if isinstance(settled, Failure) else Success(Claimed(selected, settled.unwrap()))


def _settled(
    schema: StateSchema[_T], state: _T, json: bytes, drafted: Drafted[_T], as_encoded: bool
) -> Outcome[Change[_T], tuple[Issue, ...]]:
    if drafted.written is None:
        match schema.validate(drafted.state):
            case Success(valid):
                return Success(_change(schema, state, json, valid, diff(state, valid.state), as_encoded))
            case Failure() as failed:
                return failed
    if drafted.state is state:
        return Success(Change(state, json, _NOTHING, ()))
    match schema.settle(drafted.state, drafted.written):
        case Success(settled):
            valid = settled.valid
            changed = drafted.written if settled.as_written else diff(state, valid.state)
            return Success(_change(schema, state, json, valid, changed, as_encoded))
        case Failure() as failed:
            return failed


_NOTHING = patch.encode(patch.Patch())


def _change(
    schema: StateSchema[_T], state: _T, json: bytes, valid: Valid[_T], changed: Paths, as_encoded: bool
) -> Change[_T]:
    if valid.json == json:  # what was written equals what was there
        return Change(state, json, _NOTHING, ())
    before, after = msgspec.json.decode(json), msgspec.json.decode(valid.json)
    if (
        not as_encoded and schema.encode(state) != json
    ):  # written by an earlier form of the type: the documents differ by more
        changed = minimal((*changed, *diff(before, after)))
    return Change(valid.state, valid.json, patch.encode(patch.between(before, after, changed)), changed)
