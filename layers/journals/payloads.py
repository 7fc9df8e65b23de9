"""The payloads of entries as they are stored: in the entry itself, or in an artifact that it names."""

from __future__ import annotations

from typing import final

import msgspec

from ...core.damage import Damaged
from ...core.entry import EntryRow, NewEntry
from ...core.event import Spill, spilled_entry, too_large
from ...core.journal import Entry, InvalidEvent
from ...core.model import TooLarge, Unavailable
from ...core.outcome import Failure, Outcome, Success
from ...services.artifacts import ArtifactCorruption, ArtifactMissing, Artifacts, InvalidDigest

__all__ = ["Payloads"]

_read_spill = msgspec.json.Decoder(Spill).decode


@final
class Payloads:
    """Keeps payloads of up to `limit_bytes` in their entries, and longer ones in `artifacts`, if there are any."""

    def __init__(self, artifacts: Artifacts | None, limit_bytes: int) -> None:
        self._artifacts = artifacts
        self._limit_bytes = limit_bytes

    async def kept(self, entry: NewEntry) -> Outcome[NewEntry, InvalidEvent | Unavailable]:
        """The entry as it is to be appended. An artifact is there before the entry that names it."""
        invalid = too_large(entry, self._limit_bytes)
        if invalid is None:
            return Success(entry)
        if self._artifacts is None:
            return Failure(invalid)
        put = await self._artifacts.put(entry.payload)
        if isinstance(put, Success):
            return Success(spilled_entry(entry, put.unwrap()))
        failure = put.failure()
        if isinstance(failure, TooLarge):
            return Failure(InvalidEvent(f"the payload does not fit into an artifact either: {failure}"))
        return Failure(failure)

    async def entry(self, row: EntryRow) -> Outcome[Entry, Unavailable]:
        """A stored entry as its readers have it, with its real payload."""
        data = row.payload
        if row.spilled:
            got = await self.spilled(row)
            if isinstance(got, Failure):
                return Failure(_unavailable(row, got.failure()))
            data = got.unwrap()
        try:
            meta: dict[str, object] | None = None if row.meta is None else _read_members(row.meta)
            payload: object = msgspec.json.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            return Failure(Damaged(f"decode_failed: {_place(row)} cannot be read: {error}", "no"))
        return Success(Entry(row.run_id, row.seq, row.event_type, payload, row.source, row.at_ms, meta))

    async def spilled(self, row: EntryRow) -> Outcome[bytes, str | Unavailable]:
        """The real payload of an entry that names an artifact, verified. Text says what is wrong with it."""
        try:
            spill = _read_spill(row.payload)
        except msgspec.DecodeError as error:
            return Failure(f"its payload names no artifact: {error}")
        if self._artifacts is None:
            return Failure(
                Unavailable(
                    f"{_place(row)} has its payload in the artifact {spill.artifact}, and there are no artifacts here: "
                    "build the journal with layer_spilling()",
                    "no",
                )
            )
        got = await self._artifacts.get(spill.artifact)
        if isinstance(got, Success):
            data = got.unwrap()
            if len(data) == spill.size_bytes:
                return Success(data)
            return Failure(f"the artifact {spill.artifact} is {len(data)} bytes long, not {spill.size_bytes}")
        match got.failure():
            case Unavailable() as unavailable:
                return Failure(unavailable)
            case ArtifactMissing(digest):
                return Failure(f"the artifact {digest} with its payload is missing")
            case ArtifactCorruption(digest):
                return Failure(f"the artifact {digest} with its payload is damaged")
            case InvalidDigest(digest):
                return Failure(f"its payload names the artifact {digest!r}, which is no digest")


_read_members = msgspec.json.Decoder(dict[str, object]).decode


def _unavailable(row: EntryRow, why: str | Unavailable) -> Unavailable:
    return why if isinstance(why, Unavailable) else Damaged(f"decode_failed: {_place(row)}: {why}", "no")


def _place(row: EntryRow) -> str:
    return f"the entry {row.seq} of the run {row.run_id!r}"
