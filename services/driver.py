"""What executes a run, as the calls of `Run` and `RunStore` ask for it: values are encoded, keys are checked."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Generator
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, final

from ..core.codec import Codec
from ..core.model import (
    Conflict,
    Deleted,
    InvalidState,
    ReceiptMismatch,
    Revision,
    Snapshot,
    StoreNotFound,
    Taken,
    TimedOut,
    TooLarge,
    Unmatched,
    Updated,
)
from ..core.outcome import Outcome
from ..core.retry import Retry
from ..core.step import Mode
from .signal import InvalidSignal
from .step import STEP, NotReplaySafe
from .store import Claim, Initial, Selector, StoreDefinition, Updater

if TYPE_CHECKING:  # a program without cached steps does not load what these need
    from ..core.boundary import Boundary
    from ..core.command import Command
    from .step_sandbox import Workspace

__all__ = ["CachedCall", "Driver", "DurableCall", "StepCall", "StoreCalls"]

_R = TypeVar("_R")
_R_co = TypeVar("_R_co", covariant=True)
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class StepCall:
    """A step as a driver executes it: the function with its arguments bound, and how its result is kept."""

    key: str
    target: str
    fn: Callable[[], object]
    is_async: bool
    codec: Codec
    retry: Retry
    mode: Mode
    timeout_ms: int | None


@dataclass(frozen=True, slots=True)
class CachedCall:
    """A cached step as a driver executes it.

    `body` has its arguments bound: they are what `arguments`, a JSON array, says. `function` is what its code is
    identified by, None for a command; `version` is what the caller says in its place.
    """

    key: str
    target: str
    body: Command | Callable[[Workspace], object]
    function: Callable[..., object] | None
    arguments: bytes
    codec: Codec
    boundary: Boundary
    version: str | None


class StoreCalls(Protocol):
    """The durable calls on stores, encoded for a driver."""

    async def get(
        self, key: str, definition: StoreDefinition[_T], id: str, version: int | Revision | None = None
    ) -> Outcome[Snapshot[_T], StoreNotFound | InvalidState]: ...

    async def select(
        self, key: str, definition: StoreDefinition[_T], id: str, selector: Callable[[_T], object], codec: Codec
    ) -> Outcome[object, StoreNotFound | InvalidState]: ...

    async def get_or_create(
        self, key: str, definition: StoreDefinition[_T], id: str, initial: Initial[_T]
    ) -> Outcome[Snapshot[_T], InvalidState | TooLarge]: ...

    async def update(
        self, key: str, definition: StoreDefinition[_T], id: str, updater: Updater[_T]
    ) -> Outcome[Updated[_T], StoreNotFound | InvalidState | ReceiptMismatch | TooLarge]: ...

    async def update_from(
        self,
        key: str,
        definition: StoreDefinition[_T],
        id: str,
        expected: Snapshot[_T] | Revision,
        updater: Updater[_T],
    ) -> Outcome[Updated[_T], Conflict | StoreNotFound | InvalidState | ReceiptMismatch | TooLarge]: ...

    async def delete_from(
        self, key: str, definition: StoreDefinition[_T], id: str, expected: Snapshot[_T] | Revision
    ) -> Outcome[Deleted, Conflict | StoreNotFound | ReceiptMismatch | TooLarge]: ...

    async def take(
        self,
        key: str,
        definition: StoreDefinition[_T],
        id: str,
        selector: Selector[_T, _R],
        claim: Claim[_T, _R],
        codec: Codec,
    ) -> Outcome[Taken[object], StoreNotFound | InvalidState | ReceiptMismatch | TooLarge]: ...

    async def take_now(
        self,
        key: str,
        definition: StoreDefinition[_T],
        id: str,
        selector: Selector[_T, _R],
        claim: Claim[_T, _R],
        codec: Codec,
    ) -> Outcome[Taken[object], Unmatched | StoreNotFound | InvalidState | ReceiptMismatch | TooLarge]: ...

    async def when(
        self,
        key: str,
        definition: StoreDefinition[_T],
        id: str,
        selector: Selector[_T, object],
        codec: Codec,
        timeout_ms: int | None,
    ) -> Outcome[object, StoreNotFound | InvalidState | TimedOut]: ...


class Driver(Protocol):
    """Who executes a run. Its calls raise what the durable calls of `Run` raise."""

    @property
    def run_id(self) -> str: ...

    @property
    def suspending(self) -> bool: ...

    @property
    def stores(self) -> StoreCalls: ...

    async def step(self, call: StepCall) -> object: ...

    async def cached_step(self, call: CachedCall) -> object: ...

    async def sleep(self, key: str, delay_ms: int) -> None: ...

    async def sleep_until(self, key: str, at_ms: int) -> None: ...

    async def signal(
        self, name: str, codec: Codec, timeout_ms: int | None
    ) -> Outcome[object, TimedOut | InvalidSignal]: ...

    async def gather(self, awaitables: tuple[Awaitable[object], ...]) -> tuple[object, ...]: ...

    async def race(self, awaitables: tuple[Awaitable[object], ...]) -> object: ...

    async def carried(self, call: Coroutine[Any, Any, _R]) -> _R:
        """What a durable call gives; where its branch loses a race meanwhile, it is cancelled in its turn."""
        ...

    def defer(self, call: StepCall) -> None: ...

    def made(self, call: DurableCall[Any]) -> None:
        """A durable call was made, and is to be awaited before the run ends."""
        ...

    def awaited(self, call: DurableCall[Any]) -> None: ...


@final
class DurableCall(Coroutine[Any, Any, _R_co], Generic[_R_co]):
    """One durable call, to be awaited: a coroutine that knows its key, so that a forgotten `await` can be named."""

    __slots__ = ("_begun", "_coroutine", "_driver", "key")

    def __init__(self, driver: Driver, key: str, coroutine: Coroutine[Any, Any, _R_co]) -> None:
        step = STEP.get()
        if step is not None and step.run_id == driver.run_id:
            coroutine.close()
            raise NotReplaySafe(
                f"step {step.key!r} cannot make the durable call {key!r}: a step is one recorded unit of work. "
                "Make the call in the workflow, and give the step what it gave"
            )
        self._driver = driver
        self._coroutine = coroutine
        self.key = key
        self._begun = False
        driver.made(self)

    if not TYPE_CHECKING:  # seen by a checker, it would make every attribute exist

        def __getattr__(self, name):
            raise AttributeError(
                f"the durable call {self.key!r} has no {name!r}: write `await` before the call, and ask what it gives"
            )

    def send(self, value: Any, /) -> Any:
        self._admit()
        return self._coroutine.send(value)

    def throw(self, typ: Any, val: Any = None, tb: TracebackType | None = None, /) -> Any:
        self._admit()
        return self._coroutine.throw(typ if val is None else val)

    def close(self) -> None:
        self._coroutine.close()

    def __await__(self) -> Generator[Any, Any, _R_co]:
        if self._begun:
            raise RuntimeError(
                f"the durable call {self.key!r} was awaited before: keep what it gave, or make another one with a "
                "key of its own"
            )
        self._begun = True
        self._admit()
        return self._driver.carried(self._coroutine).__await__()

    def _admit(self) -> None:
        try:
            self._driver.awaited(self)
        except NotReplaySafe:
            self._coroutine.close()  # it never begins, and Python need not warn of that too
            raise
