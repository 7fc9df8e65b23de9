"""What the journals of an engine's runs hold, and whether that agrees with the rows of the runs."""

from __future__ import annotations

from functools import reduce as fold
from hashlib import sha256

from msgspec import convert
from msgspec.json import decode

from stepwell import Ledger
from stepwell.core.codec import read_error
from stepwell.core.journal import Entry
from stepwell.core.run import RunRow
from stepwell.core.run_fold import ToldRun, initial, reduce
from stepwell.core.step import StepRow
from stepwell.services.journal_rows import JournalRows

from .ledger_double import LedgerDouble
from .store_world import success

__all__ = ["check_agreement", "check_journals", "entries_of", "facts_of", "told_of", "types_of"]


async def entries_of(ledger: Ledger, run_id: str) -> list[Entry]:
    """All entries of a run's journal, numbered without gaps."""
    while isinstance(ledger, LedgerDouble):
        ledger = ledger.real
    assert isinstance(ledger, JournalRows)
    page = success(await ledger.entries(run_id, limit=100_000))
    assert [row.seq for row in page.entries] == list(range(len(page.entries)))
    return [
        Entry(run_id, row.seq, row.event_type, decode(row.payload), row.source, row.at_ms, None) for row in page.entries
    ]


def facts_of(entry: Entry) -> dict[str, object]:
    """The members of an entry's payload."""
    return convert(entry.payload, dict[str, object])


async def types_of(ledger: Ledger, run_id: str) -> list[str]:
    """The types of the entries, without the name that all of them have."""
    return [entry.event_type.removeprefix("stepwell.") for entry in await entries_of(ledger, run_id)]


async def told_of(ledger: Ledger, run_id: str) -> ToldRun:
    return fold(reduce, await entries_of(ledger, run_id), initial())


async def check_journals(ledger: Ledger) -> None:
    """`check_agreement` for all runs."""
    for row in success(await ledger.runs(limit=10_000)):
        await check_agreement(ledger, row.id)


async def check_agreement(ledger: Ledger, run_id: str) -> None:
    """The journal of the run, folded, says what its rows say; every completion is told once."""
    while True:
        entries = await entries_of(ledger, run_id)
        row, rows = success(await ledger.run(run_id)), success(await ledger.steps(run_id))
        if entries == await entries_of(ledger, run_id):  # nobody has written between the reads
            break
    assert row is not None
    told = fold(reduce, entries, initial())
    assert (told.workflow, told.state, told.owner) == (row.workflow, row.state, row.owner)
    assert told.cancel_requested == row.cancel_requested
    assert told.result == (_digest(row.outcome) if row.state == "completed" else None)
    assert told.error == (read_error(row.outcome or b"")[0].type if row.state == "failed" else None)
    assert {key: step.status for key, step in told.steps.items()} == {step.key: step.status for step in rows}
    for step in rows:
        facts = told.steps[step.key].facts
        assert (facts.kind, facts.target, facts.position) == (step.kind, step.target, step.position)
        assert facts.result == (_digest(step.value) if step.status == "done" else None)
    _check_once(entries, rows, row)


def _digest(value: bytes | None) -> str | None:
    return None if value is None else sha256(value).hexdigest()


def _check_once(entries: list[Entry], rows: tuple[StepRow, ...], row: RunRow) -> None:
    """No completion is told twice, unless its call was dropped in between."""
    told: list[tuple[str, int]] = []
    for entry in entries:
        match entry.payload:
            case {"key": str(key), "position": int(position)}:
                told.append((key, position))
            case {"key": str(key)} if entry.event_type == "stepwell.step-dropped":
                told = [each for each in told if each[0] != key]
            case _:
                pass
    assert len(told) == len(set(told)), (row.id, told)
    assert {(step.key, step.position) for step in rows if step.position is not None} <= set(told)
