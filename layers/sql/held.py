"""What a group of batches asks of what is stored, and what is held of it while the group is judged."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from ...core.batch import (
    Batch,
    ChangeRun,
    CreateStore,
    CutLog,
    DeleteStore,
    EraseStore,
    ForgetRun,
    Form,
    InsertRun,
    NoReceipt,
    NoRun,
    PassTurn,
    PatchStore,
    ReadSignal,
    Receipt,
    RegisterWaiter,
    RemoveWaiter,
    RenewLeases,
    RunFence,
    RunOpen,
    SendSignal,
    StoreAbsent,
    StoreAt,
    SweepSignals,
    TrimRun,
    WaiterAt,
    WriteBase,
    WriteReceipt,
    WriteStep,
)
from ...core.journal import Source
from ...core.journal_writes import (
    Append,
    CacheAt,
    CompactJournal,
    EvictHead,
    ForgetJournal,
    JournalAt,
    RecordRow,
    RewindJournal,
    SetHead,
    SourceFree,
    WriteCheckpoint,
)
from ...core.model import Revision, StepId, StoreKey
from .held_journals import HeldJournals

__all__ = ["KEPT", "Asked", "Held", "HeldRun", "HeldStore"]


class Asked:
    """What a group has to know of what is stored, apart from journals and the step cache (`held_journals.py`)."""

    __slots__ = ("forms", "receipts", "runs", "stores", "waiters")

    def __init__(self) -> None:
        self.forms: set[tuple[str, Form]] = set()
        self.stores: set[StoreKey] = set()
        self.receipts: set[tuple[StoreKey, StepId]] = set()
        self.runs: set[str] = set()
        self.waiters: set[tuple[StoreKey, StepId]] = set()

    @classmethod
    def of(cls, batches: Iterable[Batch]) -> Asked:
        asked = cls()
        for batch in batches:
            for expected in batch.expects:
                match expected:  # what is expected, and written, most often first, as in `size_bytes`
                    case RunFence():
                        asked.runs.add(expected.run_id)
                    case StoreAt() | StoreAbsent():
                        asked.stores.add(expected.key)
                    case NoReceipt():
                        asked.receipts.add((expected.key, expected.step))
                    case NoRun() | RunOpen():
                        asked.runs.add(expected.run_id)
                    case WaiterAt():
                        asked.waiters.add((expected.key, expected.step))
                    case SourceFree() | JournalAt() | CacheAt():
                        pass
            for write in batch.writes:
                match write:
                    case WriteStep(row):
                        asked.runs.add(row.run_id)
                        if row.pin is not None:
                            asked.stores.add(row.pin.key)
                    case Append():
                        pass
                    case PatchStore() | CreateStore():
                        asked.stores.add(write.key)
                        if write.form is not None:
                            asked.forms.add((write.key.name, write.form))
                    case DeleteStore() | CutLog() | EraseStore():
                        asked.stores.add(write.key)
                    case WriteReceipt():
                        asked.receipts.add((write.receipt.key, write.receipt.step))
                    case InsertRun(row):
                        asked.runs.add(row.id)
                    case SendSignal(row):
                        asked.runs.add(row.run_id)
                    case ChangeRun(run_id) | ReadSignal(run_id) | TrimRun(run_id) | ForgetRun(run_id):
                        asked.runs.add(run_id)
                    case RegisterWaiter(waiter):
                        asked.stores.add(waiter.key)
                    case RemoveWaiter() | PassTurn():
                        asked.stores.add(write.key)
                    case WriteBase() | RenewLeases() | SweepSignals():
                        pass
                    case WriteCheckpoint() | CompactJournal() | RewindJournal() | ForgetJournal():
                        pass
                    case RecordRow() | EvictHead() | SetHead():
                        pass
        return asked


@dataclass(slots=True)
class HeldStore:
    """A store's rows: its tip, None where it is deleted, and its last change. `stored`: there are rows in the tables.

    `instance` is the one that is in the table. `fno` is the number of the form of the tip. `waited`: somebody may wait
    there. `masks`: at least those that the paths of its waiters have; None is not known.
    """

    sid: int
    tip: Revision | None = None
    last_seq: int | None = None
    fno: int | None = None
    instance: str | None = None
    stored: bool = True
    waited: bool = False
    masks: set[int] | None = None


@dataclass(slots=True)
class HeldRun:
    no: int
    fence: int
    ended: bool


KEPT: Final = 16_384
"""Of how many stores, and of how many runs, the rows are kept from one group to the next: as many as tips are."""


class Held:
    """What is stored, and then also what the batches judged so far will have written; the `Tips` of `judge`.

    After the commit it is what is stored again: `committed` keeps it for the next group.
    """

    __slots__ = (
        "forms",
        "generations",
        "journals",
        "last_fno",
        "last_no",
        "last_seq",
        "last_sid",
        "new",
        "new_forms",
        "receipts",
        "runs",
        "sequence",
        "stored_sequence",
        "stores",
    )

    def __init__(
        self, last_sid: int, last_seq: int, last_no: int, sequence: int, last_fno: int, journals: HeldJournals
    ) -> None:
        self.last_sid = last_sid
        self.last_seq = last_seq
        self.last_no = last_no
        self.last_fno = last_fno
        self.journals = journals
        self.sequence = self.stored_sequence = sequence
        """The last number given to a registration, a wake or a signal."""
        self.generations: dict[tuple[StoreKey, StepId], int] = {}
        self.forms: dict[tuple[str, Form], int] = {}
        self.new_forms: list[tuple[str, Form]] = []
        self.stores: dict[StoreKey, HeldStore] = {}
        self.receipts: dict[tuple[StoreKey, StepId], Receipt] = {}
        self.runs: dict[str, HeldRun] = {}
        self.new: list[HeldStore] = []

    def tip(self, key: StoreKey) -> Revision | None:
        store = self.stores.get(key)
        return None if store is None else store.tip

    def receipt(self, key: StoreKey, step: StepId) -> Receipt | None:
        return self.receipts.get((key, step))

    def fence(self, run_id: str) -> int | None:
        run = self.runs.get(run_id)
        return None if run is None else run.fence

    def is_open(self, run_id: str) -> bool:
        run = self.runs.get(run_id)
        return run is not None and not run.ended

    def generation(self, key: StoreKey, step: StepId) -> int | None:
        return self.generations.get((key, step))

    def source(self, run_id: str, source: Source) -> bytes | None:
        return self.journals.identity(run_id, source)

    def journal(self, run_id: str) -> tuple[int, int | None]:
        return self.journals.place(run_id)

    def has_entry(self, run_id: str, seq: int) -> bool:
        return self.journals.has_entry(run_id, seq)

    def has_checkpoint(self, run_id: str, seq: int) -> bool:
        return self.journals.has_checkpoint(run_id, seq)

    def cache_changes(self) -> int:
        return self.journals.changes

    def next_number(self) -> int:
        self.sequence += 1
        return self.sequence

    def store(self, key: StoreKey) -> HeldStore:
        """The store's row, numbered now if there is none."""
        store = self.stores.get(key)
        if store is None:
            self.last_sid += 1
            store = self.stores[key] = HeldStore(self.last_sid, stored=False)
            self.new.append(store)
        return store

    def form(self, name: str, form: Form) -> int:
        """The number of the form, given now if it has none."""
        number = self.forms.get((name, form))
        if number is None:
            self.last_fno = number = self.last_fno + 1
            self.forms[name, form] = number
            self.new_forms.append((name, form))
        return number

    def committed(self) -> None:
        """What was going to be written is stored. Receipts and waiters are not kept: they are asked for once or so."""
        self.receipts.clear()
        self.generations.clear()
        self.new_forms.clear()
        self.stored_sequence = self.sequence
        if len(self.stores) > KEPT:
            self.stores.clear()
        if len(self.runs) > KEPT:
            self.runs.clear()
        if len(self.forms) > KEPT:
            self.forms.clear()
        for store in self.new:
            store.stored = True
        self.new.clear()
        self.journals.committed()
