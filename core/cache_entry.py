"""What may be a row of the step cache, and a row as it is stored: keys, names of rows, and JSON within its limits."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final, TypeGuard

from msgspec import DecodeError
from msgspec.json import decode

from .canonical_json import NotCanonical, canonical_json
from .journal import SAFE_INTEGER
from .model import check_name, check_whole
from .outcome import Failure, Outcome, Success
from .provenance import CACHE_JOURNAL
from .recorded_row import RecordedRow
from .step_cache import KEY_CHARACTERS, RESULT_BYTES, CacheEntry, InvalidEntry, RecordedRef

__all__ = [
    "MEMBER_BYTES",
    "NODES",
    "admit_entry",
    "admit_row",
    "check_key",
    "check_ref",
    "read_entry",
]

NODES: Final = 100_000
"""How many values a result, or a meta, may have, lists and objects counted with what is in them."""

MEMBER_BYTES: Final = 16 * 1024
"""The longest name of an object's member, in bytes of UTF-8."""

_is_key: Final = re.compile(rf"[A-Za-z0-9_-]{{1,{KEY_CHARACTERS}}}").fullmatch


def check_key(key: object) -> str:
    """`key`, if it can be one. Otherwise a TypeError or a ValueError."""
    if not isinstance(key, str):
        raise TypeError(f"a cache key is text, not {key!r}")
    if _is_key(key) is None:
        shown = repr(key if len(key) <= 80 else key[:80] + "...")
        raise ValueError(f'a cache key is 1 to {KEY_CHARACTERS} letters, digits, "-" and "_", not {shown}')
    return key


def check_ref(ref: object, key: str | None = None) -> RecordedRef:
    """`ref`, if a row can have that name, under this key. Otherwise a TypeError or a ValueError."""
    if not isinstance(ref, RecordedRef):
        raise TypeError(f"a row of the step cache is named by a RecordedRef, not {ref!r}")
    if check_key(ref.key_digest) != (ref.key_digest if key is None else key):
        raise ValueError(f"the row {ref} has another key than {key!r}")
    _ = check_name("the id of the run that recorded a row", ref.recorded_run_id)
    _check_number("the number of the entry that recorded a row", ref.recorded_event_seq)
    return ref


def admit_entry(entry: CacheEntry) -> Outcome[RecordedRow, InvalidEntry]:
    """The row to be stored for an entry, or what is wrong with it."""
    ref = entry.ref
    try:
        _ = check_ref(ref)
    except (TypeError, ValueError) as error:
        return Failure(InvalidEntry(str(error)))
    return admit_row(
        ref.key_digest, ref.recorded_run_id, ref.recorded_event_seq, entry.result, entry.meta, entry.created_at_ms
    )


def admit_row(
    key: str, run_id: str, seq: int | None, result: object, meta: object, created_at_ms: int
) -> Outcome[RecordedRow, InvalidEntry]:
    """The same for its parts; `seq` None is the number of the run's next entry."""
    try:
        _ = check_key(key)
        if check_name("the id of the run that recorded a row", run_id) == CACHE_JOURNAL:
            raise ValueError(f"{CACHE_JOURNAL!r} is the journal of the step cache, and no run")
        _check_number("when a row was recorded", created_at_ms)
        stored, beside = _json("the result", result), _json("the meta", _members_of(meta))
    except (TypeError, ValueError) as error:
        return Failure(InvalidEntry(str(error)))
    return Success(RecordedRow(key, run_id, seq, stored, beside, created_at_ms))


def read_entry(ref: RecordedRef, row: RecordedRow) -> CacheEntry | None:
    """What a stored row holds, made anew: the caller's own. None if it is not JSON, and so not what was written."""
    try:
        result: object = decode(row.result)
        meta: object = decode(row.meta)
    except (DecodeError, UnicodeDecodeError):
        return None
    return CacheEntry(ref, result, meta, row.created_at_ms) if _is_object(meta) else None


# --- parts ------------------------------------------------------------------


def _check_number(what: str, number: object) -> None:
    if check_whole(what, number, 0) > SAFE_INTEGER:
        raise ValueError(f"{what} is at most {SAFE_INTEGER}, not {number}")


def _members_of(meta: object) -> dict[object, object]:
    if not _is_mapping(meta):
        raise TypeError(f"the meta of a row is a mapping, not {type(meta).__name__}")
    return dict(meta)


def _json(what: str, value: object) -> bytes:
    """A value as canonical JSON. ValueError: it is not JSON, or more than a row may hold."""
    _check_nodes(what, value)
    try:
        json = canonical_json(value)
    except NotCanonical as error:
        raise ValueError(f"{what} cannot be kept: {error}") from None
    if len(json) > RESULT_BYTES:
        raise ValueError(f"{what} has {len(json)} bytes as JSON; at most {RESULT_BYTES} are kept")
    return json


def _check_nodes(what: str, value: object) -> None:
    """ValueError for more values than are kept. What holds itself has no end of them; each place counts."""
    left = NODES - 1
    rest = [value]
    while rest:
        items = _inside(what, rest.pop())
        if len(items) > left:
            raise ValueError(f"{what} has more than {NODES} values")
        left -= len(items)
        rest.extend(items)


def _inside(what: str, value: object) -> list[object]:
    if _is_list(value):
        return value
    if not _is_object(value):
        return []
    longest = max((key for key in value if type(key) is str), key=len, default="")
    if len(longest) > MEMBER_BYTES // 4 and _is_long(value):
        raise ValueError(f"{what} has a member whose name is longer than {MEMBER_BYTES} bytes")
    return list(value.values())


def _is_long(names: Iterable[object]) -> bool:
    texts = (name for name in names if isinstance(name, str))
    return any(len(text.encode("utf-8", "surrogatepass")) > MEMBER_BYTES for text in texts)


def _is_mapping(value: object) -> TypeGuard[Mapping[object, object]]:
    return isinstance(value, Mapping)


def _is_object(value: object) -> TypeGuard[dict[str, object]]:
    return type(value) is dict


def _is_list(value: object) -> TypeGuard[list[object]]:
    return type(value) is list
