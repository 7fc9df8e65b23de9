"""The engine: it starts runs of workflows, drives them, and tells what became of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, Protocol, TypeAlias, TypeVar, TypeVarTuple, cast, final, overload

from ..core.model import RecordedError, TimedOut, TooLarge, Unavailable
from ..core.outcome import Failure, Outcome, Success
from ..core.run import RunState
from .run_store import Timeout
from .signal import InvalidSignal, RunEnded
from .workflow import WorkflowCall

if TYPE_CHECKING:
    from .run import Run

__all__ = [
    "Engine",
    "ResultFailure",
    "RunCancelled",
    "RunFailed",
    "RunHandle",
    "RunMismatch",
    "RunNotFound",
    "RunStatus",
]

_A = TypeVar("_A")
_E = TypeVar("_E")
_R = TypeVar("_R")
_R_co = TypeVar("_R_co", covariant=True)
_Ts = TypeVarTuple("_Ts")

# --- failures ---------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RunMismatch:
    """The id belongs to a run of another workflow or with other arguments: both, in words. That run is untouched."""

    id: str
    recorded: str
    requested: str


@dataclass(frozen=True, slots=True)
class RunNotFound:
    """There is no run of that id."""

    id: str


@dataclass(frozen=True, slots=True)
class RunFailed:
    """The workflow raised; its error, as it was recorded."""

    id: str
    error: RecordedError


@dataclass(frozen=True, slots=True)
class RunCancelled:
    """The run was cancelled."""

    id: str


ResultFailure: TypeAlias = RunFailed | RunCancelled | RunNotFound | TimedOut | Unavailable

# --- values -----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RunStatus:
    """How a run stands. Instants are milliseconds of the ledger's clock.

    `waiting_on` says in words what a waiting run waits for and until when; `problem` says why a run is stuck, or what
    went wrong beside its outcome. `no` is the run's number in the order of start.
    """

    id: str
    workflow: str
    state: RunState
    waiting_on: str | None
    problem: str | None
    created_at_ms: int = 0
    updated_at_ms: int = 0
    no: int = field(default=0, compare=False)


@final
class RunHandle(Generic[_R_co]):
    """A run that was started. `R` is what its workflow returns."""

    __slots__ = ("_engine", "_id", "_read")

    def __init__(self, engine: Outcomes, id: str, read: Callable[[bytes], object]) -> None:
        self._engine = engine
        self._id = id
        self._read = read

    @property
    def id(self) -> str:
        return self._id

    @overload
    async def result(  # type: ignore[overload-overlap]  # a workflow's own Outcome is given flattened
        self: RunHandle[Success[_A] | Failure[_E]], timeout: Timeout = None
    ) -> Outcome[_A, _E | ResultFailure]: ...
    @overload
    async def result(self, timeout: Timeout = None) -> Outcome[_R_co, ResultFailure]: ...
    async def result(self, timeout: Timeout = None) -> Outcome[object, object]:
        """What the run ended with, awaited for `timeout` at most; an Outcome that the workflow returned, as it is."""
        recorded = await self._engine.outcome(self._id, timeout=timeout)
        if isinstance(recorded, Failure):
            return recorded
        value = self._read(recorded.unwrap())
        if isinstance(value, Success | Failure):
            return cast("Outcome[object, object]", value)
        return Success(value)

    async def status(self) -> Outcome[RunStatus, RunNotFound | Unavailable]:
        """How the run stands now."""
        return await self._engine.status(self._id)

    async def signal(
        self, name: str, value: object, *, dedupe: str | None = None
    ) -> Outcome[None, RunNotFound | RunEnded | InvalidSignal | TooLarge | Unavailable]:
        """Send the run a signal; see `Engine.signal`."""
        return await self._engine.signal(self._id, name, value, dedupe=dedupe)

    async def cancel(self) -> Outcome[None, RunNotFound | Unavailable]:
        """Ask the run to end; see `Engine.cancel`."""
        return await self._engine.cancel(self._id)

    def __repr__(self) -> str:
        return f"RunHandle({self._id!r})"


class Outcomes(Protocol):
    """What a handle asks of the engine that gave it."""

    async def outcome(self, id: str, *, timeout: Timeout = None) -> Outcome[bytes, ResultFailure]: ...

    async def status(self, id: str) -> Outcome[RunStatus, RunNotFound | Unavailable]: ...

    async def signal(
        self, id: str, name: str, value: object, *, dedupe: str | None = None
    ) -> Outcome[None, RunNotFound | RunEnded | InvalidSignal | TooLarge | Unavailable]: ...

    async def cancel(self, id: str) -> Outcome[None, RunNotFound | Unavailable]: ...


# --- the service ------------------------------------------------------------


class Engine(Protocol):
    """Runs of workflows. Every call may answer `Unavailable`."""

    async def start(
        self, workflow: Callable[[Run, *_Ts], WorkflowCall[_R]], *args: *_Ts, id: str | None = None
    ) -> Outcome[RunHandle[_R], RunMismatch | TooLarge | Unavailable]:
        """A run of `workflow` with these arguments; the one that has this id, if there is one, whatever became of it.

        Without `id` it is a new one. The run is durable when this answers. A TypeError says which argument does not
        fit; nothing is stored then.
        """
        ...

    async def status(self, id: str) -> Outcome[RunStatus, RunNotFound | Unavailable]:
        """How a run stands now."""
        ...

    async def result(self, id: str, *, timeout: Timeout = None) -> Outcome[object, ResultFailure]:
        """What a run ended with, awaited for `timeout` at most; at once for a run that has ended, in any process.

        The type is that of the workflow where this engine knows it, otherwise what its JSON gives. An Outcome that the
        workflow returned is inside the Success: only a handle, which knows the type, gives it flattened.
        """
        ...

    async def signal(
        self, id: str, name: str, value: object, *, dedupe: str | None = None
    ) -> Outcome[None, RunNotFound | RunEnded | InvalidSignal | TooLarge | Unavailable]:
        """Send a run a value under a name, which `run.signal` reads: each once, in the order in which they were sent.

        It is durable when this answers, and kept until the run asks for it. A second one with the same `dedupe`, 1 to
        512 bytes, for the same run and name is dropped, also when the first was read: so a retry is exact.
        `InvalidSignal`: the run reads another type, as far as this engine knows; where it does not, the run is told.
        `TooLarge`: the value is over 2 MiB of JSON, or 10,000 signals are unread. A TypeError says what is no JSON.
        Whatever the answer, nothing was sent, but for an `Unavailable` that says otherwise.
        """
        ...

    async def cancel(self, id: str) -> Outcome[None, RunNotFound | Unavailable]:
        """Ask a run to end. A pending one never starts; nothing happens to one that has ended.

        The workflow gets `asyncio.CancelledError` at the durable wait where it stands, or at its next one, has
        30 seconds to clean up, and ends cancelled whatever it returns.
        """
        ...

    async def resume(
        self, id: str, *, drop: Sequence[str] = (), reopen: bool = False
    ) -> Outcome[None, RunNotFound | Unavailable]:
        """Let a stuck run try again, with `reopen` a failed one too; nothing happens to another.

        The calls whose keys are in `drop` are set aside: the run makes them anew where its workflow asks for them, and
        need not ask for them. Everything else that was recorded stays. A failed run's outcome is taken back.
        A ValueError names a key that the run has not recorded, and those that it has; nothing is changed then.
        """
        ...

    async def runs(
        self,
        *,
        state: RunState | None = None,
        workflow: str | None = None,
        limit: int = 100,
        after: str | RunStatus | None = None,
        newest_first: bool = False,
    ) -> Outcome[tuple[RunStatus, ...], Unavailable]:
        """Runs in the order of their start, or reversed; at most `limit`, those that come after `after` there.

        The status of a run is a place also when that run was collected since; its id is none then, and the page empty.
        """
        ...
