"""Requests to one server: on threads, over connections that are kept, each with a deadline, and not while it is down.

A deadline is an instant of the `Clock`. Whoever meets it, or is cancelled, breaks the connection off, and waits only
for the thread to let go of what it was given.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException, HTTPResponse, IncompleteRead, RemoteDisconnected
from threading import Lock
from typing import BinaryIO, Final, Literal, TypeAlias, final

from ...core.breaker import CLOSED, BreakerRule, admit_call, after_failure
from ...core.model import TooLarge, Unavailable
from ...core.outcome import Failure, Outcome, Success
from ...core.shared_row import TierNonsense
from ...services.clock import Clock
from .endpoint import Endpoint
from .measure import Theirs, pieces

__all__ = ["Answer", "Connections", "Request"]

PIECE: Final = 1 << 16
SLOWEST_BYTES_PER_S: Final = 1 << 16
"""How fast a body has to come or go at least, beside the time that every answer has."""

_DRAINED_BYTES: Final = 1 << 16
"""The largest body of no interest that is read to keep a connection; beyond it the connection is closed."""

HTTP_OK: Final = 200

Applied: TypeAlias = Literal["no", "unknown"]


@final
@dataclass(frozen=True, slots=True)
class Request:
    """What is asked. Only the body of an answer 200 is handed to `sink`, and none that is larger than `limit_bytes`.

    `source` is sent from `start` on, `size_bytes` of it.
    """

    method: Literal["GET", "HEAD", "PUT", "DELETE"]
    path: str
    what: str
    source: BinaryIO | None = None
    start: int = 0
    size_bytes: int = 0
    sink: Callable[[bytes], object] | None = None
    limit_bytes: int = 0
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


@final
@dataclass(frozen=True, slots=True)
class Answer:
    """What was answered. `location` is where a redirect leads. `is_whole`: that this was all of it is known for sure.

    Of what ends with its connection nobody knows it.
    """

    status: int
    location: str | None = None
    is_whole: bool = True


Carried: TypeAlias = Outcome[Answer, Unavailable | TierNonsense | TooLarge]


@final
class _Broken(Exception):
    """An answer ended before its end."""


@final
class _Stale(Exception):
    """A connection that was kept is none any more: the server has closed it meanwhile."""


@final
class Exchange:
    """One request on its thread, which the loop may break off."""

    def __init__(self, until_ms: int) -> None:
        self.until_ms = until_ms
        self.was_connected = False
        self._lock = Lock()
        self._socket: socket.socket | None = None
        self._ended = False

    @property
    def is_held(self) -> bool:
        """Whether the thread may be using what it was given: it is connected."""
        with self._lock:
            return self._socket is not None

    def connected(self, connection: HTTPConnection) -> None:
        with self._lock:
            if self._ended:
                raise _Broken
            self._socket, self.was_connected = connection.sock, True

    def let_go(self) -> None:
        with self._lock:
            self._socket = None

    def lasts(self, size_bytes: int) -> None:
        """So much is moved, which may take longer."""
        self.until_ms += size_bytes * 1000 // SLOWEST_BYTES_PER_S

    def end(self) -> None:
        """Let whatever the thread waits for fail, and it begin nothing new."""
        with self._lock:
            self._ended = True
            if self._socket is not None:
                with suppress(OSError):  # it is closed already
                    # That of a TLS socket would let go of what the other thread is just using.
                    socket.socket.shutdown(self._socket, socket.SHUT_RDWR)


@final
class Connections:
    """What can be asked of a server. Used by one event loop."""

    def __init__(self, endpoint: Endpoint, clock: Clock, timeout_ms: int, most: int, rule: BreakerRule) -> None:
        self.endpoint = endpoint
        self._clock = clock
        self._timeout_ms = timeout_ms
        self._rule = rule
        self._breaker = CLOSED
        self._threads = ThreadPoolExecutor(most, thread_name_prefix="stepwell-shared-tier")
        self._lock = Lock()
        self._idle: list[HTTPConnection] = []
        self._running: set[Exchange] = set()
        self._closed = False

    # --- on the event loop --------------------------------------------------

    async def ask(self, request: Request) -> Carried:
        """The answer, whatever it is. `Unavailable` if there is none in time, or if nobody is asked just now.

        What the caller's `source` and `sink` raise comes as `Theirs`.
        """
        if self._closed:
            return self._unavailable(request, "it is closed", "no")
        admitted = admit_call(self._breaker, self._rule, self._clock.now_ms(), self._timeout_ms)
        if admitted is None:
            return self._unavailable(request, "it did not answer lately, and is left alone for a while", "no")
        self._breaker = admitted
        asked = await self._ask(request)
        if isinstance(asked, Success) and _is_down(status := asked.unwrap().status):
            asked = self._unavailable(request, f"it answered with status {status}", _applied(request, sent=True))
        is_down = isinstance(asked, Failure) and isinstance(asked.failure(), Unavailable)
        now_ms = self._clock.now_ms()
        self._breaker = after_failure(self._breaker, self._rule, now_ms) if is_down else CLOSED
        return asked

    async def _ask(self, request: Request) -> Carried:
        exchange = Exchange(self._clock.now_ms() + self._timeout_ms)
        exchange.lasts(request.size_bytes)
        self._running.add(exchange)
        work = self._threads.submit(self._carry_out, request, exchange)
        answered = asyncio.wrap_future(work)
        answered.add_done_callback(lambda done: None if done.cancelled() else done.exception())  # it may come too late
        deadline = asyncio.ensure_future(self._wait(exchange))
        try:
            done, _ = await asyncio.wait((answered, deadline), return_when=asyncio.FIRST_COMPLETED)
        finally:
            _ = deadline.cancel()
            self._running.discard(exchange)
            if not answered.done():
                exchange.end()
                if not work.cancel() and exchange.is_held:
                    await _to_its_end(answered)
        if answered not in done:
            why = f"there was no answer within {self._timeout_ms} ms"
            return self._unavailable(request, why, _applied(request, sent=exchange.was_connected))
        if answered.cancelled():
            return self._unavailable(request, "it is closed", "no")
        return answered.result()

    async def _wait(self, exchange: Exchange) -> None:
        while self._clock.now_ms() < exchange.until_ms:
            await self._clock.sleep_until_ms(exchange.until_ms)

    def close(self) -> None:
        """Break off what is under way; later calls answer `Unavailable`."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()
        for exchange in tuple(self._running):
            exchange.end()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _unavailable(self, request: Request, why: str, applied: Applied) -> Failure[Unavailable]:
        return Failure(Unavailable(f"could not {request.what} at {self.endpoint}: {why}", applied))

    # --- on a thread --------------------------------------------------------

    def _carry_out(self, request: Request, exchange: Exchange) -> Carried:
        try:
            kept = self._take()
            if kept is not None:
                with suppress(_Stale):
                    return self._converse(kept, request, exchange, kept=True)
            return self._converse(self.endpoint.connection(self._timeout_ms / 1000), request, exchange, kept=False)
        except (_Broken, IncompleteRead, RemoteDisconnected):
            why = "the connection was broken off"
        except TimeoutError:
            why = f"there was no answer within {self._timeout_ms} ms"
        except OSError as error:
            why = str(error)
        except HTTPException as error:
            return Failure(TierNonsense(f"could not {request.what} at {self.endpoint}: {type(error).__name__}"))
        return self._unavailable(request, why, _applied(request, sent=exchange.was_connected))

    def _converse(self, connection: HTTPConnection, request: Request, exchange: Exchange, *, kept: bool) -> Carried:
        is_whole = False
        try:
            if not kept:
                connection.connect()
            exchange.connected(connection)
            try:
                response = self._send(connection, request)
            except (ConnectionError, HTTPException) as error:
                if kept:
                    raise _Stale from error
                raise
            with response:
                carried = _receive(response, request, exchange)
                is_whole = response.isclosed() and not response.will_close
            return carried
        finally:
            exchange.let_go()
            if not (is_whole and self._keep(connection)):
                connection.close()

    def _send(self, connection: HTTPConnection, request: Request) -> HTTPResponse:
        headers = {**self.endpoint.sent_headers(), **request.headers}
        if request.source is not None:
            headers["Content-Length"] = str(request.size_bytes)
            _ = request.source.seek(request.start)
        connection.putrequest(request.method, self.endpoint.target(request.path), skip_accept_encoding=True)
        for name, value in headers.items():
            connection.putheader(name, value)
        try:
            connection.endheaders(None if request.source is None else pieces(request.source))
        except ConnectionError:
            # A server may refuse what is too large, or not allowed, before it has read it: that is its answer.
            with suppress(OSError, HTTPException):
                return connection.getresponse()
            raise
        return connection.getresponse()

    def _take(self) -> HTTPConnection | None:
        with self._lock:
            return self._idle.pop() if self._idle else None

    def _keep(self, connection: HTTPConnection) -> bool:
        with self._lock:
            if not self._closed:
                self._idle.append(connection)
            return not self._closed


