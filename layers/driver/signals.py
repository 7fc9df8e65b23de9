"""The signals of one run: each is read once, in the order in which they were sent, by the calls in their order.

    look     the first call that waits for a name takes the first unread signal; the others wait until it is their turn
    miss     the run waits, until it is woken by a signal or by the deadline: then it looks again, and a signal counts
    read     the row that records what came, and that the signal is read, are one batch

Only the owner of a run reads its signals, so what was seen of them once need not be looked at again. A wait that is
cancelled, or times out, or loses a race, reads nothing. A signal whose reading was being committed when its branch
lost a race is kept for the next call that asks for its name; several are, in the order in which they were read.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter, defaultdict, deque
from dataclasses import dataclass
from typing import TypeAlias, final

from msgspec.structs import replace

from ...core.batch import ReadSignal, Write, WriteStep
from ...core.codec import Codec
from ...core.model import TimedOut
from ...core.outcome import Failure, Outcome, Success
from ...core.signal import SignalRow
from ...core.signal_reading import SignalReading, read_signal, read_signal_reading
from ...core.step import StepRow, span_of, to_wait
from ...services.signal import InvalidSignal
from .pause import Pauses
from .record import RunRecord
from .signal_types import SignalTypes
from .tools import Tools

__all__ = ["DrivenSignals"]

KIND = "signal"

Found: TypeAlias = tuple[SignalReading, tuple[Write, ...]]
"""What a call came to, and what is written with its row."""


@dataclass(frozen=True, slots=True)
class _Call:
    """One call: for a signal of which name, of which type, and for how long."""

    key: str
    name: str
    codec: Codec
    timeout_ms: int | None

    @property
    def what(self) -> str:
        return f"the signal {self.name!r}"


@final
class DrivenSignals:
    """The calls of one execution of a run that wait for signals."""

    def __init__(self, record: RunRecord, tools: Tools, workflow: str) -> None:
        self._record = record
        self._ledger = tools.ledger
        self._types: SignalTypes = tools.signal_types
        self._workflow = workflow
        self._asked = Counter[str]()
        self._waiting = defaultdict[str, list[str]](list)
        self._unread = defaultdict[str, deque[SignalRow]](deque)
        self._seen = Counter[str]()
        self._kept = defaultdict[str, list[tuple[int, str, bytes]]](list)
        record.on_lost = self._keep

    async def read(self, name: str, codec: Codec, timeout_ms: int | None) -> Outcome[object, TimedOut | InvalidSignal]:
        """The next signal of this name, from the record or as it comes."""
        record = self._record
        self._types.learn(self._workflow, name, codec)
        self._asked[name] += 1
        call = _Call(f"{KIND}:{name}:{self._asked[name]}", name, codec, timeout_ms)
        asked = await record.begin(call.key, KIND, name)
        if asked.row is not None and asked.decision == "answer":
            await record.hand_over(asked.row)
            return self._answer(call, read_signal_reading(asked.row.value or b""))
        waiting = self._waiting[name]
        waiting.append(call.key)
        try:
            found = await self._found(call, asked.row)
        finally:
            waiting.remove(call.key)
            if waiting:
                record.waits.wake()  # it is the turn of another one
        if found is None:
            await record.complete_cancelled(call.key, KIND, name)
        reading, writes = found
        row = asked.row or record.new(call.key, KIND, name)
        value = reading.encode()
        await record.complete(replace(row, status="done", at_ms=None, value=value), *writes)
        return self._answer(call, read_signal_reading(value))

    def _answer(self, call: _Call, reading: SignalReading) -> Outcome[object, TimedOut | InvalidSignal]:
        if (timed_out := reading.timed_out) is not None:
            return Failure(timed_out)
        if reading.invalid is not None:
            return Failure(InvalidSignal(call.name, reading.invalid))
        try:
            return Success(call.codec.decode(reading.value or b"", call.what))
        except Exception as error:  # it fitted when it was recorded; a validator may raise anything
            self._record.stop(f"what was recorded no longer fits the code: {error}")

    # --- waiting ----------------------------------------------------------------

    async def _found(self, call: _Call, row: StepRow | None) -> Found | None:
        """What the call comes to, None if cancellation came first. Between a signal and its row nothing is awaited."""
        record = self._record
        is_new = row is None
        row = row or to_wait(record.new(call.key, KIND, call.name), call.timeout_ms)
        while True:
            moment = record.doorbell.moment()
            is_last = row.at_ms is not None and row.at_ms <= record.clock.now_ms()
            if not await self._looked(call):
                return None
            record.races.check()
            if self._ahead(call) == 0 and (taken := self._taken(call)) is not None:
                return taken
            is_coming = self._has_own(call)  # those ahead of it are about to take theirs
            if is_last and not is_coming:
                await record.in_line(call.key)
                return SignalReading(None, after_ms=span_of(row)), ()
            until_ms = None if is_last else row.at_ms
            record.waits.begin(call.key, f"signal {call.name!r}", row.at_ms)
            writes = (WriteStep(row),) if is_new else ()
            if shown := (*writes, *record.standing()):
                _ = await record.commit(*shown)
            is_new = False
            if await record.woken(moment, until_ms) == "cancel":
                return None

    def _ahead(self, call: _Call) -> int:
        """How many calls that wait for this name have asked before."""
        return self._waiting[call.name].index(call.key)

    def _has_own(self, call: _Call) -> bool:
        """Whether there is a signal for it as well as for those ahead of it."""
        return len(self._kept[call.name]) + len(self._unread[call.name]) > self._ahead(call)

    def _taken(self, call: _Call) -> Found | None:
        if kept := self._kept[call.name]:
            _, first_read_by, value = kept.pop(0)
            return read_signal(value, call.codec, call.what, again=first_read_by), ()
        if unread := self._unread[call.name]:
            signal = unread.popleft()
            read = ReadSignal(signal.run_id, signal.no, call.key)
            return read_signal(signal.value, call.codec, call.what), (read,)
        return None

    async def _looked(self, call: _Call) -> bool:
        """Look at what was sent, unless enough of it is known; False if cancellation came while nobody answered."""
        record, pauses = self._record, Pauses()
        while not self._has_own(call):
            read = await self._ledger.signals(record.row.id, call.name)
            if isinstance(read, Failure):
                may_end = record.cancellation.may_reach
                if await record.try_again(read.failure(), pauses, cancellable=may_end) == "cancel":
                    return False
                continue
            for signal in read.unwrap():
                if signal.no > self._seen[call.name]:
                    self._seen[call.name] = signal.no
                    self._unread[call.name].append(signal)
            break
        return True

    # --- races ------------------------------------------------------------------

    def _keep(self, row: StepRow) -> None:
        """The branch of a call that was recorded has lost a race: what it has read is for the next one that asks."""
        if row.kind != KIND or row.status != "done":
            return
        value = read_signal_reading(row.value or b"").value
        if value is None or any(reading.again == row.key for reading in self._readings(row.target)):
            return
        insort(self._kept[row.target], (self._first_read_at(row), row.key, value))
        if self._waiting[row.target]:
            self._record.waits.wake()

    def _first_read_at(self, row: StepRow) -> int:
        """The position at which the signal was read that this call has read, perhaps again, as others lost it."""
        while (again := read_signal_reading(row.value or b"").again) is not None:
            if (before := self._record.history.row(again)) is None or before.status != "done":
                break
            row = before
        return row.position or 0

    def _readings(self, name: str) -> list[SignalReading]:
        """What calls of this name have recorded."""
        rows = self._record.history.all_of(KIND, name)
        return [read_signal_reading(row.value or b"") for row in rows if row.status == "done"]
