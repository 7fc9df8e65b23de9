"""Consulting the step cache for one step: the row in force, what may stand against it, and its outputs on the host."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias, final

from msgspec import DecodeError, json

from ...core.batch import Write
from ...core.cache_events import corruption_entry
from ...core.cached_row import CachedRow, Kept, Spilled, belongs_to, read_meta, result_of
from ...core.dispatch import REACTIONS, Finding, age_problem, reaction_entries
from ...core.effect import Effect
from ...core.entry import NewEntry
from ...core.journal_writes import Append
from ...core.measured import MeasuredReads
from ...core.model import RecordedError, Unavailable
from ...core.outcome import Failure, Outcome, Success
from ...core.outputs import Outputs, needed, read_outputs
from ...core.replay import BoundaryCorruption, MissingArtifact
from ...core.reuse import read_set_matches
from ...core.step_cache import CacheEntry, CacheMiss, RecordedRef
from ...core.step_sandbox import LimitExceeded, MaterializationConflict, WorkspaceError
from ...services.artifacts import ArtifactCorruption, ArtifactMissing
from ...services.step_sandbox import CachingTransaction
from .cached_key import StepKey
from .cached_step import CachedStep
from .caching import CachePoint, Caching

__all__ = ["NO_READS", "Consultation", "Moved", "Served", "Unserved", "load_outputs"]

NO_READS: Final = MeasuredReads()
"""What a step reads that reads nothing."""


@final
@dataclass(frozen=True, slots=True)
class Served:
    """A row is served: its outputs are on the host. `writes` go with the step's own row."""

    result: bytes
    kept: Kept
    effects: tuple[Effect, ...]
    writes: tuple[Write, ...]


@final
@dataclass(frozen=True, slots=True)
class Unserved:
    """The step is executed, unless it fails with `error`. `writes` go with the record of that."""

    writes: tuple[Write, ...] = ()
    entries: tuple[NewEntry, ...] = ()
    error: RecordedError | None = None


@final
@dataclass(frozen=True, slots=True)
class Moved:
    """The host was changed since the reads were measured: measure again."""

    conflict: MaterializationConflict


Consulted: TypeAlias = Served | Unserved | Moved


@final
@dataclass(frozen=True, slots=True)
class _Against:
    """What stands against a row."""

    finding: Finding
    age_ms: int | None = None
    damage: BoundaryCorruption | None = None


@final
@dataclass(frozen=True, slots=True)
class _Usable:
    """A row against which nothing stands yet, decoded."""

    row: CachedRow
    result: bytes