def _receive(response: HTTPResponse, request: Request, exchange: Exchange) -> Carried:
    announced, size = response.length, 0
    is_whole = announced is not None or response.chunked
    answer = Success(Answer(response.status, response.getheader("Location"), is_whole))
    sink = request.sink if response.status == HTTP_OK else None
    limit = _DRAINED_BYTES if sink is None else request.limit_bytes
    if sink is not None and (encoding := response.getheader("Content-Encoding", "identity")) != "identity":
        return Failure(
            TierNonsense(f"could not {request.what}: it came encoded as {encoding!r}, which nobody asked for")
        )
    if announced is not None and announced > limit:
        return answer if sink is None else Failure(TooLarge(request.what, announced, limit))
    while piece := response.read(PIECE):
        size += len(piece)
        if size > limit:
            return answer if sink is None else Failure(TooLarge(request.what, size, limit))
        exchange.lasts(len(piece))
        if sink is not None:
            _give(sink, piece)
    if announced is not None and size < announced:
        raise _Broken
    return answer


def _give(sink: Callable[[bytes], object], piece: bytes) -> None:
    try:
        _ = sink(piece)
    except Exception as error:
        raise Theirs(error) from error


def _applied(request: Request, *, sent: bool) -> Applied:
    """Whether a request without a good answer may have been carried out all the same."""
    return "unknown" if sent and request.method not in ("GET", "HEAD") else "no"


def _is_down(status: int) -> bool:
    """Whether a status says that asking later may help."""
    return status in (408, 425, 429) or (status >= 500 and status not in (501, 505))


async def _to_its_end(future: asyncio.Future[Carried]) -> None:
    """Wait until it is done; a cancellation meanwhile is raised afterwards."""
    cancelled: asyncio.CancelledError | None = None
    while not future.done():
        try:
            _ = await asyncio.wait((future,))
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled
