"""A shared tier over HTTP whose connections break, whose answers come too late, and that is down."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncGenerator, Iterator

import pytest

from stepwell import ManualClock, Success, Unavailable
from stepwell.core.breaker import BreakerRule
from stepwell.core.node import digest_of
from stepwell.services.shared_tier import SharedTier, TierRefused

from .cache_server import Handler, Held, Server, serving, status
from .shared_tier_http_world import BLOB, DIGEST, ROW, TIMEOUT_MS, tier_of
from .shared_tier_world import KEY, LIMIT, NOW_MS, entry


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as served:
        yield served


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW_MS)


@pytest.fixture
async def tier(server: Server, clock: ManualClock) -> AsyncGenerator[SharedTier]:
    async with tier_of(server, clock) as made:
        yield made


# --- connections ----------------------------------------------------------------


async def test_a_connection_is_kept_and_one_that_was_closed_meanwhile_is_replaced(
    server: Server, clock: ManualClock
) -> None:
    peers: list[object] = []

    def note(handler: Handler) -> None:
        peers.append(handler.client_address)
        handler.behave()

    def note_and_close(handler: Handler) -> None:
        note(handler)
        handler.close_connection = True  # and says nothing of it

    async with tier_of(server, clock, connections=1) as tier:
        server.then(note, note, note_and_close, note)
        for _ in range(4):
            assert await tier.find(KEY) == Success(None)
        assert peers[0] == peers[1] == peers[2] != peers[3]
        server.then(note_and_close, note)
        for source in (io.BytesIO(b"bytes"), io.BytesIO(b"bytes")):
            assert await tier.put(DIGEST, source) == Success(None)
    assert server.kept == {BLOB: b"bytes"}


async def test_a_server_that_refuses_before_it_has_read_is_understood(server: Server, tier: SharedTier) -> None:
    def refuse(handler: Handler) -> None:
        handler.close_connection = True
        handler.answer(413)

    server.then(refuse)
    data = bytes(LIMIT)
    refused = (await tier.put(digest_of(data), io.BytesIO(data))).failure()
    assert isinstance(refused, TierRefused | Unavailable)  # the answer may be lost with the connection
    assert await tier.put(DIGEST, io.BytesIO(b"bytes")) == Success(None)


async def test_nobody_listens(clock: ManualClock) -> None:
    with serving() as server:
        pass
    async with tier_of(server, clock) as tier:
        found, published = await tier.find(KEY), await tier.publish(entry())
        put = await tier.put(DIGEST, io.BytesIO(b"bytes"))
        for down in (found.failure(), published.failure(), put.failure()):
            assert isinstance(down, Unavailable)
            assert down.applied == "no"


# --- time -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nslow"],
    ids=["nothing", "a header", "half a body"],
)
async def test_an_answer_that_comes_too_late_is_none(server: Server, clock: ManualClock, data: bytes) -> None:
    async with tier_of(server, clock) as tier:
        held = Held(data)
        server.then(held)
        asked = asyncio.ensure_future(tier.find(KEY))
        await held.is_reached()
        await clock.advance(TIMEOUT_MS - 1)
        assert not asked.done()
        await clock.advance(2)
        late = (await asked).failure()
        assert isinstance(late, Unavailable)
        assert f"no answer within {TIMEOUT_MS} ms" in late.reason
        await held.is_broken_off()
        assert await tier.find(KEY) == Success(None)


async def test_a_put_that_is_not_answered_may_have_been_done(server: Server, clock: ManualClock) -> None:
    async with tier_of(server, clock) as tier:
        held = Held()
        server.then(held)
        asked = asyncio.ensure_future(tier.put(DIGEST, io.BytesIO(b"bytes")))
        await held.is_reached()
        await clock.advance(TIMEOUT_MS + 1)
        late = (await asked).failure()
        assert isinstance(late, Unavailable)
        assert late.applied == "unknown"


async def test_a_cancelled_call_breaks_its_connection_off_and_calls_no_sink_any_more(
    server: Server, clock: ManualClock
) -> None:
    async with tier_of(server, clock, connections=1) as tier:
        held = Held(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nslow")
        pieces: list[bytes] = []
        server.then(held)
        asked = asyncio.ensure_future(tier.copy(DIGEST, pieces.append))
        await held.is_reached()
        waiting = asyncio.ensure_future(tier.find(KEY))  # there is only one connection
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            _ = await asked
        before = list(pieces)
        assert await waiting == Success(None)
        await held.is_broken_off()
        assert pieces == before


async def test_closing_ends_what_is_under_way(server: Server, clock: ManualClock) -> None:
    held = Held()
    async with tier_of(server, clock, connections=1) as tier:
        server.then(held)
        asked = asyncio.ensure_future(tier.find(KEY))
        await held.is_reached()
        queued = asyncio.ensure_future(tier.has(DIGEST))
        await asyncio.sleep(0)
    assert isinstance((await asked).failure(), Unavailable)
    assert isinstance((await queued).failure(), Unavailable)
    assert isinstance((await tier.find(KEY)).failure(), Unavailable)
    assert [path for _, path in server.seen] == [ROW]


# --- a server that is down is left alone ----------------------------------------


async def test_c30_while_a_server_is_left_alone_nobody_asks_it(server: Server, clock: ManualClock) -> None:
    rule = BreakerRule(failures=3, first_ms=1_000, longest_ms=4_000)

    async with tier_of(server, clock, pauses=rule) as made:

        async def find_down() -> bool:
            """Whether the server was asked; it has no answer in either case."""
            before = len(server.seen)
            assert isinstance((await made.find(KEY)).failure(), Unavailable)
            return len(server.seen) > before

        server.then(*[status(500)] * 8)
        assert [await find_down() for _ in range(5)] == [True, True, True, False, False]
        for pause_ms in (1_000, 2_000, 4_000, 4_000):
            await clock.advance(pause_ms - 1)
            assert not await find_down(), pause_ms
            await clock.advance(1)
            assert await find_down(), pause_ms
            assert not await find_down(), pause_ms
        server.script.clear()
        await clock.advance(4_000)
        assert await made.find(KEY) == Success(None)
        server.then(status(500), status(500), status(404), status(500), status(500))
        assert [await find_down(), await find_down()] == [True, True]
        assert await made.find(KEY) == Success(None)  # which counts from the beginning
        assert [await find_down(), await find_down()] == [True, True]


async def test_a_refusal_leaves_nobody_alone(server: Server, clock: ManualClock) -> None:
    async with tier_of(server, clock, pauses=BreakerRule(failures=1)) as tier:
        server.then(*[status(403)] * 5)
        for _ in range(5):
            assert isinstance((await tier.find(KEY)).failure(), TierRefused)
        assert len(server.seen) == 5
