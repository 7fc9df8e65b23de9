"""One change of a store's state as a pure decision: what an updater did, made valid and written down."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

import msgspec
from msgspec import Struct

from . import patch
from .draft import run
from .model import Issue, Paths, Replace
from .outcome import Failure, Outcome, Success
from .paths import diff, minimal
from .schema import StateSchema, Valid
from .value import NotStorable

__all__ = ["Change", "decide_change"]

_T = TypeVar("_T")
_T_co = TypeVar("_T_co", covariant=True)


class Change(Struct, Generic[_T_co], frozen=True):
    """A canonical state after a change, its document, the patch to it from the document before, and what changed."""

    state: _T_co
    json: bytes
    patch_json: bytes
    changed_paths: Paths


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
    validation changed more, they come from a strict comparison of the two states. An updater that changed nothing
    leaves the very state, an empty patch and no paths. `as_encoded` says that `json` is known to be what the schema
    makes of `state`, as it is after a change; otherwise that is looked at.
    """
    try:
        drafted = run(state, updater, schema.key_types)
    except NotStorable as error:
        return Failure((Issue((), str(error)),))
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
    before, after = msgspec.json.decode(json), msgspec.json.decode(valid.json)
    if (
        not as_encoded and schema.encode(state) != json
    ):  # written by an earlier form of the type: the documents differ by more
        changed = minimal((*changed, *diff(before, after)))
    return Change(valid.state, valid.json, patch.encode(patch.between(before, after, changed)), changed)
