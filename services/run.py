"""A run as its workflow sees it: durable calls, each under a key of its own.

The workflow is executed from the top whenever its run is taken up; a durable call whose result is recorded gives it at
once, without doing anything again. So code between durable calls must decide by what they gave, and by nothing else:
time, dice and the outside world belong in steps.

`Run` and `RunStore` are the typed face; they turn values to JSON and back, and leave the rest to a `Driver`.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Coroutine
from datetime import datetime, timedelta
from types import FunctionType
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple, cast, final, overload

from ..core.codec import Codec, codec_of, elements, result_codec, unwrapped
from ..core.kind import is_a
from ..core.model import TimedOut, check_name
from ..core.outcome import Outcome
from ..core.retry import NO_RETRY, Retry
from ..core.step import Mode
from .arguments import Arguments, arguments_of
from .driver import CachedCall, Driver, DurableCall, StepCall
from .run_store import RunStore, Timeout, step_span_ms
from .signal import InvalidSignal
from .store import StoreDefinition, admit_definition

if TYPE_CHECKING:
    from typing_extensions import TypeForm

    from ..core.boundary import Boundary
    from ..core.command import Command, CommandOutput
    from .step_sandbox import Workspace

__all__ = ["Run"]

_R = TypeVar("_R")
_T = TypeVar("_T")
_Ts = TypeVarTuple("_Ts")
_T1 = TypeVar("_T1")
_T2 = TypeVar("_T2")
_T3 = TypeVar("_T3")
_T4 = TypeVar("_T4")
_T5 = TypeVar("_T5")


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
        timeout_ms = None if timeout is None else step_span_ms(key, timeout)
        call = _step(key, fn, args, retry or NO_RETRY, mode, timeout_ms)
        return DurableCall(self._driver, key, self._driver.step(call))

    def sleep(self, key: str, delay: timedelta | float) -> DurableCall[None]:
        """Wait for `delay` seconds from the first time that this is reached, whatever restarts come between."""
        return DurableCall(self._driver, key, self._driver.sleep(key, step_span_ms(_check_key(key), delay)))

    def sleep_until(self, key: str, at: datetime) -> DurableCall[None]:
        """Wait for an instant; one without a zone is local time. The instant that was recorded first counts."""
        return DurableCall(self._driver, key, self._driver.sleep_until(key, _at_ms(_check_key(key), at)))

    def signal(
        self, name: str, type_: TypeForm[_T], *, timeout: Timeout = None
    ) -> DurableCall[Outcome[_T, TimedOut | InvalidSignal]]:
        """Wait for the next signal of this name, and read it: each once, in the order in which they were sent.

        One that came before this was reached is kept. `InvalidSignal`: its value is not a `type_`; it is read all the
        same. `TimedOut`: none came in time, and none is lost.
        """
        check_name("a signal's name", name)
        codec = _signal_codec(name, type_)
        timeout_ms = None if timeout is None else step_span_ms(f"signal {name}", timeout)
        read = self._driver.signal(name, codec, timeout_ms)
        # The codec gives back a `type_`.
        call = cast(Coroutine[Any, Any, Outcome[_T, TimedOut | InvalidSignal]], read)
        return DurableCall(self._driver, f"signal {name}", call)

    def store(self, definition: StoreDefinition[_T], id: str | None = None) -> RunStore[_T]:
        """The durable calls on one store; `id` is the run's own if left out. No step: it reads and records nothing."""
        key = admit_definition(definition).key(self.id if id is None else id)
        return RunStore(self._driver, definition, key.id)

    @overload
    def cached_step(
        self, key: str, body: Command, *, boundary: Boundary, version: str | None = None
    ) -> DurableCall[CommandOutput]: ...
    @overload
    def cached_step(
        self,
        key: str,
        body: Callable[[Workspace, *_Ts], Awaitable[_R]],
        *args: *_Ts,
        boundary: Boundary,
        version: str | None = None,
    ) -> DurableCall[_R]: ...
    @overload
    def cached_step(
        self,
        key: str,
        body: Callable[[Workspace, *_Ts], _R],
        *args: *_Ts,
        boundary: Boundary,
        version: str | None = None,
    ) -> DurableCall[_R]: ...
    def cached_step(
        self,
        key: str,
        body: Command | Callable[..., object],
        *args: object,
        boundary: Boundary,
        version: str | None = None,
    ) -> DurableCall[Any]:
        """Execute a body in the sandbox, within `boundary`, and keep what it made: where nothing that it rests on has
        changed, here or in another run, its files and its result are brought back and it is not executed.

        The body is a `Command`, or a function of its workspace and `args`, which it gets as their types say after a
        round trip through JSON. Its code is a part of what it rests on; `version` is what you say in its place. Its
        files come to the workspace all together or not at all, also after a crash, and before its effects are sent. It
        is executed once unless a crash, or somebody who changed its files meanwhile, came between; what it raises is
        recorded. Raises `StepFailed`, of kind "error" for that, and named by the code of the failure for what the
        sandbox refused, as in "undeclared_read".
        """
        call = _cached_call(_check_key(key), body, args, boundary, version)
        return DurableCall(self._driver, key, self._driver.cached_step(call))

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
        _check_awaitables("gather", awaitables)
        return self._driver.gather(awaitables)

    @overload
    def race(self, a: Awaitable[_T1], b: Awaitable[_T2], /) -> Coroutine[object, object, _T1 | _T2]: ...
    @overload
    def race(
        self, a: Awaitable[_T1], b: Awaitable[_T2], c: Awaitable[_T3], /
    ) -> Coroutine[object, object, _T1 | _T2 | _T3]: ...
    @overload
    def race(
        self, a: Awaitable[_T1], b: Awaitable[_T2], c: Awaitable[_T3], d: Awaitable[_T4], /
    ) -> Coroutine[object, object, _T1 | _T2 | _T3 | _T4]: ...
    @overload
    def race(self, *awaitables: Awaitable[_T]) -> Coroutine[object, object, _T]: ...
    def race(self, *awaitables: Awaitable[object]) -> Coroutine[object, object, object]:
        """Await all of them side by side; the result of the first that ends, or the exception that it ends with.

        The others are cancelled: `asyncio.CancelledError` reaches each at the durable call where it stands, and they
        may clean up before this returns. Who was first is what was recorded first, in every replay. A wait that lost
        has consumed nothing: no signal, no item of a store.
        """
        _check_awaitables("race", awaitables)
        if not awaitables:
            raise ValueError("run.race needs at least one durable call or coroutine to await")
        return self._driver.race(awaitables)

    def defer(self, key: str, fn: Callable[[*_Ts], object], *args: *_Ts) -> DurableCall[None]:
        """Call `fn(*args)` as a step when the run ends, however it ends; the last one deferred comes first.

        An error of it is noted in the run's `problem` and changes nothing of the outcome.
        """
        call = _step(_check_key(key), fn, args, NO_RETRY, "at_least_once", None)
        return DurableCall(self._driver, key, self._defer(call))

    async def _defer(self, call: StepCall) -> None:
        self._driver.defer(call)


