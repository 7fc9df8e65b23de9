"""A run as its workflow sees it: durable calls, each under a key of its own.

The workflow is executed from the top whenever its run is taken up; a durable call whose result is recorded gives it at
once, without doing anything again. So code between durable calls must decide by what they gave, and by nothing else:
time, dice and the outside world belong in steps.

`Run` and `RunStore` are the typed face; they turn values to JSON and back, and leave the rest to a `Driver`.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Coroutine, Generator
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Generic, Protocol, TypeAlias, TypeVar, TypeVarTuple, cast, final, overload

from ..core.codec import Codec, result_codec, unwrapped
from ..core.kind import is_a
from ..core.model import (
    Conflict,
    Deleted,
    InvalidState,
    ReceiptMismatch,
    Revision,
    Snapshot,
    StoreNotFound,
    TooLarge,
    Updated,
    check_name,
)
from ..core.outcome import Outcome
from ..core.retry import NO_RETRY, Retry
from ..core.step import Mode
from .clock import span_ms
from .step import STEP, NotReplaySafe
from .store import Initial, StoreDefinition, Updater, admit_definition, admit_revision

__all__ = ["Driver", "DurableCall", "Run", "RunStore", "StepCall", "StoreCalls", "Timeout"]

_R = TypeVar("_R")
_R_co = TypeVar("_R_co", covariant=True)
_T = TypeVar("_T")
_Ts = TypeVarTuple("_Ts")
_T1 = TypeVar("_T1")
_T2 = TypeVar("_T2")
_T3 = TypeVar("_T3")
_T4 = TypeVar("_T4")
_T5 = TypeVar("_T5")

Timeout: TypeAlias = timedelta | float | None
"""How long, in seconds or as a timedelta; None is without end."""


# --- the encoded face -------------------------------------------------------


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


class StoreCalls(Protocol):
    """The durable calls on stores, encoded for a driver."""

    async def get(
        self, key: str, definition: StoreDefinition[_T], id: str
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


class Driver(Protocol):
    """Who executes a run. Its calls raise what the durable calls of `Run` raise."""

    @property
    def run_id(self) -> str: ...

    @property
    def suspending(self) -> bool: ...

    @property
    def stores(self) -> StoreCalls: ...

    async def step(self, call: StepCall) -> object: ...

    async def sleep(self, key: str, delay_ms: int) -> None: ...

    async def sleep_until(self, key: str, at_ms: int) -> None: ...

    async def gather(self, awaitables: tuple[Awaitable[object], ...]) -> tuple[object, ...]: ...

    def defer(self, call: StepCall) -> None: ...

    def made(self, call: DurableCall[Any]) -> None:
        """A durable call was made, and is to be awaited before the run ends."""
        ...

    def awaited(self, call: DurableCall[Any]) -> None: ...


@final
class DurableCall(Coroutine[Any, Any, _R_co], Generic[_R_co]):
    """One durable call, to be awaited: a coroutine that knows its key, so that a forgotten `await` can be named."""

    __slots__ = ("_coroutine", "_driver", "key")

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
        driver.made(self)

    def send(self, value: Any, /) -> Any:
        self._admit()
        return self._coroutine.send(value)

    def throw(self, typ: Any, val: Any = None, tb: TracebackType | None = None, /) -> Any:
        self._admit()
        return self._coroutine.throw(typ if val is None else val)

    def close(self) -> None:
        self._coroutine.close()

    def __await__(self) -> Generator[Any, Any, _R_co]:
        self._admit()
        return self._coroutine.__await__()

    def _admit(self) -> None:
        try:
            self._driver.awaited(self)
        except NotReplaySafe:
            self._coroutine.close()  # it never begins, and Python need not warn of that too
            raise


# --- the typed face ---------------------------------------------------------


@final
class Run:
    """The durable calls of one run. Every key is text, 1 to 512 bytes, and used once in the run over all kinds.

    Any call may raise `DuplicateKey`, `NotReplaySafe` (from a task of the workflow's own making), `Suspended` (let it
    pass) and `asyncio.CancelledError` (the run is cancelled: clean up, for at most 30 seconds, and end).
    """

    __slots__ = ("_driver",)

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    @property
    def id(self) -> str:
        return self._driver.run_id

    @property
    def suspending(self) -> bool:
        """Whether the run is being set aside: a durable call would raise `Suspended` now."""
        return self._driver.suspending

    @overload
    def step(
        self,
        key: str,
        fn: Callable[[*_Ts], Awaitable[_R]],
        *args: *_Ts,
        retry: Retry | None = None,
        mode: Mode = "at_least_once",
        timeout: Timeout = None,
    ) -> DurableCall[_R]: ...
    @overload
    def step(
        self,
        key: str,
        fn: Callable[[*_Ts], _R],
        *args: *_Ts,
        retry: Retry | None = None,
        mode: Mode = "at_least_once",
        timeout: Timeout = None,
    ) -> DurableCall[_R]: ...
    def step(
        self,
        key: str,
        fn: Callable[..., object],
        *args: object,
        retry: Retry | None = None,
        mode: Mode = "at_least_once",
        timeout: Timeout = None,
    ) -> DurableCall[object]:
        """Call `fn(*args)` and record what it gives; once recorded it is given back and `fn` is not called again.

        An async function runs on the event loop, another one in a thread of a bounded pool. Its effects outside happen
        at least once, around a crash perhaps twice; with `mode="at_most_once"` never twice, and a crash in the middle
        ends as `StepFailed` of kind "unknown". `retry` says how often it is tried; without one, once. `timeout` bounds
        each attempt. Raises `StepFailed` when it has failed for good.
        """
        _check_key(key)
        if not callable(fn):
            raise TypeError(f"step {key!r}: {fn!r} cannot be called; write run.step(key, function, *arguments)")
        if retry is not None and not is_a(retry, Retry):
            raise TypeError(f"step {key!r}: retry is a Retry, as in Retry(max_attempts=3), not {retry!r}")
        if mode not in ("at_least_once", "at_most_once"):
            raise ValueError(f"step {key!r}: mode is 'at_least_once' or 'at_most_once', not {mode!r}")
        timeout_ms = None if timeout is None else _ms(key, timeout)
        call = _step(key, fn, args, retry or NO_RETRY, mode, timeout_ms)
        return DurableCall(self._driver, key, self._driver.step(call))

    def sleep(self, key: str, delay: timedelta | float) -> DurableCall[None]:
        """Wait for `delay` seconds from the first time that this is reached, whatever restarts come between."""
        return DurableCall(self._driver, key, self._driver.sleep(key, _ms(_check_key(key), delay)))

    def sleep_until(self, key: str, at: datetime) -> DurableCall[None]:
        """Wait for an instant; one without a zone is local time. The instant that was recorded first counts."""
        return DurableCall(self._driver, key, self._driver.sleep_until(key, _at_ms(_check_key(key), at)))

    def store(self, definition: StoreDefinition[_T], id: str | None = None) -> RunStore[_T]:
        """The durable calls on one store; `id` is the run's own if left out. No step: it reads and records nothing."""
        key = admit_definition(definition).key(self.id if id is None else id)
        return RunStore(self._driver, definition, key.id)

    @overload
    def gather(self, a: Awaitable[_T1], /) -> Coroutine[object, object, tuple[_T1]]: ...
    @overload
    def gather(self, a: Awaitable[_T1], b: Awaitable[_T2], /) -> Coroutine[object, object, tuple[_T1, _T2]]: ...
    @overload
    def gather(
        self, a: Awaitable[_T1], b: Awaitable[_T2], c: Awaitable[_T3], /
    ) -> Coroutine[object, object, tuple[_T1, _T2, _T3]]: ...
    @overload
    def gather(
        self, a: Awaitable[_T1], b: Awaitable[_T2], c: Awaitable[_T3], d: Awaitable[_T4], /
    ) -> Coroutine[object, object, tuple[_T1, _T2, _T3, _T4]]: ...
    @overload
    def gather(
        self, a: Awaitable[_T1], b: Awaitable[_T2], c: Awaitable[_T3], d: Awaitable[_T4], e: Awaitable[_T5], /
    ) -> Coroutine[object, object, tuple[_T1, _T2, _T3, _T4, _T5]]: ...
    @overload
    def gather(self, *awaitables: Awaitable[_T]) -> Coroutine[object, object, tuple[_T, ...]]: ...
    def gather(self, *awaitables: Awaitable[object]) -> Coroutine[object, object, tuple[object, ...]]:
        """Await all of them side by side; their results, in the order in which they are given.

        Results of durable calls reach the branches one by one, in the order in which they were recorded, in every
        replay. All branches run to their end; then the exception of the first that raised, as given, is raised.
        """
        for given in awaitables:
            if not inspect.isawaitable(given):
                instead = "; write run.gather(*calls)" if is_a(given, list, tuple, set) else ""
                raise TypeError(
                    f"run.gather awaits durable calls and coroutines, not a {type(given).__name__}{instead}"
                )
        return self._driver.gather(awaitables)

    def defer(self, key: str, fn: Callable[[*_Ts], object], *args: *_Ts) -> DurableCall[None]:
        """Call `fn(*args)` as a step when the run ends, however it ends; the last one deferred comes first.

        An error of it is noted in the run's `problem` and changes nothing of the outcome.
        """
        call = _step(_check_key(key), fn, args, NO_RETRY, "at_least_once", None)
        return DurableCall(self._driver, key, self._defer(call))

    async def _defer(self, call: StepCall) -> None:
        self._driver.defer(call)


