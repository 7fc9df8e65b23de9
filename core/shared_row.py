"""A recorded row as it stands in a shared tier: one JSON document that names its key and carries its seal.

    {"kind": "stepwell.cache-row", "v": 1, "key": "key1_...", "run": "r-1", "seq": 3, "created_at_ms": 17,
     "result": ..., "meta": {...}, "seal": "<64 hex digits>"}

It is canonical JSON. Its seal is that of the recorded row, so that whatever was changed on the way is noticed. Who
wrote it is not: a seal is no signature, and whoever may write to a tier is trusted.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from hashlib import sha256
from typing import Final, Never, TypeGuard, final

from .cache_entry import admit_entry
from .canonical_json import SAFE_INTEGER, canonical_json
from .outcome import Failure
from .recorded_row import seal
from .step_cache import KEY_CHARACTERS, RESULT_BYTES, CacheEntry, InvalidEntry, RecordedRef

__all__ = [
    "ROW_BYTES",
    "OtherKey",
    "TierNonsense",
    "is_shareable",
    "read_row",
    "row_name",
    "same_result",
    "write_row",
]

ROW_BYTES: Final = 2 * RESULT_BYTES + 64 * 1024
"""The largest document, in bytes: a result, meta, and what is beside them."""

_KIND: Final = "stepwell.cache-row"
_VERSION: Final = 1
_MEMBERS: Final = frozenset(("kind", "v", "key", "run", "seq", "created_at_ms", "result", "meta", "seal"))
_WHOLE_DIGITS: Final = 17


@final
@dataclass(frozen=True, slots=True)
class TierNonsense:
    """What came from a shared tier is not what was asked for, and why. It was not used."""

    message: str


@final
@dataclass(frozen=True, slots=True)
class OtherKey:
    """A shared tier answered with the row of another key. It was not used."""

    asked: str
    named: str


# --- names, and what may be shared ------------------------------------------


def row_name(key: str) -> str:
    """Under which name a tier keeps the row of a key: 64 hex digits, whatever the key looks like.

    The prefix keeps it apart from the actions of a build tool that uses the same server.
    """
    return sha256(f"{_KIND}\0{key}".encode()).hexdigest()


def is_shareable(entry: CacheEntry) -> bool:
    """Whether a row may be in a shared tier at all: only if it was proved that the step read nothing undeclared.

    What says itself that it is for fewer (`core/cached_row.py`) is not shared either.
    """
    meta = entry.meta
    return meta.get("evidence") == "enforced" and meta.get("reach", "shared") == "shared" and meta.get("scope") is None


# --- writing ----------------------------------------------------------------


def write_row(entry: CacheEntry) -> bytes | InvalidEntry:
    """The document of a row, or why it can be none."""
    admitted = admit_entry(entry)
    if isinstance(admitted, Failure):
        return admitted.failure()
    row = admitted.unwrap()
    members = {
        "kind": canonical_json(_KIND),
        "v": canonical_json(_VERSION),
        "key": canonical_json(row.key_digest),
        "run": canonical_json(row.run_id),
        "seq": canonical_json(row.seq),
        "created_at_ms": canonical_json(row.created_at_ms),
        "result": row.result,  # as it is: a level more would make the deepest values too deep
        "meta": row.meta,
        "seal": canonical_json(seal(row).hex()),
    }
    return b"{" + b",".join(b'"%s":%s' % (name.encode(), members[name]) for name in sorted(members)) + b"}"


def same_result(one: CacheEntry, other: CacheEntry) -> bool:
    """Whether two rows of one key agree; their meta does not count. Both are rows that can be written."""
    return canonical_json(one.result) == canonical_json(other.result)


# --- reading ----------------------------------------------------------------


def read_row(data: bytes, key: str) -> CacheEntry | TierNonsense | OtherKey:
    """The row of `key` in a document, verified; nothing of another document is to be used."""
    try:
        value: object = json.loads(data, parse_int=_number, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        return TierNonsense(f"it is no JSON: {type(error).__name__}")
    if not _is_members(value) or value.keys() != _MEMBERS or value["kind"] != _KIND:
        return TierNonsense("it is JSON, but no row of a step cache")
    if type(value["v"]) is not int or value["v"] != _VERSION:
        return TierNonsense("it is a row in a form of another version")
    named, run, seq, at_ms, meta = value["key"], value["run"], value["seq"], value["created_at_ms"], value["meta"]
    if not (
        isinstance(named, str) and isinstance(run, str) and _is_whole(seq) and _is_whole(at_ms) and _is_members(meta)
    ):
        return TierNonsense("it is a row with a member that none can have")
    if named != key:
        return OtherKey(key, named[:KEY_CHARACTERS])
    entry = CacheEntry(RecordedRef(named, run, seq), value["result"], meta, at_ms)
    admitted = admit_entry(entry)
    if isinstance(admitted, Failure):
        return TierNonsense(f"it is a row that none can be: {admitted.failure().message}")
    if value["seal"] != seal(admitted.unwrap()).hex():
        return TierNonsense("it is not as it was written: its seal is broken")
    return entry


def _number(digits: str) -> int | float:
    """A whole number as it was before it was written: canonical JSON writes 1e20 as an integer."""
    if len(digits) <= _WHOLE_DIGITS:
        number = int(digits)
        if abs(number) <= SAFE_INTEGER:
            return number
    return float(digits)


def _refuse(constant: str) -> Never:
    raise ValueError(f"{constant} is no JSON")


def _is_members(value: object) -> TypeGuard[dict[str, object]]:
    """Whether a value that came from JSON is an object; its keys are text then."""
    return isinstance(value, dict)


def _is_whole(value: object) -> TypeGuard[int]:
    return type(value) is int