# --- helpers ----------------------------------------------------------------


def _signal_codec(name: str, type_: object) -> Codec:
    try:
        return codec_of(type_)
    except TypeError as error:
        raise TypeError(f"signal {name!r}: {type_!r} is no type of values that JSON can hold ({error})") from None


def _check_key(key: str) -> str:
    return check_name("a step's key", key)


def _step(
    key: str, fn: Callable[..., object], args: tuple[object, ...], retry: Retry, mode: Mode, timeout_ms: int | None
) -> StepCall:
    name, is_async = _name(unwrapped(fn)), _is_async(fn)
    return StepCall(key, name, lambda: fn(*args), is_async, result_codec(fn), retry, mode, timeout_ms)


def _cached_call(
    key: str,
    body: Command | Callable[..., object],
    args: tuple[object, ...],
    boundary: Boundary,
    version: str | None,
) -> CachedCall:
    from ..core.boundary import Boundary
    from ..core.command import Command, CommandOutput

    if not is_a(boundary, Boundary):
        raise TypeError(f"step {key!r}: boundary is a Boundary, as in Boundary(reads=('src/**',)), not {boundary!r}")
    if version is not None and (not is_a(version, str) or not version):
        raise TypeError(f"step {key!r}: version is text that is not empty, not {version!r}")
    if isinstance(body, Command):
        if args:
            raise TypeError(f"step {key!r}: a Command has its arguments in its argv, and none beside it")
        return CachedCall(key, body.argv[0], body, None, b"[]", codec_of(CommandOutput), boundary, version)
    if not callable(body):
        raise TypeError(f"step {key!r}: {body!r} is no Command and cannot be called: it is a function of a workspace")
    name = _name(unwrapped(body))
    try:
        arguments = arguments_of(name, body)
        encoded = arguments.encode(args)
        bound = _bound(body, arguments, encoded) if args else body
    except (TypeError, ValueError) as error:  # the latter of a function that is not written in Python
        raise TypeError(f"step {key!r}: {error}") from None
    return CachedCall(key, name, bound, body, encoded, result_codec(body), boundary, version)


def _bound(body: Callable[..., object], arguments: Arguments, encoded: bytes) -> Callable[[Workspace], object]:
    """A function of the workspace alone, which is async if the body is.

    The arguments are read back each time that it is called, and not for a result that is served: what was written has
    been read back once, to see that it can be.
    """

    def args() -> tuple[object, ...]:
        return arguments.decode(elements(encoded))

    if not _is_async(body):
        return lambda workspace: body(workspace, *args())

    async def bound(workspace: Workspace) -> object:
        return await cast(Awaitable[object], body(workspace, *args()))

    return bound


def _is_async(fn: Callable[..., object]) -> bool:
    function = unwrapped(fn)
    if inspect.iscoroutinefunction(function):
        return True
    return not isinstance(function, FunctionType) and inspect.iscoroutinefunction(type(function).__call__)


def _name(fn: Callable[..., object]) -> str:
    """What a step's row says of its function: the qualified name, without the places in which it was defined."""
    named = getattr(fn, "__qualname__", None) or type(fn).__qualname__
    return named.rpartition("<locals>.")[2]


def _at_ms(key: str, at: object) -> int:
    if not isinstance(at, datetime):
        raise TypeError(f"step {key!r}: an instant is a datetime, not {at!r}")
    return round(at.timestamp() * 1000)


def _check_awaitables(call: str, awaitables: tuple[object, ...]) -> None:
    for given in awaitables:
        if not inspect.isawaitable(given):
            instead = f"; write run.{call}(*calls)" if is_a(given, list, tuple, set) else ""
            raise TypeError(f"run.{call} awaits durable calls and coroutines, not a {type(given).__name__}{instead}")
