"""Settling a cached step: recording what it made, bringing its files to the host, and sending its effects."""

from __future__ import annotations

from typing import Final, final

from msgspec.structs import replace

from ...core.batch import Write, WriteStep
from ...core.cache_events import captured_entry, settled_entry
from ...core.cached_row import CachedRow, artifacts_of, belongs_to, row_meta
from ...core.dispatch import unrecorded_entry
from ...core.effect import Effect, within
from ...core.journal_writes import Append
from ...core.model import RecordedError, Unavailable
from ...core.outcome import Failure, Success
from ...core.outputs import Outputs, needed
from ...core.owed import Owed, decide_owed, in_place, owed_json, reads_digest
from ...core.provenance import provenance_entry
from ...core.reuse import NotRecorded, decide_reuse
from ...core.step_cache import Recorded, RecordedRef
from ...core.step_sandbox import Accepted, MaterializationConflict
from ...services.effect_dispatcher import EffectDispatcher, EffectFailed, EffectMismatch
from ...services.step_sandbox import CachingTransaction, WorkspaceTransaction
from .cached_step import CachedStep, Ended
from .caching import CachePoint
from .consult import Served, load_outputs
from .making import Identified, Made
from .pause import Pauses

__all__ = ["Settling"]

SENDS: Final = 5
"""How often an effect is sent whose dispatcher cannot answer, before the step fails."""

SHOWN: Final = 3
"""How many of the paths or effects in question a message names."""


