"""One change of a store's state as a pure decision: what an updater did, made valid and written down."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Generic, Literal, TypeVar

import msgspec
from msgspec import Struct

from . import draft, patch
from .batch import Form
from .draft import Drafted, run
from .form import version_of
from .model import Issue, Paths, Replace
from .outcome import Failure, Outcome, Success
from .paths import diff, minimal
from .schema import Settled, StateSchema
from .value import NotStorable

__all__ = ["NOTHING", "Change", "Claimed", "Miss", "decide_change", "decide_take"]

_R = TypeVar("_R")
_R_co = TypeVar("_R_co", covariant=True)
_T = TypeVar("_T")
_T_co = TypeVar("_T_co", covariant=True)


class Change(Struct, Generic[_T_co], frozen=True):
    """A canonical state after a change, the patch to its document from the document before, and what changed.

    `json` is the whole document, where it had to be written to find the patch.
    """

    state: _T_co
    patch_json: bytes
    changed_paths: Paths
    json: bytes | None = None

    @property
    def is_nothing(self) -> bool:
        """Whether nothing was changed: not even a document that another form of the type has written."""
        return self.json is None and self.patch_json == NOTHING


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
    updater: Callable[[_T], Replace[_T] | None],
    *,
    stored: bytes | None = None,
    form: Form | None = None,
) -> Outcome[Change[_T], tuple[Issue, ...]]:
    """What `updater` makes of `state`; or all that is wrong with the state it made.

    `state` is canonical, and is never changed. What the updater raises is passed on, and so is TypeError for an updater
    that breaks a rule of drafts. The changed paths are what the updater wrote; where it replaced the state, or where
    validation changed more, they come from a strict comparison of the two states. An updater that changed nothing, or
    wrote what was there already, leaves the very state, an empty patch and no paths. `stored` is the document of the
    state, if it may be another than the schema makes of it, as one is that an earlier form of the type has written,
    and `form` is its form; one of an earlier version is written anew even if the updater changed nothing.
    """
    try:
        drafted = run(state, updater, schema.key_types)
    except NotStorable as error:
        return Failure((Issue((), str(error)),))
    return _settled(schema, state, drafted, stored, form)


def decide_take(
    schema: StateSchema[_T],
    state: _T,
    selector: Callable[[_T], _R | Literal[False] | None],
    claim: Callable[[_T, _R], None],
    *,
    stored: bytes | None = None,
    form: Form | None = None,
) -> Outcome[Claimed[_T, _R] | Miss, tuple[Issue, ...]]:
    """What `claim` makes of what `selector` finds in `state`, as `decide_change` does; or what the selector read."""
    try:
        took = draft.take(state, selector, claim, schema.key_types)
    except NotStorable as error:
        return Failure((Issue((), str(error)),))
    selected = took.selected
    if took.drafted is None or selected is None or selected is False:
        return Success(Miss(took.read_paths))
    settled = _settled(schema, state, took.drafted, stored, form)
    return settled if isinstance(settled, Failure) else Success(Claimed(selected, settled.unwrap()))


NOTHING: Final = patch.encode(patch.Patch())
"""The patch of a change that changes nothing."""


def _settled(
    schema: StateSchema[_T], state: _T, drafted: Drafted[_T], stored: bytes | None, form: Form | None
) -> Outcome[Change[_T], tuple[Issue, ...]]:
    is_older = stored is not None and version_of(form) < schema.form.version
    if drafted.state is state and drafted.written == ():
        if not is_older:
            return Success(Change(state, NOTHING, ()))
        settled: Settled[_T] | Failure[tuple[Issue, ...]] = Settled(state, patch.Patch(), ())
    else:
        settled = schema.settled(state, drafted.state, drafted.written)
    if isinstance(settled, Failure):
        return settled
    if stored is not None and is_older:
        return Success(_rewritten(schema, settled, stored))
    if not settled.patch.operations:
        return Success(Change(state, NOTHING, ()))
    if stored is not None and schema.encode(state) != stored:
        return Success(_rewritten(schema, settled, stored))
    return Success(Change(settled.state, patch.encode(settled.patch), settled.changed))


def _rewritten(schema: StateSchema[_T], settled: Settled[_T], stored: bytes) -> Change[_T]:
    """The change of a state whose document an earlier form of the type wrote: the documents differ by more."""
    json = schema.encode(settled.state)
    before, after = msgspec.json.decode(stored), msgspec.json.decode(json)
    changed = minimal((*settled.changed, *diff(before, after)))
    return Change(settled.state, patch.encode(patch.between(before, after, changed)), changed, json)
