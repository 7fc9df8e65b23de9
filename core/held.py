"""What a planner holds of a store: a committed state with its document, and how long the log of its patches is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final, Generic, TypeGuard, TypeVar

from msgspec import Struct
from msgspec.structs import force_setattr, replace

from .batch import Form
from .form import version_of
from .model import InvalidState, Issue, Paths, Revision, Snapshot, StoreKey, snapshot_of
from .outcome import Failure, Outcome, Success
from .patch import decode, replay_json
from .schema import StateSchema

__all__ = ["LOG_BYTES", "LOG_ROW_BYTES", "Decoded", "Held", "read_snapshot", "wants_base"]

_T = TypeVar("_T")
_T_co = TypeVar("_T_co", covariant=True)

WHOLE: Final[Paths] = ((),)

LOG_ROW_BYTES: Final = 80
"""What reading one more patch costs, as bytes of a document: many small ones are dearer than their length says."""

LOG_BYTES: Final = 8 * 1024
"""How long the log of even the smallest state may grow before a base is worth its write: about 100 patches."""


class Decoded(Struct, Generic[_T_co], frozen=True):
    """A canonical state, and the schema that made it."""

    schema: StateSchema[_T_co]
    state: _T_co

    def encode(self) -> bytes:
        return self.schema.encode(self.state)

    def slices(self) -> Iterator[bytes]:
        return self.schema.slices(self.state)


def _is_by(decoded: Decoded[object], schema: StateSchema[_T]) -> TypeGuard[Decoded[_T]]:
    """A schema makes states of its own type only, so that it is the same one proves the type."""
    return decoded.schema is schema


class Held(Struct, frozen=True):
    """A committed state as the planner holds it: its revision, and the state, or its JSON document, or both.

    `size_bytes` is the length of the document, or more: it grows by each patch, until the document is written again.
    `log_rows` and `log_bytes` say how many patches, and how long together, lead to the state from the base before it.
    `stored` is the document as it was read, until the first change; `decoded` is what the schema that read it last made
    of it, and is never changed. `form` is that of the document; None if it was written before forms were kept.
    """

    revision: Revision
    size_bytes: int
    log_rows: int = 0
    log_bytes: int = 0
    stored: bytes | None = None
    decoded: Decoded[object] | None = None
    form: Form | None = None

    def read(self, schema: StateSchema[_T]) -> Outcome[_T, tuple[Issue, ...]]:
        """The state, to be looked at and never changed; or why its type no longer accepts it."""
        if self.decoded is not None and _is_by(self.decoded, schema):
            return Success(self.decoded.state)
        decoded = schema.decode_from(self.document(), self.form)
        if isinstance(decoded, Success):
            force_setattr(self, "stored", self.document())
            force_setattr(self, "decoded", Decoded(schema, decoded.unwrap()))
        return decoded

    def reads(self, schema: StateSchema[_T], paths: Paths) -> Paths:
        """What a selector read, as those see it who may write here before it is looked at again.

        Whoever writes an earlier version of the type names other paths than this schema does: then it is the whole.
        """
        return paths if version_of(self.form) == schema.form.version else WHOLE

    def known(self, schema: StateSchema[_T]) -> Decoded[_T] | None:
        """The state, if this schema has read it already."""
        return self.decoded if self.decoded is not None and _is_by(self.decoded, schema) else None

    def document(self) -> bytes:
        """The whole state as JSON. It takes as long as the state is large."""
        if self.stored is not None:
            return self.stored
        assert self.decoded is not None, "a state is held as a document, or decoded"
        return self.decoded.encode()

    def slices(self) -> Iterator[bytes]:
        """The same a part at a time, so that others may run in between."""
        if self.stored is not None or self.decoded is None:
            return iter([self.document()])
        return self.decoded.slices()

    def advanced(self, revision: Revision, patches: Sequence[bytes], form: Form | None = None) -> Held | None:
        """What is held after patches that others committed; None if only the whole document can tell.

        `form` is that of the document to which they lead; None if it is what it was. A garbled patch may name anything,
        and so meet any error on its way, which is passed on.
        """
        patch_bytes = sum(map(len, patches))
        rows, log_bytes, size_bytes = (
            self.log_rows + len(patches),
            self.log_bytes + patch_bytes,
            self.size_bytes + patch_bytes,
        )
        form = form or self.form
        if self.decoded is not None and self.stored is None and form == self.form:
            decoded = _advanced(self.decoded, patches)
            if decoded is None:
                return None
            return Held(revision, size_bytes, rows, log_bytes, None, decoded, form)
        json = replay_json(self.document(), patches)
        return Held(revision, len(json), rows, log_bytes, json, None, form)

    def followed(self, revision: Revision, patches: Sequence[bytes]) -> Held | None:
        """A later revision of the same form, to be read and not to be planned on; None if only its document can tell.

        Patches are of documents: they lead from the state that was read only if that is written as its document is.
        """
        decoded = self.decoded
        if decoded is None or decoded.schema.form != self.form:
            return None
        if self.stored is not None and decoded.encode() != self.stored:
            return None
        reached = _advanced(decoded, patches)
        if reached is None:
            return None
        added = sum(map(len, patches))
        size_bytes, rows = self.size_bytes + added, self.log_rows + len(patches)
        return Held(revision, size_bytes, rows, self.log_bytes + added, None, reached, self.form)

    def measured(self) -> Held:
        """The same with the exact size of its document."""
        return replace(self, size_bytes=len(self.document()))

    def based(self) -> Held:
        """The same with a base of its own, from which the log begins anew."""
        return replace(self, log_rows=0, log_bytes=0)

    def sized(self, base_bytes: int) -> Held:
        """The same after a base of that length was written, before which the log that is held began."""
        return replace(self, size_bytes=base_bytes + self.log_bytes)


def _advanced(decoded: Decoded[_T], patches: Sequence[bytes]) -> Decoded[_T] | None:
    state = decoded.state
    for patch in patches:
        outcome = decoded.schema.advance(state, decode(patch))
        if isinstance(outcome, Failure):
            return None
        state = outcome.unwrap()
    return Decoded(decoded.schema, state)


def read_snapshot(key: StoreKey, schema: StateSchema[_T], held: Held) -> Outcome[Snapshot[_T], InvalidState]:
    """What is held, to be handed out."""
    read = held.read(schema)
    if isinstance(read, Failure):
        return Failure(InvalidState(key, read.failure()))
    return Success(snapshot_of(partial(schema.clone, read.unwrap()), held.revision))


def wants_base(held: Held) -> bool:
    """Whether a base is due: its write is paid for by the reads of the log that it saves."""
    return held.log_rows * LOG_ROW_BYTES + held.log_bytes > max(LOG_BYTES, held.size_bytes // 2)
