"""The engine over a ledger: it starts runs, lets its worker drive them, and reads their outcomes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TypeAlias, TypeVar, TypeVarTuple, Unpack, final

from ..core import cancellation
from ..core.codec import read_error
from ..core.model import TimedOut, TooLarge, Unavailable, check_name
from ..core.outcome import Failure, Outcome, Success
from ..core.poll import DEFAULT_POLL, PollPolicy
from ..core.run import RunRow, RunState
from ..core.signal import SignalRow
from ..core.signal_value import encode_signal
from ..core.waiting_on import explain
from ..services.artifacts import Artifacts
from ..services.clock import Clock, span_ms
from ..services.engine import (
    Engine,
    ResultFailure,
    RunCancelled,
    RunFailed,
    RunHandle,
    RunMismatch,
    RunNotFound,
    RunStatus,
)
from ..services.ids import Ids
from ..services.journal import Journal
from ..services.ledger import Ledger
from ..services.run import Run
from ..services.run_store import Timeout
from ..services.signal import InvalidSignal, RunEnded
from ..services.step_cache import StepCache
from ..services.step_sandbox import StepSandbox
from ..services.store import Store
from ..services.waiters import Waiters
from ..services.wake_bus import WakeBus
from ..services.workflow import AnyWorkflow, WorkflowCall
from .cache_metrics import CacheMetrics
from .driver.cache_options import CacheOptions, EngineOptions, admit_options, cache_options
from .driver.execution import Pool
from .driver.intervening import Interventions
from .driver.listening import ResultListeners
from .driver.mailbox import Mailbox
from .driver.owner import name_owner
from .driver.registry import as_workflow, by_name, read_json, reader
from .driver.signal_types import SignalTypes
from .driver.starting import Starts
from .driver.tools import Services, Tools
from .driver.worker import Worker
from .layer import Layer, provides

__all__ = ["EngineOptions", "LedgerEngine", "NoopEngine", "layer", "layer_noop", "layer_test"]

_R = TypeVar("_R")
_Ts = TypeVarTuple("_Ts")


@final
class LedgerEngine:
    """Runs whose rows are in a ledger. It drives runs of its own workflows, and none if it has no worker."""

    def __init__(
        self,
        services: Services,
        workflows: Iterable[AnyWorkflow],
        *,
        drive: bool,
        poll: PollPolicy,
        caching: CacheOptions,
    ) -> None:
        self._ledger = services.ledger
        self._wake_bus = services.wake_bus
        self._clock = services.clock
        self._ids = services.ids
        self._workflows = by_name(workflows)
        self._owner = name_owner(services.ids.new())
        self._pool = Pool()
        self._signal_types = SignalTypes()
        self._mailbox = Mailbox(services)
        self._interventions = Interventions(services)
        self._listeners = ResultListeners(services.ledger, services.clock, self._drives)
        self._poll = poll
        drives = drive and bool(self._workflows)
        tools = Tools.of(services, self._pool, self._on_wait, self._signal_types, caching)
        self._cache_metrics = caching.metrics
        worker = Worker(tools, self._owner, self._workflows, self._listeners.tell, poll)
        self._worker = worker if drives else None
        self._starts = Starts(services, self._owner, self._workflows, self._worker)

    async def __aenter__(self) -> LedgerEngine:
        if self._worker is not None:
            self._worker.open()
        return self

    @property
    def cache_metrics(self) -> CacheMetrics:
        """How often cached steps asked the step cache, and what came of it."""
        return self._cache_metrics

    def _on_wait(self) -> None:
        if self._worker is not None:
            self._worker.poll_soon()

    async def __aexit__(self, *_: object) -> None:
        try:
            if self._worker is not None:
                await self._worker.close()
        finally:
            self._listeners.close()
            self._pool.close()

    def _drives(self, run_id: str) -> bool:
        return self._worker is not None and self._worker.drives(run_id)

    # --- starting ---------------------------------------------------------------

    async def start(
        self, workflow: Callable[[Run, *_Ts], WorkflowCall[_R]], *args: *_Ts, id: str | None = None
    ) -> Outcome[RunHandle[_R], RunMismatch | TooLarge | Unavailable]:
        started = as_workflow(workflow)
        begun = await self._starts.start(started, args, id)
        return begun if isinstance(begun, Failure) else Success(RunHandle[_R](self, begun.unwrap(), reader(started)))

    # --- looking ----------------------------------------------------------------

    async def status(self, id: str) -> Outcome[RunStatus, RunNotFound | Unavailable]:
        found = await self._interventions.row(id)
        if isinstance(found, Failure):
            return found
        row = found.unwrap()
        if row.state != "waiting" or row.waiting_on is None:
            return Success(self._status(row))
        waits = await self._interventions.waits(id)
        if isinstance(waits, Failure):
            return waits
        text = explain(row.waiting_on, row.wake_at_ms, waits.unwrap())
        return Success(self._status(replace(row, waiting_on=text)))

    async def runs(
        self,
        *,
        state: RunState | None = None,
        workflow: str | None = None,
        limit: int = 100,
        after: str | RunStatus | None = None,
        newest_first: bool = False,
    ) -> Outcome[tuple[RunStatus, ...], Unavailable]:
        if limit < 0:
            raise ValueError(f"runs(limit={limit}): it cannot be negative")
        place = after.no if isinstance(after, RunStatus) else after
        found = await self._ledger.runs(
            state=state, workflow=workflow, limit=limit, after=place, newest_first=newest_first
        )
        return found if isinstance(found, Failure) else Success(tuple(map(self._status, found.unwrap())))

    def _status(self, row: RunRow) -> RunStatus:
        problem = row.problem
        if self._worker is not None and row.owner is None and row.workflow not in self._workflows and not row.ended:
            problem = problem or f"no workflow named {row.workflow!r} is registered in this process"
        instants = (row.created_at_ms, row.updated_at_ms)
        return RunStatus(row.id, row.workflow, row.state, row.waiting_on, problem, *instants, row.no)

    async def result(self, id: str, *, timeout: Timeout = None) -> Outcome[object, ResultFailure]:
        ended = await self._ending(id, timeout)
        if isinstance(ended, Failure):
            return ended
        row = ended.unwrap()
        workflow = self._workflows.get(row.workflow)
        read = read_json if workflow is None else reader(workflow)
        return Success(read(row.outcome or b"null"))

    async def outcome(self, id: str, *, timeout: Timeout = None) -> Outcome[bytes, ResultFailure]:
        """What a run returned, as JSON; for handles, which know the type."""
        ended = await self._ending(id, timeout)
        return ended if isinstance(ended, Failure) else Success(ended.unwrap().outcome or b"null")

    async def _ending(self, id: str, timeout: Timeout) -> Outcome[RunRow, ResultFailure]:
        """The row of a run that has completed, awaited for `timeout` at most."""
        began_ms = self._clock.now_ms()
        timeout_ms = None if timeout is None else span_ms("timeout", timeout)
        attempt = 1
        while True:
            with self._listeners.listening(id) as sign:
                if attempt > 1 or timeout_ms is not None or not self._drives(id):
                    found = await self._interventions.row(id)
                    if isinstance(found, Failure):
                        return found
                    row = found.unwrap()
                    if row.ended:
                        return _ending(row)
                if self._listeners.closed and not sign.done():
                    return Failure(Unavailable("the engine was closed while a call waited", "no"))
                pause_ms = self._poll.pause_ms(attempt)
                left_ms = pause_ms if timeout_ms is None else began_ms + timeout_ms - self._clock.now_ms()
                if left_ms <= 0:
                    return Failure(TimedOut(timeout_ms or 0))
                signed = await self._listeners.wait(sign, min(left_ms, pause_ms))
                if signed and (ended := sign.result()) is not None:
                    return _ending(ended)
                attempt = 1 if signed else attempt + 1

    # --- intervening ------------------------------------------------------------

    async def signal(
        self, id: str, name: str, value: object, *, dedupe: str | None = None
    ) -> Outcome[None, RunNotFound | RunEnded | InvalidSignal | TooLarge | Unavailable]:
        _ = check_name("a signal's name", name)
        if dedupe is not None:
            _ = check_name("what tells a signal from others, `dedupe`,", dedupe)
        found = await self._interventions.row(id)
        if isinstance(found, Failure):
            return found
        row = found.unwrap()
        if row.ended:
            return Failure(RunEnded(id, row.state))
        encoded = encode_signal(name, value, self._signal_types.of(row.workflow, name))
        if isinstance(encoded, Failure):
            return Failure(InvalidSignal(name, encoded.failure()))
        sent = await self._mailbox.send(SignalRow(id, name, encoded.unwrap(), dedupe))
        if isinstance(sent, Failure):
            return sent
        if sent.unwrap():
            return Success(None)
        ended = await self._interventions.row(id)
        return ended if isinstance(ended, Failure) else Failure(RunEnded(id, ended.unwrap().state))

    async def cancel(self, id: str) -> Outcome[None, RunNotFound | Unavailable]:
        asked = await self._interventions.cancel(id)
        if isinstance(asked, Failure):
            return asked
        before = asked.unwrap()
        if not before.ended and cancellation.ends_at_once(before):
            self._listeners.tell(id)
        elif not before.ended and self._worker is not None:
            self._worker.cancel(id)
            self._worker.look()
        return Success(None)

    async def resume(
        self, id: str, *, drop: Sequence[str] = (), reopen: bool = False
    ) -> Outcome[None, RunNotFound | Unavailable]:
        if isinstance(drop, str):
            raise TypeError(f"resume(drop={drop!r}): it is a sequence of keys; write drop=[{drop!r}]")
        resumed = await self._interventions.resume(id, drop=drop, reopen=reopen)
        if isinstance(resumed, Failure):
            return resumed
        if resumed.unwrap() and self._worker is not None:
            self._worker.look()
        return Success(None)


@final
class NoopEngine:
    """There is no engine: nothing is started, and nothing is known."""

    async def start(
        self, workflow: Callable[[Run, *_Ts], WorkflowCall[_R]], *args: *_Ts, id: str | None = None
    ) -> Outcome[RunHandle[_R], RunMismatch | TooLarge | Unavailable]:
        return _absent()

    async def status(self, id: str) -> Outcome[RunStatus, RunNotFound | Unavailable]:
        return _absent()

    async def result(self, id: str, *, timeout: Timeout = None) -> Outcome[object, ResultFailure]:
        return _absent()

    async def signal(
        self, id: str, name: str, value: object, *, dedupe: str | None = None
    ) -> Outcome[None, RunNotFound | RunEnded | InvalidSignal | TooLarge | Unavailable]:
        return _absent()

    async def cancel(self, id: str) -> Outcome[None, RunNotFound | Unavailable]:
        return _absent()

    async def resume(
        self, id: str, *, drop: Sequence[str] = (), reopen: bool = False
    ) -> Outcome[None, RunNotFound | Unavailable]:
        return _absent()

    async def runs(
        self,
        *,
        state: RunState | None = None,
        workflow: str | None = None,
        limit: int = 100,
        after: str | RunStatus | None = None,
        newest_first: bool = False,
    ) -> Outcome[tuple[RunStatus, ...], Unavailable]:
        return _absent()


# --- helpers ------------------------------------------------------------------


def _absent() -> Failure[Unavailable]:
    return Failure(Unavailable("there is no engine in this composition: add `engine.layer(...)`", "no"))


def _ending(row: RunRow) -> Outcome[RunRow, RunFailed | RunCancelled]:
    match row.state:
        case "failed":
            error, _ = read_error(row.outcome or b"")
            return Failure(RunFailed(row.id, error))
        case "cancelled":
            return Failure(RunCancelled(row.id))
        case _:
            return Success(row)


# --- layers ------------------------------------------------------------------

Needs: TypeAlias = Artifacts | Clock | Ids | Journal | Ledger | StepCache | StepSandbox | Store | Waiters | WakeBus
"""What the engine drives."""


def layer(
    workflows: Iterable[AnyWorkflow] = (), drive: bool = True, **options: Unpack[EngineOptions]
) -> Layer[Engine, Needs]:
    """The engine over whichever ledger is services. It drives its own `workflows`, unless `drive` says not to.

    A ValueError says that two workflows have one name, a TypeError which option there is not; `EngineOptions` says what
    each is for. A program that has a thousand runs under way at a time does well to let Python's collector look less
    often, by `gc.set_threshold(50_000)`; `benchmarks/workflow.py` shows what that is worth.
    """
    known = tuple(by_name(workflows).values())
    poll = options.get("poll", DEFAULT_POLL)
    max_age_ms = admit_options(options)

    @provides
    async def recipe(
        ledger: Ledger,
        store: Store,
        waiters: Waiters,
        wake_bus: WakeBus,
        clock: Clock,
        ids: Ids,
        journal: Journal,
        artifacts: Artifacts,
        step_cache: StepCache,
        step_sandbox: StepSandbox,
    ) -> AsyncIterator[Engine]:
        services = Services(ledger, store, waiters, wake_bus, clock, ids, journal, artifacts, step_cache, step_sandbox)
        caching = cache_options(options, store, max_age_ms)
        async with LedgerEngine(services, known, drive=drive, poll=poll, caching=caching) as engine:
            yield engine

    return recipe


def layer_test(
    workflows: Iterable[AnyWorkflow] = (), drive: bool = True, **options: Unpack[EngineOptions]
) -> Layer[Engine, Needs]:
    """The same engine: it is as deterministic as the clock, the ids and the ledger that it is services."""
    return layer(workflows, drive, **options)


def layer_noop() -> Layer[Engine, Engine]:
    """No engine: every call answers `Unavailable`."""

    @provides
    def recipe() -> Iterator[Engine]:
        yield NoopEngine()

    return recipe
