"""What a planner holds of a store: a committed state with its document, and how long the log of its patches is."""

from __future__ import annotations

from functools import partial
from typing import Final, Generic, TypeGuard, TypeVar

from msgspec import Struct
from msgspec.structs import force_setattr, replace

from .model import InvalidState, Issue, Revision, Snapshot, StoreKey, snapshot_of
from .outcome import Failure, Outcome, Success
from .schema import StateSchema

__all__ = ["LOG_BYTES", "LOG_ROW_BYTES", "Decoded", "Held", "read_snapshot", "wants_base"]

_T = TypeVar("_T")
_T_co = TypeVar("_T_co", covariant=True)

LOG_ROW_BYTES: Final = 80
"""What reading one more patch costs, as bytes of a document: many small ones are dearer than their length says."""

LOG_BYTES: Final = 8 * 1024
"""How long the log of even the smallest state may grow before a base is worth its write: about 100 patches."""


class Decoded(Struct, Generic[_T_co], frozen=True):
    """`as_encoded`: the document is known to be what the schema makes of the state."""

    schema: object
    state: _T_co
    as_encoded: bool = False


def _is_by(decoded: Decoded[object], schema: StateSchema[_T]) -> TypeGuard[Decoded[_T]]:
    """A schema makes states of its own type only, so that it is the same one proves the type."""
    return decoded.schema is schema


class Held(Struct, frozen=True):
    """A committed state as the planner holds it: its revision, and the whole state as a JSON document.

    `log_rows` and `log_bytes` say how many patches, and how long together, lead to it from the base before it.
    `decoded` is what the schema that read it last made of the document; it is never changed.
    """

    revision: Revision
    json: bytes
    log_rows: int = 0
    log_bytes: int = 0
    decoded: Decoded[object] | None = None

    def read(self, schema: StateSchema[_T]) -> Outcome[_T, tuple[Issue, ...]]:
        """The state, to be looked at and never changed; or why its type no longer accepts it."""
        if self.decoded is not None and _is_by(self.decoded, schema):
            return Success(self.decoded.state)
        decoded = schema.decode(self.json)
        if isinstance(decoded, Success):
            force_setattr(self, "decoded", Decoded(schema, decoded.unwrap()))
        return decoded

    @property
    def is_as_encoded(self) -> bool:
        """Whether the document is known to be what the schema that read it last makes of the state."""
        return self.decoded is not None and self.decoded.as_encoded

    def after(self, revision: Revision, json: bytes, patches: int, patch_bytes: int) -> Held:
        """What is held after some more patches."""
        return Held(revision, json, self.log_rows + patches, self.log_bytes + patch_bytes)

    def based(self) -> Held:
        """The same with a base of its own, from which the log begins anew."""
        return replace(self, log_rows=0, log_bytes=0)


def read_snapshot(key: StoreKey, schema: StateSchema[_T], held: Held) -> Outcome[Snapshot[_T], InvalidState]:
    """What is held, to be handed out."""
    read = held.read(schema)
    if isinstance(read, Failure):
        return Failure(InvalidState(key, read.failure()))
    return Success(snapshot_of(partial(schema.clone, read.unwrap()), held.revision))


def wants_base(held: Held) -> bool:
    """Whether a base is due: its write is paid for by the reads of the log that it saves."""
    return held.log_rows * LOG_ROW_BYTES + held.log_bytes > max(LOG_BYTES, len(held.json) // 2)
