"""The review of one file, as a workflow: what it finds goes to the board, a verdict comes from there."""

from __future__ import annotations

from pydantic import BaseModel

from stepwell import Failure, Outcome, Retry, Run, Success, workflow

from .board import BOARD, Board, BoardFailure, Entry, Verdict
from .steps import Changed, Job, check_links, check_spelling, measure, publish_html, publish_markdown, read

STAGES = ("read", "measure", "links", "spelling", "record", "findings", "markdown", "html")
"""The keys that every whole review has, in order. Beside them it has as many looks and pauses as it waits."""

LOOKS = 400
PAUSE = 0.2
"""How often a run looks for its verdict, and the seconds between two looks: 80 seconds in all."""


class Reviewed(BaseModel, frozen=True):
    """The review is done: the verdict, and where the reports are."""

    verdict: Verdict
    reports: list[str]


class NotReviewed(BaseModel, frozen=True):
    """Nobody gave a verdict for the file, however often the run looked."""

    path: str
    looks: int


@workflow
async def review(run: Run, job: Job) -> Outcome[Reviewed, Changed | NotReviewed | BoardFailure]:
    """Read and examine a file, record the findings, wait for the verdict, publish the report."""
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

    verdict = await wait_for_verdict(run, job)
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


async def wait_for_verdict(run: Run, job: Job) -> Outcome[Verdict, NotReviewed | BoardFailure]:
    """Look at the board until the reviewer has decided. Each look is a step, and so is each pause."""

    def decided(board: Board) -> Verdict | None:
        entry = board.entries.get(job.path)
        return entry.verdict if entry is not None and entry.run_id == run.id else None

    board = run.store(BOARD, job.board)
    for look in range(1, LOOKS + 1):
        seen = await board.select(f"look {look}", decided)
        if isinstance(seen, Failure):
            return seen
        verdict = seen.unwrap()
        if verdict is not None:
            return Success(verdict)
        await run.sleep(f"pause {look}", PAUSE)
    return Failure(NotReviewed(path=job.path, looks=LOOKS))