@final
class Settling:
    """Brings one step to its end, on one transaction."""

    __slots__ = ("_caching", "_shared", "_step")

    def __init__(self, step: CachedStep) -> None:
        self._step = step
        self._caching = step.caching
        self._shared: tuple[RecordedRef, tuple[str, ...]] | None = None

    # --- what was executed here -----------------------------------------------

    async def record(self, made: Made) -> tuple[Write, ...] | Ended:
        """Commit what was made: the step settles, and the cache has its row. What is to be written in the end.

        Ended: the cache has another result for its key, and that is a failure.
        """
        step = self._step
        if made.kept is None or made.outputs is None or made.identified is None:
            return self._unkept(made)
        reads = made.identified.reads
        owed = Owed(
            made.result,
            made.kept,
            made.effects,
            reads_digest(reads),
            in_place(step.call.boundary, made.outputs, reads),
        )
        self._settle(owed)
        rows, key, row = self._row_of(made, made.identified)
        reach, why = (None, None) if row is None else (row.reach, row.scope)
        told = step.told(captured_entry(step.call.key, step.row.recorded_at_ms, made.accepted, key, reach, why))
        committed = await step.record.written(WriteStep(step.row), *rows, *told, *step.record.going_on())
        self._caching.on_point(CachePoint.RECORDED)
        placed = await self._placed(committed.recorded)
        is_shared = made.accepted.evidence == "enforced" and key == made.identified.key.digest
        if is_shared and committed.recorded and committed.recorded[0].standing != "conflict":
            self._shared = (committed.recorded[0].ref, artifacts_of(made.kept, needed(made.outputs)))
        return placed

    def _settle(self, owed: Owed) -> None:
        """The row of the step, which now owes this."""
        step = self._step
        now_ms = step.record.clock.now_ms()
        step.row = replace(step.row, status="settling", at_ms=None, value=owed_json(owed), recorded_at_ms=now_ms)

    def _unkept(self, made: Made) -> tuple[Write, ...]:
        """What is written of a result that cannot be brought back: it is not executed again only once it is done."""
        step = self._step
        told = step.told(captured_entry(step.call.key, step.row.recorded_at_ms, made.accepted, None))
        return (*told, *self._unrecorded(made.identified, "not_replayable"))

    def _unrecorded(self, identified: Identified | None, reason: str) -> tuple[Write, ...]:
        if identified is None:
            return ()
        run_id = self._step.row.run_id
        return (Append(run_id, (unrecorded_entry(identified.key.digest, run_id, reason),)),)

    def _row_of(self, made: Made, identified: Identified) -> tuple[tuple[Write, ...], str | None, CachedRow | None]:
        """What records the row of the cache, its key and the row; or what says why there is none."""
        step, joinable = self._step, self._caching.joinable
        reach = decide_reuse(made.accepted, step.call.boundary, identified.reads)
        if isinstance(reach, NotRecorded):
            return self._unrecorded(identified, reach.reason), None, None
        if joinable is None or made.kept is None:
            return (), None, None
        scope = identified.key.scope or (_held_back(made.accepted) if reach == "run" else None)
        key = identified.key.digest if scope is None else identified.key.own
        row = CachedRow(
            made.accepted.evidence,
            reach if scope is None else "run",
            made.accepted.diff_identity,
            made.kept,
            made.effects,
            scope,
        )
        recording = joinable.recording(key, step.row.run_id, made.result, row_meta(row, made.result))
        if isinstance(recording, Failure):
            return self._unrecorded(identified, "invalid_entry"), None, None
        return recording.unwrap().writes, key, row

    async def _placed(self, recorded: tuple[Recorded, ...]) -> tuple[Write, ...] | Ended:
        """What follows from how the row stands to the one that was there."""
        conflict = next((each for each in recorded if each.standing == "conflict"), None)
        if conflict is None:
            return ()
        verdict = await self._caching.inconsistency.note_conflict(conflict.head, conflict.ref)
        if verdict == "fail":
            first = conflict.head
            message = (
                f"the step cache has another result for the key {first.key_digest}, recorded by run "
                f"{first.recorded_run_id!r}; the step rests on something that it does not declare"
            )
            return self._step.failed(RecordedError("CacheConflictDetected", message, ""), "cache_conflict")
        entry = provenance_entry("conflict_first_writer", conflict.head)
        return (Append(self._step.row.run_id, (entry,)),)

    async def bring(
        self, made: Made, writes: tuple[Write, ...], transaction: WorkspaceTransaction
    ) -> Ended | MaterializationConflict:
        """Write the files of what was made to the host, and send its effects."""
        written = await transaction.materialize(made.accepted)
        if isinstance(written, Failure):
            failure = written.failure()
            return failure if isinstance(failure, MaterializationConflict) else self._step.refused(failure)
        self._caching.on_point(CachePoint.COPIED_BACK)
        return await self.finish(made.result, made.effects, *writes, *await self._publish())

    async def _publish(self) -> tuple[Write, ...]:
        """Give the row to others. That this did not work is told, and is no failure of the step."""
        if self._shared is None:
            return ()
        ref, needs = self._shared
        unpublished = await self._caching.publish(ref, needs)
        if unpublished is None:
            return ()
        entry = provenance_entry("unpublished", ref, stage=unpublished.stage, message=unpublished.message)
        return (Append(self._step.row.run_id, (entry,)),)

    # --- what is there already --------------------------------------------------

    async def served(self, served: Served, reads: str) -> Ended:
        """End a step that was served. Its files are on the host; where it has effects too, it settles for them."""
        step = self._step
        if not served.effects:
            return step.done(served.result, *served.writes)
        self._settle(Owed(served.result, served.kept, served.effects, reads))
        _ = await step.record.written(WriteStep(step.row), *served.writes, *step.record.going_on())
        self._caching.on_point(CachePoint.RECORDED)
        return await self.finish(served.result, served.effects)

    async def again(self, owed: Owed, transaction: CachingTransaction) -> Ended | None:
        """Settle a step that was recorded before. None: its files cannot be brought, or rest on what is there no more.

        It is dispatched anew then.
        """
        if not await self._step.guarded(self._bring_again(owed, transaction)):
            return None
        self._caching.on_point(CachePoint.COPIED_BACK)
        return await self.finish(owed.result, owed.effects)

    async def _bring_again(self, owed: Owed, transaction: CachingTransaction) -> bool:
        boundary = self._step.call.boundary
        outputs = await load_outputs(self._caching, owed.kept)
        if not isinstance(outputs, Outputs) or not belongs_to(outputs, boundary):
            return False
        measured = await transaction.measure(boundary)
        if isinstance(measured, Failure):
            return False
        reads = measured.unwrap()
        if decide_owed(owed, outputs, reads) == "changed":
            return False
        if not self._step.touches_files:
            return True
        return isinstance(await transaction.replay(boundary, outputs, reads), Success)

    # --- the end ----------------------------------------------------------------

    async def finish(self, result: bytes, effects: tuple[Effect, ...], *writes: Write) -> Ended:
        """Send the effects, and end the step with its result."""
        step, dispatcher = self._step, self._caching.effects
        sent = 0
        if effects and dispatcher is not None:
            failed = await step.guarded(self._send(effects, dispatcher))
            if failed is not None:
                return step.failed(_unsent(failed), "effect", *writes)
            sent = len(effects)
        self._caching.on_point(CachePoint.SENT)
        told = step.told(settled_entry(step.call.key, step.row.recorded_at_ms, step.rebases, len(effects), sent))
        return step.done(result, *writes, *told)

    async def _send(
        self, effects: tuple[Effect, ...], dispatcher: EffectDispatcher
    ) -> EffectFailed | EffectMismatch | Unavailable | None:
        """Send them in order; what the first one failed with that could not be sent."""
        scope = self._step.context.idempotency_key
        for effect in {each.key: each for each in (within(scope, effect) for effect in effects)}.values():
            sent = await dispatcher.dispatch(effect)
            pauses = Pauses()
            for _ in range(SENDS - 1):
                if isinstance(sent, Success) or not isinstance(sent.failure(), Unavailable):
                    break
                await self._step.pause(pauses.next_ms())
                sent = await dispatcher.dispatch(effect)
            if isinstance(sent, Failure):
                return sent.failure()
        return None


def _unsent(failure: EffectFailed | EffectMismatch | Unavailable) -> RecordedError:
    match failure:
        case EffectFailed(key, cause):
            message = f"the effect {key!r} was not sent: {cause.type}: {cause.message}"
            return RecordedError("EffectFailed", message, cause.traceback)
        case EffectMismatch(key):
            message = f"another effect, with another payload, was sent under the key {key!r}; give it one of its own"
            return RecordedError("EffectMismatch", message, "")
        case Unavailable(reason):
            return RecordedError("Unavailable", f"an effect was not sent: {reason}", "")


def _held_back(accepted: Accepted[object]) -> str:
    """Why what was accepted is for its own run only: by which evidence, and what was seen beside the workspace."""
    seen = () if accepted.record is None else accepted.record.ambient
    if not seen:
        return f"{accepted.evidence} evidence"
    named = ", ".join(f"{each.kind} {each.detail}" for each in seen[:SHOWN])
    more = f" and {len(seen) - SHOWN} more" if len(seen) > SHOWN else ""
    return f"{accepted.evidence} evidence: it did more than its workspace tells, {named}{more}"
