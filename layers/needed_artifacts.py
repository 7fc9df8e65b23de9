"""Which artifacts a ledger needs: what may not go when artifacts are collected.

Digests are found by what they look like, in all that a row of the step cache holds. So one may be kept that nobody
needs; none goes that somebody does.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Final

from ..core.model import Unavailable
from ..core.outcome import Failure, Outcome, Success
from ..core.run import ENDED
from ..core.step_cache import RecordedRef
from ..services.artifacts import ArtifactCorruption, ArtifactMissing, Artifacts, InvalidDigest
from ..services.journal_rows import CacheRows, JournalRows
from ..services.ledger import Ledger
from .stopped import Stopped, value_of

__all__ = ["damaged_artifacts", "needed_artifacts"]

_digests: Final = re.compile(rb"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])").findall

RUNS: Final = 1_000
"""How many runs are read at once."""


async def needed_artifacts(ledger: Ledger) -> Outcome[frozenset[str], Unavailable]:
    """The digests of all artifacts that recorded rows of the step cache, cached steps that are under way, and journals
    with long payloads may need: the `roots` of `Artifacts.collect`, beside those that the program itself knows.

    What is put while this reads is young, and the grace of `collect` keeps it. What a program has written to a store,
    or has a step give, is its own: nothing is known of it here.
    """
    try:
        return Success(frozenset([digest async for digest in _needed(ledger)]))
    except Stopped as stopped:
        return Failure(stopped.failure)


async def damaged_artifacts(ledger: Ledger, artifacts: Artifacts) -> Outcome[tuple[str, ...], Unavailable]:
    """Those of them that are there and have other bytes than their digest says, in ascending order. All are read."""
    needed = await needed_artifacts(ledger)
    if isinstance(needed, Failure):
        return needed
    damaged: list[str] = []
    for digest in sorted(needed.unwrap()):
        copied = await artifacts.copy(digest, len)
        if isinstance(copied, Failure):
            match copied.failure():
                case ArtifactCorruption():
                    damaged.append(digest)
                case ArtifactMissing() | InvalidDigest():  # what only looks like one of ours
                    pass
                case Unavailable() as unavailable:
                    return Failure(unavailable)
    return Success(tuple(damaged))


async def _needed(ledger: Ledger) -> AsyncIterator[str]:
    async for data in _held(ledger):
        for digest in _digests(data):
            yield digest.decode()


async def _held(ledger: Ledger) -> AsyncIterator[bytes]:
    """All that may name an artifact."""
    if isinstance(ledger, CacheRows):
        async for ref in _rows(ledger):
            stored = value_of(await ledger.recorded(ref))
            if stored is not None and stored.row is not None:
                yield stored.row.meta
                yield stored.row.result
    if isinstance(ledger, JournalRows):
        async for payload in _spilled(ledger):
            yield payload
    async for value in _under_way(ledger):
        yield value


async def _rows(ledger: CacheRows) -> AsyncIterator[RecordedRef]:
    """The rows that are in force, and all others of the runs that are known here."""
    after = ""
    while heads := value_of(await ledger.heads(after=after)):
        for head in heads:
            yield head.ref
        after = heads[-1].ref.key_digest
    if isinstance(ledger, JournalRows):
        async for run_id in _journals(ledger):
            last: RecordedRef | None = None
            while refs := value_of(await ledger.recorded_of(run_id, after=last)):
                for ref in refs:
                    yield ref
                last = refs[-1]


async def _journals(ledger: JournalRows) -> AsyncIterator[str]:
    after: str | None = None
    while rows := value_of(await ledger.journals(after=after)):
        for row in rows:
            yield row.run_id
        after = rows[-1].run_id


async def _spilled(ledger: JournalRows) -> AsyncIterator[bytes]:
    async for run_id in _journals(ledger):
        after: int | None = None
        while True:
            page = value_of(await ledger.entries(run_id, after=after))
            for entry in page.entries:
                if entry.spilled:
                    yield entry.payload
            if not page.has_more:
                break
            after = page.entries[-1].seq


async def _under_way(ledger: Ledger) -> AsyncIterator[bytes]:
    """What cached steps still owe to the host, in runs that have not ended."""
    after: int | None = None
    while rows := value_of(await ledger.runs(limit=RUNS, after=after)):
        for row in rows:
            if row.state not in ENDED:
                for step in value_of(await ledger.steps(row.id)):
                    if step.status == "settling" and step.value is not None:
                        yield step.value
        after = rows[-1].no
