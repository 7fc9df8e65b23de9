"""Owners of runs, as far as a journal asks: whether the run is still theirs."""

from __future__ import annotations

from ...core.batch import Fenced, RunFence
from ...core.journal import Owner
from ...core.model import Unavailable, check_name
from ...core.outcome import Failure, Outcome, Success
from ...services.ledger import Ledger

__all__ = ["check_owner", "fence_of"]


def fence_of(run_id: str, owner: object) -> Outcome[tuple[RunFence, ...], Fenced]:
    """What a batch of this owner expects; an owner that cannot be one has lost the run."""
    if owner is None:
        return Success(())
    if not isinstance(owner, Owner) or type(owner.fence) is not int or owner.fence < 1:
        return Failure(Fenced(run_id))
    try:
        _ = check_name("an owner", owner.id)
    except (TypeError, ValueError):
        return Failure(Fenced(run_id))
    return Success((RunFence(run_id, owner.fence),))


async def check_owner(
    ledger: Ledger, run_id: str, owner: Owner | None
) -> Outcome[tuple[RunFence, ...], Fenced | Unavailable]:
    """The same, after a look whether the run is theirs now: who has lost it is told nothing else."""
    fence = fence_of(run_id, owner)
    if isinstance(fence, Failure):
        return fence
    for expected in fence.unwrap():
        read = await ledger.run(run_id)
        if isinstance(read, Failure):
            return read
        run = read.unwrap()
        if run is None or run.fence != expected.fence:
            return Failure(Fenced(run_id))
    return fence
