"""Events: what is given to be appended, checked, redacted, and made into an entry.

    check      names, numbers, and that payload and meta are JSON
    redact     unless stepwell's own folds read it (`core/events.py`)
    encode     with members in order, so that what is the same has the same bytes, and the same identity

Nothing that was given is kept: an entry holds bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Final, TypeGuard

import msgspec

from .entry import NewEntry, identity_of
from .events import VERBATIM
from .journal import PAYLOAD_BYTES, SAFE_INTEGER, InvalidEvent, Source
from .model import check_name
from .outcome import Failure, Outcome, Success
from .redaction import DEPTH, REDACTED, Redactor, TooDeep

__all__ = [
    "META_BYTES",
    "Event",
    "Spill",
    "encode_json",
    "new_entry",
    "positive",
    "redacted",
    "spilled_entry",
    "too_large",
]

META_BYTES: Final = 64 * 1024
"""The largest meta, as JSON."""

_encoder: Final = msgspec.json.Encoder(order="deterministic")
_HIDDEN: Final = msgspec.json.encode(REDACTED)


@dataclass(frozen=True, slots=True)
class Event:
    """What is given: the arguments of `Journal.append` that make an entry."""

    run_id: str
    event_type: str
    payload: object
    source: Source | None = None
    meta: Mapping[str, object] | None = None


class Spill(msgspec.Struct, frozen=True, gc=False):
    """The payload of an entry whose real one is an artifact: its digest, and its length."""

    artifact: str
    size_bytes: int


# --- an entry -----------------------------------------------------------------


def new_entry(event: Event, redactor: Redactor | None) -> Outcome[NewEntry, InvalidEvent]:
    """The entry for an event, its payload of whatever size; `redactor` None stores everything verbatim."""
    try:
        _check_names(event)
        plain = redactor is None or event.event_type in VERBATIM
        payload = _encoded("the payload", event.payload, None if plain else redactor)
        meta = None
        if event.meta is not None:
            meta = _encoded("the meta", _members(event.meta), None if plain else redactor)
            if len(meta) > META_BYTES:
                raise _Invalid(f"the meta is {len(meta)} bytes of JSON, and at most {META_BYTES} are kept")
    except _Invalid as invalid:
        return Failure(InvalidEvent(str(invalid)))
    identity = b"" if event.source is None else identity_of(event.event_type, payload, meta)
    return Success(NewEntry(event.event_type, payload, event.source, identity, meta))


def spilled_entry(entry: NewEntry, digest: str) -> NewEntry:
    """The entry with its payload in the artifact of this digest. It is the same entry, and has the same identity."""
    payload = _encoder.encode(Spill(digest, len(entry.payload)))
    return NewEntry(entry.event_type, payload, entry.source, entry.identity, entry.meta, spilled=True)


def redacted(entry: NewEntry, redactor: Redactor | None) -> NewEntry:
    """The same for an entry that somebody else has made. What cannot be redacted is left out of it."""
    if redactor is None or entry.event_type in VERBATIM or entry.spilled:
        return entry
    payload = _redacted_json(entry.payload, redactor)
    meta = None if entry.meta is None else _redacted_json(entry.meta, redactor)
    if payload == entry.payload and meta == entry.meta:
        return entry
    of_content = entry.identity == identity_of(entry.event_type, entry.payload, entry.meta)
    identity = identity_of(entry.event_type, payload, meta) if of_content else entry.identity
    return NewEntry(entry.event_type, payload, entry.source, identity, meta)


def too_large(entry: NewEntry, payload_bytes: int = PAYLOAD_BYTES) -> InvalidEvent | None:
    """What stands against an entry whose payload has no other place than the journal."""
    size = len(entry.payload)
    if size <= payload_bytes:
        return None
    return InvalidEvent(
        f"the payload is {size} bytes of JSON, and at most {payload_bytes} are kept in the journal: "
        "put it into artifacts and append its digest, or build the journal with layer_spilling()"
    )


def positive(what: str, number: object) -> InvalidEvent | None:
    """What is wrong with an option that is a whole number of at least 1."""
    if type(number) is int and number >= 1:
        return None
    return InvalidEvent(f"{what} is a whole number of at least 1, not {number!r}")


# --- checks -------------------------------------------------------------------


class _Invalid(Exception):
    """Why something is no event."""


def _check_names(event: Event) -> None:
    try:
        _ = check_name("a run's id", event.run_id)
        _ = check_name("an event type", event.event_type)
        if event.source is not None:
            _check_source(event.source)
    except (TypeError, ValueError) as error:
        raise _Invalid(str(error)) from None


def _check_source(source: object) -> None:
    if not isinstance(source, Source):
        raise TypeError(f"a source is a Source, not {source!r}")
    _ = check_name("a source's id", source.id)
    if type(source.seq) is not int or not 0 <= source.seq < SAFE_INTEGER:
        raise ValueError(f"a source's number is a whole number from 0 to below {SAFE_INTEGER}, not {source.seq!r}")


def _members(meta: object) -> dict[object, object]:
    if not _is_mapping(meta):
        raise _Invalid(f"the meta is a mapping, not a {type(meta).__name__}")
    return dict(meta)


def _encoded(what: str, value: object, redactor: Redactor | None) -> bytes:
    _check_json(value, what)
    if redactor is not None:
        left = _without_secrets(what, value, redactor)
        if left is not value:
            _check_json(left, what)
            value = left
    return _written(what, value)


def _written(what: str, value: object) -> bytes:
    try:
        return _encoder.encode(value)
    except (ValueError, RecursionError) as error:  # more digits than Python writes; text that is no Unicode
        raise _Invalid(f"{what} cannot be written as JSON: {error}") from None


def _without_secrets(what: str, value: object, redactor: Redactor) -> object:
    """A redactor may raise what it likes; its text may have in it what it was to take out, and is not told."""
    try:
        return redactor(value)
    except TooDeep as error:
        raise _Invalid(f"{what}: {error}") from None
    except Exception:
        raise _Invalid(f"{what} could not be redacted, so it is not stored") from None


def _redacted_json(data: bytes, redactor: Redactor) -> bytes:
    try:
        value: object = msgspec.json.decode(data)
        left = redactor(value)
        return data if left is value else _encoder.encode(left)
    except Exception:
        return _HIDDEN


def encode_json(what: str, value: object) -> Outcome[bytes, str]:
    """A JSON value as canonical bytes, or why it is none."""
    try:
        return Success(_encoded(what, value, None))
    except _Invalid as invalid:
        return Failure(str(invalid))


def _check_json(value: object, what: str) -> None:
    """None, a bool, an int, a float, text, a list, or a dict with text keys; not nested too deeply, as what holds
    itself is. It goes level by level, however deep the caller's own stack is, and looks at what is shared there once.
    """
    level: list[object] = [value]
    for _ in range(DEPTH + 1):
        beneath: dict[int, list[object] | Mapping[object, object]] = {}
        for each in level:
            kind = type(each)
            if each is None or kind is str or kind is int or kind is bool:
                continue
            if (_is_list(each) and kind is list) or (_is_mapping(each) and kind is dict):
                beneath[id(each)] = each
            elif not (kind is float and isinstance(each, float) and isfinite(each)):
                raise _Invalid(f"{what} holds {_told(each)}, which is not JSON")
        if not beneath:
            return
        level = _within(beneath.values(), what)
    raise _Invalid(f"{what} is nested more than {DEPTH} levels deep, or holds itself")


def _within(containers: Iterable[list[object] | Mapping[object, object]], what: str) -> list[object]:
    found: list[object] = []
    for each in containers:
        if isinstance(each, list):
            found += each
            continue
        for name in each:
            if type(name) is not str:
                raise _Invalid(f"{what} has a member whose name is a {type(name).__name__}, and names are text")
        found += each.values()
    return found


def _told(value: object) -> str:
    """A value is not shown: it may be a secret."""
    return str(value) if isinstance(value, float) else f"a {type(value).__name__}"


def _is_list(value: object) -> TypeGuard[list[object]]:
    return isinstance(value, list)


def _is_mapping(value: object) -> TypeGuard[Mapping[object, object]]:
    return isinstance(value, Mapping)
