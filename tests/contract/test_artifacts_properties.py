"""Whatever is put, damaged, read and collected, in whatever order: both hosts answer as a dict would."""

from __future__ import annotations

import asyncio
import io
import tempfile
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from stepwell import ArtifactCorruption, ArtifactMissing, Failure, Outcome, Success
from stepwell.core.node import digest_of
from stepwell.services.artifacts import Collected

from .artifacts_world import Host, World, opened

_T = TypeVar("_T")

CONTENTS = [b"", b"a", b"b", b"ab", bytes(70_000)]
DIGESTS = [digest_of(data) for data in CONTENTS]
WRONG = b"damaged"


@dataclass
class Kept:
    data: bytes
    put_at_ms: int


class Machine(RuleBasedStateMachine):
    """One host beside the naive definition."""

    host: Host = "memory"

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.scope = AsyncExitStack()
        self.model: dict[str, Kept] = {}
        self.now_ms = 0

    def wait(self, call: Coroutine[object, object, _T]) -> _T:
        return self.runner.run(call)

    async def _open(self) -> World:
        folder = self.scope.enter_context(tempfile.TemporaryDirectory())
        return await self.scope.enter_async_context(opened(self.host, Path(folder) / "kept"))

    @initialize()
    def open(self) -> None:
        self.world = self.wait(self._open())

    def teardown(self) -> None:
        self.wait(self.scope.aclose())
        self.runner.close()

    def expected(self, digest: str) -> Outcome[bytes, ArtifactMissing | ArtifactCorruption]:
        kept = self.model.get(digest)
        if kept is None:
            return Failure(ArtifactMissing(digest))
        measured = digest_of(kept.data)
        return Success(kept.data) if measured == digest else Failure(ArtifactCorruption(digest, measured))

    @rule(data=st.sampled_from(CONTENTS), streamed=st.booleans())
    def put(self, data: bytes, streamed: bool) -> None:
        artifacts = self.world.artifacts
        put = self.wait(artifacts.put_stream(io.BytesIO(data)) if streamed else artifacts.put(data))
        assert put == Success(digest_of(data))
        self.model[digest_of(data)] = Kept(data, self.now_ms)

    @precondition(lambda self: isinstance(self, Machine) and bool(self.model))
    @rule(pick=st.integers(0, 99))
    def damage(self, pick: int) -> None:
        digest = sorted(self.model)[pick % len(self.model)]
        self.world.behind.damage(digest, WRONG)
        self.model[digest].data = WRONG

    @rule(digest=st.sampled_from(DIGESTS))
    def get(self, digest: str) -> None:
        assert self.wait(self.world.artifacts.get(digest)) == self.expected(digest)

    @rule(digest=st.sampled_from(DIGESTS))
    def copy(self, digest: str) -> None:
        pieces: list[bytes] = []
        copied = self.wait(self.world.artifacts.copy(digest, pieces.append))
        match self.expected(digest):
            case Success(data):
                assert (copied, b"".join(pieces)) == (Success(len(data)), data)
            case failed:
                assert copied == failed

    @rule(asked=st.lists(st.sampled_from(DIGESTS), max_size=6))
    def find_missing(self, asked: list[str]) -> None:
        expected = tuple(digest for digest in dict.fromkeys(asked) if digest not in self.model)
        assert self.wait(self.world.artifacts.find_missing(asked)) == Success(expected)

    @rule(ms=st.integers(0, 3))
    def advance(self, ms: int) -> None:
        self.wait(self.world.clock.advance(ms))
        self.now_ms += ms

    @rule(roots=st.sets(st.sampled_from(DIGESTS)), grace_ms=st.integers(0, 4), dry_run=st.booleans())
    def collect(self, roots: set[str], grace_ms: int, dry_run: bool) -> None:
        collected = self.wait(self.world.artifacts.collect(roots, grace_ms=grace_ms, dry_run=dry_run))
        gone = {
            digest: kept
            for digest, kept in self.model.items()
            if digest not in roots and self.now_ms - kept.put_at_ms > grace_ms
        }
        size = sum(len(kept.data) for kept in gone.values())
        assert collected == Success(Collected(tuple(sorted(gone)), size, len(self.model) - len(gone)))
        if not dry_run:
            self.model = {digest: kept for digest, kept in self.model.items() if digest not in gone}

    @invariant()
    def what_is_kept_is_what_was_put(self) -> None:
        assert self.world.behind.kept() == {digest: kept.data for digest, kept in self.model.items()}


class MemoryMachine(Machine):
    host = "memory"


class FilesMachine(Machine):
    host = "files"


def test_artifacts_in_memory_are_a_dict() -> None:
    run_state_machine_as_test(MemoryMachine, settings=settings(max_examples=60, stateful_step_count=30))


def test_artifacts_in_files_are_a_dict() -> None:
    run_state_machine_as_test(FilesMachine, settings=settings(max_examples=30, stateful_step_count=30))
