"""Lives of one run: the batches that a run's owners and others write of it, in an order that the rules allow."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final, get_args

from hypothesis import strategies as st
from msgspec.json import decode

from stepwell.core import cancellation, repair
from stepwell.core.batch import Batch, ChangeRun, InsertRun, NoRun, ReadSignal, RunFence, SendSignal, Write, WriteStep
from stepwell.core.codec import error_json
from stepwell.core.journal import Entry
from stepwell.core.lease import claim, hold, leave
from stepwell.core.model import RecordedError
from stepwell.core.run import TRANSITIONS, WANTS_OWNER, RunColumns, RunEvent, RunRow, next_state
from stepwell.core.run_events import run_entries
from stepwell.core.signal import SignalRow
from stepwell.core.step import StepRow, StepStatus

__all__ = ["FAILED", "LIVES", "NOW_MS", "SECRET", "Life"]

NOW_MS: Final = 1_700_000_000_000
SECRET: Final = "hunter2"
"""What every value, and every text of an error, holds."""

FAILED: Final = error_json(RecordedError("TimeoutError", f"late with {SECRET}", f"at {SECRET}"), "timed_out")
VALUE: Final = f'"{SECRET}"'.encode()
KEYS: Final = ("a", "b", "c")
STATUSES: Final[tuple[StepStatus, ...]] = get_args(StepStatus)
ACTS: Final = (
    *("claim", "wait", "go on", "release", "stop", "complete", "fail", "cancel"),
    *("request", "resume", "step", "step", "step", "signal", "read"),
)


@dataclass
class Life:
    """The run's rows as its batches leave them, and those batches."""

    is_claimed: bool
    row: RunRow = field(init=False)
    steps: dict[str, StepRow] = field(default_factory=dict[str, StepRow])
    batches: list[Batch] = field(default_factory=list[Batch])
    sent: int = 0

    def __post_init__(self) -> None:
        self.row = RunRow(id="r", workflow="ship", version="2", arguments=b"[" + VALUE + b"]", fence=1,
                          created_at_ms=NOW_MS, updated_at_ms=NOW_MS)  # fmt: skip
        if self.is_claimed:
            self.row = replace(self.row, state="running", owner="host/1", lease_until_ms=hold(NOW_MS))
        self.batches.append(Batch((NoRun("r"),), (InsertRun(self.row),)))

    def act(self, act: str, number: int) -> None:
        """Do this, if it may be done now."""
        row, at_ms = self.row, NOW_MS + len(self.batches)
        match act:
            case "claim" if row.state in ("pending", "running", "waiting"):
                self._change(claim(row, f"host/{number}", at_ms, position=number % 2))
            case "wait" if row.owner is not None:
                shown: RunColumns = {"waiting_on": f"signal {SECRET}", "wake_at_ms": at_ms + number}
                self._change({"state": next_state(row.state, "wait"), "updated_at_ms": at_ms, **shown})
            case "go on" if row.owner is not None and row.state == "waiting":
                self._change({"state": "running", "updated_at_ms": at_ms, "waiting_on": None, "wake_at_ms": None})
            case "release" if row.owner is not None:
                self._leave("release", at_ms, {"wake_at_ms": None, "waiting_on": WANTS_OWNER})
            case "stop" if row.owner is not None:
                self._leave("stop", at_ms, {"problem": f"what was recorded no longer fits: {SECRET}"})
            case "complete" if row.owner is not None:
                self._leave("complete", at_ms, {"outcome": VALUE, "problem": None})
            case "fail" if row.owner is not None:
                self._leave("fail", at_ms, {"outcome": FAILED, "problem": f"deferred {SECRET}"})
            case "cancel" if row.owner is not None and row.cancel_requested:
                self._leave("cancel", at_ms, {"outcome": None})
            case "request" if not row.ended:
                self._change(cancellation.request(row, at_ms))
            case "resume" if repair.may_resume(row, reopen=number % 2 == 0):
                self._change(repair.resume(row, at_ms))
            case "step":
                self._step(number, at_ms)
            case "signal" if not row.ended:
                self.sent += 1
                signal = SignalRow("r", "news", VALUE, SECRET if number % 2 else None)
                self.batches.append(Batch((), (SendSignal(signal),)))
            case "read":
                read = StepRow(run_id="r", key="news", kind="signal", target="news", status="done", position=number,
                               value=VALUE, recorded_at_ms=at_ms)  # fmt: skip
                self._write(WriteStep(read), ReadSignal("r", number, "news"))
            case _:
                pass

    def _step(self, number: int, at_ms: int) -> None:
        status = STATUSES[number % len(STATUSES)]
        key = KEYS[number % len(KEYS)]
        value = {"done": VALUE, "failed": FAILED, "retrying": FAILED, "dropped": VALUE}.get(status)
        row = StepRow(run_id="r", key=key, kind="step", target="pay", status=status, attempt=number, value=value,
                      position=number if status in ("done", "failed") else None,
                      at_ms=at_ms if status in ("waiting", "retrying") else None, recorded_at_ms=at_ms)  # fmt: skip
        self._write(WriteStep(row))

    def _leave(self, event: RunEvent, at_ms: int, columns: RunColumns) -> None:
        if (self.row.state, event) not in TRANSITIONS:
            self._change({"state": next_state(self.row.state, "claim"), "waiting_on": None, "wake_at_ms": None})
        self._change({**leave(self.row, event, at_ms), **columns})

    def _change(self, columns: RunColumns) -> None:
        self.batches.append(Batch((RunFence("r", self.row.fence),), (ChangeRun("r", columns),)))
        self.row = replace(self.row, **columns)

    def _write(self, *writes: Write) -> None:
        self.batches.append(Batch((RunFence("r", self.row.fence),), writes))
        self.steps |= {write.row.key: write.row for write in writes if isinstance(write, WriteStep)}

    def entries(self) -> list[Entry]:
        """What the journal is told, as it gives that back; an entry of a source that it has is not told again."""
        told = [entry for batch in self.batches for entry in run_entries(batch)]
        first = {entry.source: entry for entry in reversed(told) if entry.source is not None}
        kept = [entry for entry in told if entry.source is None or first[entry.source] is entry]
        return [
            Entry("r", seq, entry.event_type, decode(entry.payload), entry.source, NOW_MS, None)
            for seq, entry in enumerate(kept)
        ]


def _life(is_claimed: bool, acts: list[tuple[str, int]]) -> Life:
    life = Life(is_claimed)
    for act, number in acts:
        life.act(act, number)
    return life


LIVES: Final = st.builds(
    _life, st.booleans(), st.lists(st.tuples(st.sampled_from(ACTS), st.integers(0, 40)), max_size=30)
)