@final
class RunStore(Generic[_T]):
    """The calls of one store as durable steps. `Unavailable` and `Contended` never come: the engine tries again.

    What a function of the caller's raises (an updater, a selector, an initial state) is recorded, and raised as
    `StepFailed` in the first run as in every replay; misuse, as an async updater, as a TypeError.
    """

    __slots__ = ("_definition", "_driver", "_id")

    def __init__(self, driver: Driver, definition: StoreDefinition[_T], id: str) -> None:
        self._driver = driver
        self._definition = definition
        self._id = id

    @property
    def definition(self) -> StoreDefinition[_T]:
        return self._definition

    @property
    def id(self) -> str:
        return self._id

    def get_or_create(
        self, key: str, initial: Initial[_T]
    ) -> DurableCall[Outcome[Snapshot[_T], InvalidState | TooLarge]]:
        """The store, made from `initial` where there is none."""
        return self._call(key, self._driver.stores.get_or_create(key, self._definition, self._id, initial))

    def get(self, key: str) -> DurableCall[Outcome[Snapshot[_T], StoreNotFound | InvalidState]]:
        """The state as it was when this was first reached."""
        return self._call(key, self._driver.stores.get(key, self._definition, self._id))

    def select(self, key: str, selector: Callable[[_T], _R]) -> DurableCall[Outcome[_R, StoreNotFound | InvalidState]]:
        """What `selector` makes of the state; only that is recorded. It gets a copy of its own."""
        codec = result_codec(selector)
        chosen = self._driver.stores.select(key, self._definition, self._id, selector, codec)
        # The codec gives back what the selector's annotation says, and it says _R.
        return self._call(key, cast(Coroutine[Any, Any, Outcome[_R, StoreNotFound | InvalidState]], chosen))

    def update(
        self, key: str, updater: Updater[_T]
    ) -> DurableCall[Outcome[Updated[_T], StoreNotFound | InvalidState | ReceiptMismatch | TooLarge]]:
        """Change the state, exactly once in this run."""
        return self._call(key, self._driver.stores.update(key, self._definition, self._id, updater))

    def update_from(
        self, key: str, expected: Snapshot[_T] | Revision, updater: Updater[_T]
    ) -> DurableCall[Outcome[Updated[_T], Conflict | StoreNotFound | InvalidState | ReceiptMismatch | TooLarge]]:
        """Change the state, exactly once in this run, if it is still at the expected revision."""
        revision = admit_revision(expected)
        return self._call(key, self._driver.stores.update_from(key, self._definition, self._id, revision, updater))

    def delete_from(
        self, key: str, expected: Snapshot[_T] | Revision
    ) -> DurableCall[Outcome[Deleted, Conflict | StoreNotFound | ReceiptMismatch | TooLarge]]:
        """Delete the store, exactly once in this run, if it is still at the expected revision."""
        revision = admit_revision(expected)
        return self._call(key, self._driver.stores.delete_from(key, self._definition, self._id, revision))

    def _call(self, key: str, coroutine: Coroutine[Any, Any, _R]) -> DurableCall[_R]:
        return DurableCall(self._driver, key, coroutine)


# --- helpers ----------------------------------------------------------------


def _check_key(key: str) -> str:
    return check_name("a step's key", key)


def _step(
    key: str, fn: Callable[..., object], args: tuple[object, ...], retry: Retry, mode: Mode, timeout_ms: int | None
) -> StepCall:
    function = unwrapped(fn)
    is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)
    return StepCall(key, _name(function), lambda: fn(*args), is_async, result_codec(fn), retry, mode, timeout_ms)


def _name(fn: Callable[..., object]) -> str:
    """What a step's row says of its function: the qualified name, without the places in which it was defined."""
    named = getattr(fn, "__qualname__", None) or type(fn).__qualname__
    return named.rpartition("<locals>.")[2]


def _ms(key: str, span: object) -> int:
    delay_ms = span_ms(f"step {key!r}: a time", span)
    if delay_ms < 0:
        raise ValueError(f"step {key!r}: a time is at least 0, not {span!r}")
    return delay_ms


def _at_ms(key: str, at: object) -> int:
    if not isinstance(at, datetime):
        raise TypeError(f"step {key!r}: an instant is a datetime, not {at!r}")
    return round(at.timestamp() * 1000)
