"""The same review, waiting by a selector that reads too much: whatever is written to the board wakes all that wait.

`python examples/demo.py --plant greedy` drives the runs by this one, and must say so.
"""

from __future__ import annotations

from stepwell import Run, workflow

from .board import Board, Verdict
from .steps import Job
from .workflow import Review, conduct


def verdict_among_all(board: Board, path: str, run_id: str) -> Verdict | None:
    """The same verdict, found by going through all entries instead of asking for one."""
    verdicts = {(name, entry.run_id): entry.verdict for name, entry in board.entries.items()}
    return verdicts.get((path, run_id))


@workflow(name="review")
async def review(run: Run, job: Job) -> Review:
    """`review.workflow.review`, and nothing else, but for the selector."""
    return await conduct(run, job, verdict_among_all)
