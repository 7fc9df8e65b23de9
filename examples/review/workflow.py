"""The review of one file, as a workflow: what it finds goes to the board, a verdict comes from there."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from pydantic import BaseModel

from stepwell import Failure, Outcome, Retry, Run, Success, TimedOut, workflow

from .board import BOARD, Board, BoardFailure, Entry, Verdict
from .steps import Changed, Job, check_links, check_spelling, looked, measure, publish_html, publish_markdown, read

STAGES = ("read", "measure", "links", "spelling", "record", "findings", "markdown", "html")
"""The keys that every whole review has, in order. Beside them it opens the board, and waits for its verdict."""

VERDICT = "verdict"
"""The key of that wait."""

PATIENCE = 80.0
"""How many seconds a run waits for its verdict."""

FindVerdict: TypeAlias = Callable[[Board, str, str], Verdict | None]
"""What finds, on the board, the verdict on a path for a run."""


class Reviewed(BaseModel, frozen=True):
    """The review is done: the verdict, and where the reports are."""

    verdict: Verdict
    reports: list[str]


class NotReviewed(BaseModel, frozen=True):
    """Nobody gave a verdict for the file in time."""

    path: str
    after_ms: int


Review: TypeAlias = Outcome[Reviewed, Changed | NotReviewed | BoardFailure]


def verdict_on(board: Board, path: str, run_id: str) -> Verdict | None:
    """The verdict, if the entry is still this run's. It reads one entry, so no other wakes who waits by it."""
    entry = board.entries.get(path)
    return entry.verdict if entry is not None and entry.run_id == run_id else None


@workflow
async def review(run: Run, job: Job) -> Review:
    """Read and examine a file, record the findings, wait for the verdict, publish the report."""
    return await conduct(run, job, verdict_on)


async def conduct(run: Run, job: Job, find: FindVerdict) -> Review:
    """The review, in which `find` looks for the verdict."""
    text = await run.step("read", read, job, retry=Retry(max_attempts=3))
    if isinstance(text, Failure):
        return text
    content = text.unwrap()
    measures, links, misspellings = await run.gather(
        run.step("measure", measure, job, content),
        run.step("links", check_links, job, content),
        run.step("spelling", check_spelling, job, content),
    )

    def record(board: Board) -> None:
        before = board.entries.get(job.path)
        times = before.recorded if before is not None and before.run_id == run.id else 0
        board.entries[job.path] = Entry(
            run_id=run.id, recorded=times + 1, measures=measures, links=links, misspellings=misspellings
        )

    board = run.store(BOARD, job.board)
    opened = await board.get_or_create("board", Board)
    if isinstance(opened, Failure):
        return opened
    recorded = await board.update("record", record)
    if isinstance(recorded, Failure):
        return recorded

    verdict = await wait_for_verdict(run, job, find)
    if isinstance(verdict, Failure):
        return verdict
    findings = await board.get("findings")
    if isinstance(findings, Failure):
        return findings
    snapshot = findings.unwrap()
    reports = [
        await run.step("markdown", publish_markdown, job, snapshot.version, snapshot.state),
        await run.step("html", publish_html, job, snapshot.version, snapshot.state),
    ]
    return Success(Reviewed(verdict=verdict.unwrap(), reports=reports))


async def wait_for_verdict(run: Run, job: Job, find: FindVerdict) -> Outcome[Verdict, NotReviewed | BoardFailure]:
    """Wait until the reviewer has decided. The run looks again only when what `find` read has changed."""

    def decided(board: Board) -> Verdict | None:
        verdict = find(board, job.path, run.id)
        looked(job, run.id, found=verdict is not None)
        return verdict

    found = await run.store(BOARD, job.board).when(VERDICT, decided, timeout=PATIENCE)
    if isinstance(found, Failure):
        failure = found.failure()
        if isinstance(failure, TimedOut):
            return Failure(NotReviewed(path=job.path, after_ms=failure.after_ms))
        return Failure(failure)
    return found
