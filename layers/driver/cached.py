"""The cached steps of one run, as `Run.cached_step` asks for them."""

from __future__ import annotations

from typing import final

from msgspec.structs import replace

from ...core.owed import read_owed
from ...services.driver import CachedCall
from .cached_step import CachedStep
from .caching import Caching
from .dispatching import Dispatch
from .permits import Places
from .record import RunRecord
from .steps import recorded_result
from .tools import Tools

__all__ = ["DrivenCachedSteps"]

KIND = "cached"


@final
class DrivenCachedSteps:
    """Steps that are executed in the sandbox, or brought back from the step cache.

    Of the steps of one run that are under way together, one that may read or write what another may write waits for
    it, in the order of the calls.
    """

    def __init__(self, record: RunRecord, tools: Tools, caching: Caching) -> None:
        self._record = record
        self._journal = tools.joinable_journal
        self._caching = caching
        self._places = Places()

    async def perform(self, call: CachedCall) -> object:
        """The result of a step: from its row, from a row of the cache, or by executing it."""
        record = self._record
        asked = await record.begin(call.key, KIND, call.target)
        row = asked.row or replace(record.new(call.key, KIND, call.target), status="started")
        if asked.decision in ("answer", "raise"):
            await record.hand_over(row)
            return recorded_result(record, row, call.codec)
        owed = read_owed(row.value or b"") if asked.decision == "settle" else None
        step = CachedStep(call, row, record, self._caching, self._journal)
        if step.has_files:
            async with self._places.hold(call.boundary):
                ended = await Dispatch(step).to_its_end(owed)
        else:  # it meets nobody
            ended = await Dispatch(step).to_its_end(owed)
        await record.complete(ended.row, *ended.writes)
        return recorded_result(record, ended.row, call.codec)
