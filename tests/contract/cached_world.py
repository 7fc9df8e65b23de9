"""One ledger, one host with files and one step cache, and the engines over them, for tests of cached steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Self, TypeVar, cast

from stepwell import (
    Accepted,
    AnyWorkflow,
    Boundary,
    Clock,
    Command,
    Failure,
    Layer,
    Ledger,
    MaterializationConflict,
    Materialized,
    Outcome,
    Run,
    StepSandbox,
    Success,
    UnsupportedBoundary,
    Workspace,
    WorkspaceError,
    WorkspaceTransaction,
    provides,
    workflow,
)
from stepwell.core.environment import Environment, Platform
from stepwell.core.journal import Entry
from stepwell.core.measured import MeasuredReads
from stepwell.core.outputs import Outputs
from stepwell.core.replay import ReplayFailure
from stepwell.core.step_cache import CacheEntry, CacheMiss, RecordedRef
from stepwell.core.step_sandbox import EvidenceLevel, ExecuteFailure, LimitExceeded
from stepwell.layers import step_cache
from stepwell.layers.cache_metrics import CacheMetrics
from stepwell.layers.combined_cache import CombinedStepCache
from stepwell.layers.engine import EngineOptions, LedgerEngine
from stepwell.layers.step_cache import LedgerStepCache
from stepwell.services.artifacts import Artifacts
from stepwell.services.journal_rows import CacheRows
from stepwell.services.shared_tier import SharedTier
from stepwell.services.step_cache import StepCache
from stepwell.services.step_sandbox import CachingTransaction

from .engine_world import EngineWorld, Opened, Steps, ended, success
from .sandbox_world import World
from .told_runs import entries_of

__all__ = ["BOUNDARY", "ENVIRONMENT", "OTHER", "Cached", "CachedWorld", "Meddling", "Meddlings", "flow_of"]

R = TypeVar("R")

BOUNDARY = Boundary(reads=("in.txt",), writes=("out/r",))
OTHER = Boundary(reads=("in.txt",), writes=("out/s",))


ENVIRONMENT = Environment("3.11.1", "test", Platform("test", "test"), "none")


# --- a sandbox that a test meddles with -----------------------------------------


@dataclass
class Meddlings:
    """What comes between the engine and the sandbox, until a test takes it back."""

    measure: LimitExceeded | WorkspaceError | None = None
    execute: WorkspaceError | None = None
    replay: ReplayFailure | None = None
    evidence: EvidenceLevel | None = None
    before_materialize: Callable[[], None] | None = None
    policy: str | None = None
    plain: bool = False


class Plain:
    """A transaction of which nothing can be kept."""

    def __init__(self, real: CachingTransaction, meddlings: Meddlings) -> None:
        self.real = real
        self.meddlings = meddlings
        self._given: dict[int, tuple[Accepted[object], Accepted[object]]] = {}

    async def __aenter__(self) -> Self:
        _ = await self.real.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        await self.real.__aexit__(kind, error, trace)

    async def execute(
        self, boundary: Boundary, body: Command | Callable[[Workspace], object]
    ) -> Outcome[Accepted[object], ExecuteFailure]:
        if self.meddlings.execute is not None:
            return Failure(self.meddlings.execute)
        executed: Outcome[Accepted[object], ExecuteFailure]
        if isinstance(body, Command):
            executed = await self.real.execute(boundary, body)
        else:
            executed = await self.real.execute(boundary, body)
        if isinstance(executed, Failure) or self.meddlings.evidence is None:
            return executed
        real = executed.unwrap()
        given = replace(real, evidence=self.meddlings.evidence)
        self._given[id(given)] = (given, real)
        return Success(given)

    async def materialize(
        self, accepted: Accepted[object]
    ) -> Outcome[Materialized, MaterializationConflict | WorkspaceError]:
        if (before := self.meddlings.before_materialize) is not None:
            self.meddlings.before_materialize = None
            before()
        return await self.real.materialize(self.real_of(accepted))

    def real_of(self, accepted: Accepted[object]) -> Accepted[object]:
        return self._given[id(accepted)][1] if id(accepted) in self._given else accepted


class Meddling(Plain):
    """The same with all that caching needs."""

    def policy(self, body: Command | Callable[..., object]) -> str:
        return self.meddlings.policy or self.real.policy(body)

    async def measure(self, boundary: Boundary) -> Outcome[MeasuredReads, LimitExceeded | WorkspaceError]:
        if self.meddlings.measure is not None:
            return Failure(self.meddlings.measure)
        return await self.real.measure(boundary)

    async def record(self, accepted: Accepted[object]) -> Outcome[Outputs, LimitExceeded | WorkspaceError]:
        return await self.real.record(self.real_of(accepted))

    async def replay(
        self, boundary: Boundary, outputs: Outputs, reads: MeasuredReads
    ) -> Outcome[Materialized, ReplayFailure]:
        if self.meddlings.replay is not None:
            return Failure(self.meddlings.replay)
        return await self.real.replay(boundary, outputs, reads)


class MeddledSandbox:
    def __init__(self, real: StepSandbox, meddlings: Meddlings) -> None:
        self._real = real
        self._meddlings = meddlings

    async def open(self) -> Outcome[WorkspaceTransaction, UnsupportedBoundary]:
        opened = await self._real.open()
        if isinstance(opened, Failure):
            return opened
        real = opened.unwrap()
        assert isinstance(real, CachingTransaction)
        kind = Plain if self._meddlings.plain else Meddling
        return Success(cast(WorkspaceTransaction, kind(real, self._meddlings)))  # `execute` is not overloaded here


# --- engines --------------------------------------------------------------------


@dataclass(frozen=True)
class Cached:
    """One engine, and what its cached steps have left."""

    app: Opened
    metrics: CacheMetrics
    cache: StepCache

    async def run(self, flow: AnyWorkflow, run_id: str) -> object:
        """What a run gives that is started under this id, or why it does not."""
        handle = success(await self.app.engine.start(flow, id=run_id))
        outcome = await ended(handle)
        return outcome.unwrap() if isinstance(outcome, Success) else outcome.failure()

    async def entries(self, run_id: str) -> list[Entry]:
        return await entries_of(self.app.ledger, run_id)

    async def told(self, run_id: str) -> list[str]:
        """What the journal of a run says of rows: the actions, with their reasons."""
        said: list[str] = []
        for entry in await self.entries(run_id):
            payload = entry.payload
            if entry.event_type == "stepwell.cache-provenance" and isinstance(payload, dict):
                members = cast("dict[str, object]", payload)
                reason = members.get("reason", members.get("verdict", members.get("stage")))
                said.append(f"{members['action']}" + (f"({reason})" if reason else ""))
        return said

    async def facts(self, run_id: str, event_type: str) -> list[dict[str, object]]:
        """The payloads of the entries of a type."""
        entries = await self.entries(run_id)
        return [cast("dict[str, object]", each.payload) for each in entries if each.event_type == event_type]

    async def heads(self) -> list[RecordedRef]:
        """The rows in force."""
        ledger = self.app.ledger
        assert isinstance(ledger, CacheRows)
        return [head.ref for head in success(await ledger.heads())]

    async def row(self, ref: RecordedRef) -> CacheEntry:
        return success(await self.cache.get(ref.key_digest, recorded_by=ref))

    async def head(self) -> CacheEntry:
        """The only row in force."""
        (ref,) = await self.heads()
        got: Outcome[CacheEntry, CacheMiss | object] = await self.cache.get(ref.key_digest)
        return success(got)


class CachedWorld:
    """`calls` counts the executions of bodies, by their name."""

    def __init__(self, engines: EngineWorld, files: World) -> None:
        self.engines = engines
        self.files = files
        self.calls = Counter[str]()
        self.meddlings = Meddlings()
        self.tier: SharedTier | None = None

    @asynccontextmanager
    async def engine(self, *workflows: AnyWorkflow, **options: object) -> AsyncGenerator[Cached]:
        """An engine for the time of the block, over the same ledger and the same files."""
        told = cast(EngineOptions, {"environment": ENVIRONMENT, **options})
        async with self.engines.engine(*workflows, steps=self._steps(), options=told) as app:
            assert isinstance(app.engine, LedgerEngine)
            yield Cached(app, app.engine.cache_metrics, LedgerStepCache(app.ledger, app.clock))

    def _steps(self) -> Layer[Steps, Steps]:
        sandbox, artifacts = MeddledSandbox(self.files.sandbox, self.meddlings), self.files.artifacts

        @provides
        def given_sandbox() -> Iterator[StepSandbox]:
            yield sandbox

        @provides
        def given_artifacts() -> Iterator[Artifacts]:
            yield artifacts

        cache = step_cache.layer_test() if self.tier is None else combined(self.tier)
        return cast("Layer[Steps, Steps]", given_sandbox | given_artifacts | cache)

    def shout(self, workspace: Workspace) -> str:
        """A body that reads `in.txt` and writes `out/r`."""
        self.calls["shout"] += 1
        workspace.write_text("out/r", workspace.read_text("in.txt").upper())
        return "made"

    def flow(self, boundary: Boundary = BOUNDARY, version: str = "1") -> AnyWorkflow:
        """A workflow of one cached step that shouts."""
        return flow_of(self.shout, boundary, version)


def combined(tier: SharedTier) -> Layer[StepCache, Clock | Ledger]:
    """The step cache of the ledger, with this tier behind it."""

    @provides
    def recipe(ledger: Ledger, clock: Clock) -> Iterator[StepCache]:
        yield CombinedStepCache(LedgerStepCache(ledger, clock), tier, clock, publication="deferred", lookups=None)

    return recipe


def flow_of(body: Callable[[Workspace], R], boundary: Boundary = BOUNDARY, version: str | None = "1") -> AnyWorkflow:
    """A workflow of one cached step, and its result."""

    @workflow(name="flow")
    async def flow(run: Run) -> R:
        return await run.cached_step("step", body, boundary=boundary, version=version)

    return cast(AnyWorkflow, flow)
