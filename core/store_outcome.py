"""The outcome of a store call as a run records it: what it named, never the state.

A snapshot or an update is recorded by its revision, which the row pins; its state is read back from the store's own
history. A selected value is recorded as JSON, and failures by their fields.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from typing import Literal, TypeAlias, cast

from . import paths
from .batch import Form
from .codec import Codec, codec_of
from .model import (
    Conflict,
    InvalidState,
    ReceiptMismatch,
    Revision,
    StoreNotFound,
    TimedOut,
    TooLarge,
    Unmatched,
)
from .outcome import Failure, Outcome, Success

__all__ = ["Named", "StoreFailure", "read_outcome", "write_outcome"]

StoreFailure: TypeAlias = StoreNotFound | Conflict | InvalidState | ReceiptMismatch | TooLarge | TimedOut | Unmatched
"""What a store call of a run can meet. New kinds are added at the end: a record names them by their place."""


@dataclass(frozen=True, slots=True)
class Named:
    """What a successful store call left: the revision it read or wrote, the version before, the value it selected.

    For a state the value is its whole document, and `form` is the form in which that is written.
    """

    kind: Literal["snapshot", "updated", "deleted", "selected"]
    revision: Revision | None = None
    previous_version: int | None = None
    value: bytes | None = None
    form: Form | None = None


def write_outcome(outcome: Outcome[Named, StoreFailure]) -> bytes:
    """The outcome as JSON."""
    match outcome:
        case Success(named):
            revision = named.revision
            fields = {
                "kind": named.kind,
                "instance_id": None if revision is None else revision.instance_id,
                "version": None if revision is None else revision.version,
                "previous_version": named.previous_version,
                "form": None if named.form is None else [named.form.version, named.form.fingerprint],
            }
            text = json.dumps({name: value for name, value in fields.items() if value is not None}).encode()
            return text if named.value is None else text[:-1] + b',"value":' + named.value + b"}"
        case Failure(Unmatched(revision, read_paths)):  # whose paths hold segments that JSON text cannot
            where = {"instance_id": revision.instance_id, "version": revision.version}
            return json.dumps({"unmatched": where}).encode()[:-1] + b',"read_paths":' + paths.encode(read_paths) + b"}"
        case Failure():
            return _failures().encode(outcome, "the outcome of a store call")


def read_outcome(data: bytes) -> Outcome[Named, StoreFailure]:
    """What `write_outcome` wrote."""
    raw = json.loads(data)
    if "failure" in raw:
        failed = _failures().decode(data, "the recorded outcome of a store call")
        return cast(Failure[StoreFailure], failed)  # the codec lists these and no others
    if "unmatched" in raw:
        seen = Revision(raw["unmatched"]["instance_id"], raw["unmatched"]["version"])
        return Failure(Unmatched(seen, paths.decode(json.dumps(raw["read_paths"]).encode())))
    revision = Revision(raw["instance_id"], raw["version"]) if "instance_id" in raw else None
    value = json.dumps(raw["value"]).encode() if "value" in raw else None
    form = Form(*raw["form"]) if "form" in raw else None
    return Success(Named(raw["kind"], revision, raw.get("previous_version"), value, form))


@cache
def _failures() -> Codec:
    return codec_of(Success[None] | Failure[StoreFailure])
