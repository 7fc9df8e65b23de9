"""A recorded row of the step cache as a ledger keeps it, and the seal by which a damaged one is known."""

from __future__ import annotations

from hashlib import sha256
from typing import Final

from msgspec import Struct
from msgspec.msgpack import Encoder

from .step_cache import RecordedRef

__all__ = ["HeadRow", "RecordedRow", "StoredRow", "result_digest", "seal"]

_encode: Final = Encoder().encode


class RecordedRow(Struct, frozen=True, gc=False):
    """One result that was recorded under a cache key. Never changed; gone only with its run.

    `result` and `meta` are canonical JSON. `seq` None is the number that its entry in the run's journal will get.
    """

    key_digest: str
    run_id: str
    seq: int | None
    result: bytes
    meta: bytes
    created_at_ms: int


class StoredRow(Struct, frozen=True, gc=False):
    """What is stored of a recorded row; `row` is None if that is not what was written."""

    ref: RecordedRef
    row: RecordedRow | None


class HeadRow(Struct, frozen=True, gc=False):
    """The row in force for a key, and when it was recorded."""

    ref: RecordedRef
    created_at_ms: int


def seal(row: RecordedRow) -> bytes:
    """The hash of all that a row holds."""
    content = (row.key_digest, row.run_id, row.seq, row.result, row.meta, row.created_at_ms)
    return sha256(_encode(content)).digest()


def result_digest(result: bytes) -> bytes:
    """What two results under one key are compared by."""
    return sha256(result).digest()
