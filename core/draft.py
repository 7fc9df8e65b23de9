"""Drafts: an updater changes a state as if it were its own; the state itself is never touched.

`apply` gives the updater a draft, which reads like the state and takes every change that the state would take, and
answers with the changed state, the paths that changed and the patch that leads there. What holds:

- The state that came in is a value for ever: nothing an updater can do reaches it. The result shares what was not
  touched with it, and holds no draft.
- A value that the updater stores is copied: later changes to the updater's own object are not part of the state. An
  object stored twice is two values; one that holds itself is a NotStorable, which is a ValueError.
- A draft that is in the state no more lives on where it is stored, or was stored last as a copy: writes to it are kept.
  Where that cannot be, since the copy has become another value, a write to it is a RuntimeError.
- An updater returns nothing, or `Replace(value)`. Coroutines, generators and every other return value are bugs and
  raise TypeError, and so does a key that is not text in a dict that declares no others.
- When the updater has ended, its draft and every part of it are dead: to use one raises `DraftEnded`.

`track_reads` gives a selector a view, which reads like the state, takes no change and remembers what was read. `take`
runs a selector, and a claim on the drafts of what it found. Views and drafts are alike in what user code sees of them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Generic, Literal, TypeGuard, TypeVar

from msgspec import Struct

from .drafts import dicts, lists, read_records, read_sets, read_views, record_faces, sets, tuples
from .drafts.faces import child_of, node_of
from .drafts.intake import plain
from .drafts.node import Context, DraftEnded, Root
from .drafts.read_marks import Reads, first_reads
from .drafts.reads import made_view
from .drafts.results import Selected, detach_error, detached
from .kind import ATOMS, stands_for
from .model import Paths, Replace
from .patch import Patch, between
from .paths import diff, minimal

__all__ = ["TEXT_KEYS", "Applied", "DraftEnded", "Drafted", "Took", "apply", "run", "take", "track_reads"]

_R = TypeVar("_R")
_R_co = TypeVar("_R_co", covariant=True)
_T = TypeVar("_T")
_T_co = TypeVar("_T_co", covariant=True)

TEXT_KEYS: Final[frozenset[type[object]]] = frozenset({str})
"""Types of keys that may be written where the type of the state declares none."""

_KINDS: Final = (
    dicts,
    lists,
    record_faces,
    sets,
    tuples,
    read_records,
    read_sets,
    read_views,
)  # importing them registers them


@dataclass(frozen=True, slots=True)
class Applied(Generic[_T_co]):
    """A state after an updater, what changed in it, and the patch that makes it from the state before."""

    state: _T_co
    changed_paths: Paths
    patch: Patch


class Drafted(Struct, Generic[_T_co], frozen=True):
    """What an updater made: the new state, and the paths it wrote; None if it replaced the whole state."""

    state: _T_co
    written: Paths | None


class Took(Struct, Generic[_R_co, _T_co], frozen=True):
    """What a selector found, as it is after the claim, which paths it read, and what the claim made of the state.

    A selector that found nothing gives None or False, and no `drafted`: no claim ran.
    """

    selected: _R_co | Literal[False] | None
    read_paths: Paths
    drafted: Drafted[_T_co] | None


def apply(state: _T, updater: Callable[[_T], Replace[_T] | None]) -> Applied[_T]:
    """Run `updater` on a draft of `state`; what it raises is passed on. `state` is not changed in any case.

    Dicts take text keys; one that holds keys of another type takes that type.
    """
    drafted = run(state, updater)
    changed = diff(state, drafted.state) if drafted.written is None else drafted.written
    return Applied(drafted.state, changed, between(state, drafted.state, changed))


def run(
    state: _T, updater: Callable[[_T], Replace[_T] | None], key_types: frozenset[type[object]] = TEXT_KEYS
) -> Drafted[_T]:
    """Like `apply`, without the patch. `key_types` are the types of keys that the type of the state declares."""
    context = Context(key_types)
    root = Root(state, None, None, context)
    try:
        draft: _T = stands_for(state, state if type(state) in ATOMS else child_of(root, None, state))
        returned = updater(draft)
        if returned is None:
            return Drafted(stands_for(state, root.value()), root.changed_paths())
        if _is_replace(returned):
            return Drafted(stands_for(state, plain(returned.value, root)), None)
    except BaseException as error:
        detach_error(error)
        raise
    finally:
        context.end()
    raise TypeError(_complaint(updater, returned))


def track_reads(state: _T, selector: Callable[[_T], _R]) -> tuple[_R, Paths]:
    """What `selector` finds in `state`, as a private copy, and the paths that it read, none beneath another.

    What it raises is passed on. A TypeError for a selector that changes the state, is async or a generator, or gives an
    iterator. One that reads nothing has read the root. Whatever it returns a part of has been read as a whole there.
    """
    reads = first_reads()
    try:
        view = state if type(state) in ATOMS else stands_for(state, made_view(state, reads, None, None))
        found = selector(view)
        if type(found) in ATOMS:
            return found, reads.paths()
        selected = Selected(_admitted("selector", selector, found))
        result = selected.detached()
        return stands_for(found, result), _paths(reads, selected)
    except BaseException as error:
        detach_error(error)
        raise
    finally:
        reads.extent.end()


def _paths(reads: Reads, selected: Selected) -> Paths:
    return minimal((*reads.paths(), *selected.paths)) if selected.paths else reads.paths()


def take(
    state: _T,
    selector: Callable[[_T], _R | Literal[False] | None],
    claim: Callable[[_T, _R], object],
    key_types: frozenset[type[object]] = TEXT_KEYS,
) -> Took[_R, _T]:
    """Run `selector`, once, as `track_reads` does, and then `claim` on a draft of the state and on what was found.

    None and False are a miss. What was found has drafts in it wherever the selector returned a part of the state, also
    within a list, dict, tuple or set that it made. What the claim returns is ignored, but it must be an ordinary
    function. `key_types` are the types of keys that the type of the state declares.
    """
    reads, context = first_reads(), Context(key_types)
    root = Root(state, None, None, context)
    try:
        draft: _T = stands_for(state, state if type(state) in ATOMS else child_of(root, None, state))
        try:
            found = selector(stands_for(state, state if type(state) in ATOMS else made_view(state, reads, None, None)))
            if found is None or found is False:
                return Took(found, reads.paths(), None)
            selected = Selected(_admitted("selector", selector, found))
            chosen = stands_for(found, selected.drafted(root))
            read_paths = _paths(reads, selected)
        except BaseException as error:
            detach_error(error)
            raise
        finally:
            reads.extent.end()
        _admitted("claim", claim, claim(draft, chosen))
        result = stands_for(found, detached(chosen))
        return Took(result, read_paths, Drafted(stands_for(state, root.value()), root.changed_paths()))
    except BaseException as error:
        detach_error(error)
        raise
    finally:
        context.end()


# --- what callbacks return ----------------------------------------------------------


def _is_replace(returned: object) -> TypeGuard[Replace[object]]:
    return isinstance(returned, Replace)  # an updater without types may return anything


def _admitted(what: str, callback: object, returned: _R) -> _R:
    """What a callback returned; a TypeError if that shows that the callback is no ordinary function."""
    unusual = _unusual(what, callback, returned)
    if unusual is not None:
        raise TypeError(unusual)
    return returned


def _unusual(what: str, callback: object, returned: object) -> str | None:
    if inspect.iscoroutine(returned) or inspect.isgenerator(returned):
        returned.close()
    name = _name(callback)
    if inspect.isawaitable(returned):
        return f"the {what} {name} must be an ordinary function: it is async, or returned an awaitable"
    if inspect.isgenerator(returned) or inspect.isasyncgen(returned):
        return f"the {what} {name} must be an ordinary function: it is a generator, or returned one"
    return None


def _name(callback: object) -> str:
    name: str | None = getattr(callback, "__qualname__", None)
    return name or repr(callback)


def _complaint(updater: object, returned: object) -> str:
    unusual = _unusual("updater", updater, returned)
    if unusual is not None:
        return unusual
    name = _name(updater)
    if node_of(returned) is not None:
        return f"the updater {name} returned a draft; a draft is changed in place: return nothing, or Replace(value)"
    kind = type(returned).__name__
    return (
        f"the updater {name} returned a value of type {kind}; change the draft in place and return nothing (a lambda "
        "returns what its call gives: write a def), or return Replace(value) to replace the whole state"
    )
