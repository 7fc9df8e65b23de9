"""Executing the body of a cached step, and keeping what it made: its result as JSON, and its outputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias, final

from msgspec import json
from msgspec.structs import replace

from ...core.batch import WriteStep
from ...core.cached_row import RECORD_BYTES, Kept, Spilled
from ...core.command import Command
from ...core.effect import Effect, as_effect
from ...core.measured import MeasuredReads
from ...core.model import RecordedError
from ...core.outcome import Failure, Outcome
from ...core.outputs import Outputs, needed, outputs_json
from ...core.step import VALUE_BYTES
from ...core.step_refusal import recorded_refusal
from ...core.step_sandbox import Accepted, ExecuteFailure
from ...services.step import Suspended
from ...services.step_sandbox import CachingTransaction, WorkspaceTransaction
from ..recorded import as_recorded
from .cached_key import StepKey
from .cached_step import CachedStep
from .caching import CachePoint, Caching
from .consult import Unserved
from .steps import too_large

__all__ = ["Broken", "Identified", "Made", "Making"]


@final
@dataclass(frozen=True, slots=True)
class Identified:
    """What the step reads, and the key that it has with that."""

    reads: MeasuredReads
    key: StepKey


@final
@dataclass(frozen=True, slots=True)
class Made:
    """What an accepted body made. `outputs` are None if they cannot be brought back; the host is as it was."""

    accepted: Accepted[object]
    result: bytes
    effects: tuple[Effect, ...]
    identified: Identified | None
    outputs: Outputs | None
    kept: Kept | None


@final
@dataclass(frozen=True, slots=True)
class Broken:
    """The step has failed, and its host is as it was."""

    error: RecordedError
    kind: str


Ending: TypeAlias = Made | Broken


@final
class Making:
    """Executes one step, on one transaction."""

    __slots__ = ("_caching", "_step", "_transaction")

    def __init__(self, step: CachedStep, transaction: WorkspaceTransaction) -> None:
        self._step = step
        self._caching: Caching = step.caching
        self._transaction = transaction

    async def make(self, identified: Identified | None, unserved: Unserved) -> Ending:
        """Record that the body begins, with what stood against a row, execute it, and keep what it made."""
        await self._attempt(unserved)
        executed = await self._execute()
        if isinstance(executed, Failure):
            return Broken(*recorded_refusal(executed.failure()))
        accepted = executed.unwrap()
        result = self._encoded(accepted.output)
        if isinstance(result, Broken):
            return result
        self._caching.on_point(CachePoint.EXECUTED)
        effects = tuple(map(as_effect, accepted.effects))
        outputs, kept = await self._keep(accepted)
        self._caching.on_point(CachePoint.KEPT)
        return Made(accepted, result, effects, identified, outputs, kept)

    async def _attempt(self, unserved: Unserved) -> None:
        """A row that is there from an attempt that was cut off, or from before a rebase, says all that is needed."""
        step, record = self._step, self._step.record
        if record.suspending:
            raise Suspended
        if step.row.status == "started" and step.row.attempt and not unserved.writes:
            return
        attempt = max(step.row.attempt, 1)
        now_ms = record.clock.now_ms()
        row = replace(step.row, status="started", attempt=attempt, at_ms=None, value=None, recorded_at_ms=now_ms)
        told = step.told(*unserved.entries)
        _ = await record.written(WriteStep(row), *unserved.writes, *told, *record.going_on())
        step.row = row
        self._caching.on_point(CachePoint.ATTEMPTED)
        if record.suspending:
            raise Suspended

    async def _execute(self) -> Outcome[Accepted[object], ExecuteFailure]:
        call = self._step.call
        if isinstance(call.body, Command):
            executed: Outcome[Accepted[object], ExecuteFailure]
            executed = await self._transaction.execute(call.boundary, call.body)
            return executed
        return await self._transaction.execute(call.boundary, call.body)

    def _encoded(self, output: object) -> bytes | Broken:
        """The result as JSON, or why it cannot be one."""
        what = f"the result of step {self._step.call.key!r}"
        try:
            encoded = self._step.call.codec.encode(output, what)
        except TypeError as error:
            return Broken(RecordedError("TypeError", str(error), ""), "type")
        except Exception as error:  # a validator's own
            return Broken(as_recorded(error), "error")
        return Broken(too_large(what, len(encoded)), "too_large") if len(encoded) > VALUE_BYTES else encoded

    async def _keep(self, accepted: Accepted[object]) -> tuple[Outputs | None, Kept | None]:
        """The record of the outputs; once it is here, so is all that it needs. None where there can be none."""
        if not isinstance(self._transaction, CachingTransaction):
            return None, None
        recorded = await self._transaction.record(accepted)
        if isinstance(recorded, Failure):
            return None, None
        outputs = recorded.unwrap()
        data = json.encode(outputs_json(outputs))
        if len(data) <= RECORD_BYTES:
            return outputs, outputs
        put = await self._caching.artifacts.put(data)
        if isinstance(put, Failure):
            return None, None
        return outputs, Spilled(put.unwrap(), tuple(sorted(needed(outputs))))