@final
class Consultation:
    """Asks for a step of one run; nothing is committed here."""

    __slots__ = ("_caching", "_call", "_clock", "_run_id", "_touches_files")

    def __init__(self, step: CachedStep) -> None:
        self._caching = step.caching
        self._call = step.call
        self._clock = step.record.clock
        self._run_id = step.row.run_id
        self._touches_files = step.touches_files

    async def ask(self, key: StepKey, reads: MeasuredReads, transaction: CachingTransaction) -> Consulted:
        """What the cache has for a key, or for the run's own one: on the host, or why not."""
        got = await self._caching.cache.get(key.digest)
        remote = _is_remote(got)
        if isinstance(got, Failure) and key.scope is None:
            got = await self._caching.cache.get(key.own)
        if isinstance(got, Failure):
            self._caching.metrics.count(REACTIONS["nothing"].counts, remote=remote)
            return Unserved()
        entry = got.unwrap()
        against = await self._try(entry, reads, transaction)
        if isinstance(against, Moved):
            return against
        if isinstance(against, _Usable):
            return self._served(entry, against)
        return await self._refused(entry.ref, against)

    async def glance(self, key: StepKey) -> Served | None:
        """A row that is served as it is, to a step without files; of all else nothing is said or counted."""
        got = await self._caching.cache.get(key.digest)
        if isinstance(got, Failure):
            return None
        entry = got.unwrap()
        usable = self._judge(entry, NO_READS)
        if isinstance(usable, _Against) or not isinstance(usable.row.kept, Outputs):
            return None
        return self._served(entry, usable) if belongs_to(usable.row.kept, self._call.boundary) else None

    async def _try(
        self, entry: CacheEntry, reads: MeasuredReads, transaction: CachingTransaction
    ) -> _Usable | _Against | Moved:
        usable = self._judge(entry, reads)
        if isinstance(usable, _Against):
            return usable
        outputs = await load_outputs(self._caching, usable.row.kept)
        if isinstance(outputs, _Missing):
            return _Against("host")
        if isinstance(outputs, BoundaryCorruption):
            return _Against("corruption", damage=outputs)
        if not belongs_to(outputs, self._call.boundary):
            return _Against("invalid_meta")
        return await self._replay(outputs, reads, transaction) or usable

    def _judge(self, entry: CacheEntry, reads: MeasuredReads) -> _Usable | _Against:
        """What can be told of a row without its outputs."""
        row = read_meta(entry.meta)
        if row is None:
            return _Against("invalid_meta")
        if isinstance(row, BoundaryCorruption):
            return _Against("corruption", damage=row)
        if row.reach == "run" and entry.ref.recorded_run_id != self._run_id:
            return _Against("weak_evidence")
        age_ms = age_problem(entry.created_at_ms, self._clock.now_ms(), self._caching.max_age_ms)
        if age_ms is not None:
            return _Against("expired", age_ms)
        if not read_set_matches(self._call.boundary, reads):
            return _Against("stale")
        result = result_of(entry.result, entry.meta)
        try:
            _ = self._call.codec.decode(result, f"the result of step {self._call.key!r}")
        except Exception:  # a validator may raise anything
            return _Against("invalid_meta")
        return _Usable(row, result)

    async def _replay(
        self, outputs: Outputs, reads: MeasuredReads, transaction: CachingTransaction
    ) -> _Against | Moved | None:
        """Bring the outputs to the host: None once they are there."""
        if not self._touches_files:
            return None
        boundary = self._call.boundary
        replayed = await transaction.replay(boundary, outputs, reads)
        is_missing = isinstance(replayed, Failure) and isinstance(replayed.failure(), MissingArtifact)
        if is_missing and await self._caching.hydrate(tuple(sorted(needed(outputs)))):
            replayed = await transaction.replay(boundary, outputs, reads)
        if isinstance(replayed, Success):
            self._caching.on_point(CachePoint.REPLAYED)
            return None
        match replayed.failure():
            case MissingArtifact() | LimitExceeded() | WorkspaceError():
                return _Against("host")
            case BoundaryCorruption() as damage:
                return _Against("corruption", damage=damage)
            case MaterializationConflict() as conflict:
                return Moved(conflict)

    def _served(self, entry: CacheEntry, usable: _Usable) -> Served:
        reaction = REACTIONS["served"]
        self._caching.metrics.count(reaction.counts)
        entries = reaction_entries("served", entry.ref, ttl_ms=self._caching.max_age_ms)
        writes = (Append(self._run_id, entries),)
        return Served(usable.result, usable.row.kept, usable.row.effects, writes)

    async def _refused(self, ref: RecordedRef, against: _Against) -> Unserved:
        """What is written of a row that is not served."""
        caching, reaction = self._caching, REACTIONS[against.finding]
        entries = reaction_entries(against.finding, ref, ttl_ms=caching.max_age_ms, age_ms=against.age_ms)
        writes: tuple[Write, ...] = (Append(self._run_id, entries),)
        if reaction.evicts:
            writes += await caching.evict(ref)
        told: tuple[NewEntry, ...] = ()
        if (damage := against.damage) is not None:
            digests = (damage.path, damage.recorded, damage.measured)
            verdict = await caching.inconsistency.note_corruption(ref, *digests)
            told = (corruption_entry(ref.key_digest, *digests, verdict),)
            if verdict == "fail":
                return Unserved(writes, told, _corrupted(damage))
        caching.metrics.count(reaction.counts)
        return Unserved(writes, told)


def _is_remote(got: Outcome[CacheEntry, CacheMiss | Unavailable]) -> bool:
    """Whether a shared tier that did not answer may have what was missed."""
    return isinstance(got, Failure) and isinstance(missed := got.failure(), CacheMiss) and missed.remote


def _corrupted(damage: BoundaryCorruption) -> RecordedError:
    where = f"the output {damage.path}" if damage.path else "the record of the outputs"
    message = (
        f"{where} is kept with the digest {damage.measured}, and was recorded with {damage.recorded}; its row is out "
        "of force, so that the next run that asks for it executes it again"
    )
    return RecordedError("CacheCorruptionDetected", message, "")


# --- outputs that are kept as an artifact -------------------------------------------


@final
@dataclass(frozen=True, slots=True)
class _Missing:
    """The artifact is not there, or cannot be read now."""


async def load_outputs(caching: Caching, kept: Kept) -> Outputs | BoundaryCorruption | _Missing:
    """The record of outputs, from its artifact if it is one."""
    if not isinstance(kept, Spilled):
        return kept
    got = await caching.artifacts.get(kept.digest)
    is_missing = isinstance(got, Failure) and isinstance(got.failure(), ArtifactMissing)
    if is_missing and await caching.hydrate((kept.digest, *kept.needs)):
        got = await caching.artifacts.get(kept.digest)
    if isinstance(got, Failure):
        failure = got.failure()
        if isinstance(failure, ArtifactCorruption):
            return BoundaryCorruption("", kept.digest, failure.measured or "unreadable")
        return _Missing()
    try:
        return read_outputs(json.decode(got.unwrap()))
    except DecodeError:
        return BoundaryCorruption("", kept.digest, "invalid_record")
