"""A shared tier over HTTP whose server does not answer as it should."""

from __future__ import annotations

import io
from collections.abc import AsyncGenerator, Iterator

import pytest

from stepwell import ArtifactCorruption, Failure, ManualClock, Success, TooLarge, Unavailable
from stepwell.core.node import digest_of
from stepwell.core.shared_row import ROW_BYTES, OtherKey, TierNonsense
from stepwell.core.step_cache import CacheConflict, ExistingSame, Inserted
from stepwell.layers import shared_tier
from stepwell.services.shared_tier import SharedTier, TierRefused

from .cache_server import Handler, Held, Server, raw, serving, status
from .shared_tier_http_world import DIGEST, NEVER, ROW, document, tier_of
from .shared_tier_world import KEY, LIMIT, NOW_MS, entry, opened


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


# --- what a server answers ------------------------------------------------------


async def test_c29_each_status_of_a_lookup_has_its_meaning(server: Server, tier: SharedTier) -> None:
    server.then(status(404), status(410))
    assert [await tier.find(KEY), await tier.find(KEY)] == [Success(None), Success(None)]
    server.then(status(500), status(503), status(429))
    for _ in range(3):
        assert isinstance((await tier.find(KEY)).failure(), Unavailable)
    server.then(status(401), status(403), status(405), status(501))
    for number in (401, 403, 405, 501):
        refused = (await tier.find(KEY)).failure()
        assert isinstance(refused, TierRefused)
        assert refused.status == number
    server.then(status(200, b"<html>"), status(200, b'{"a": 1}'), status(204), status(206, document()), status(304))
    for _ in range(5):
        assert isinstance((await tier.find(KEY)).failure(), TierNonsense)
    server.then(status(200, document("another")))
    assert await tier.find(KEY) == Failure(OtherKey(KEY, "another"))
    server.then(status(200, document()))
    assert await tier.find(KEY) == Success(entry())


async def test_c29_each_status_of_a_publication_has_its_meaning(server: Server, tier: SharedTier) -> None:
    here = entry().ref
    for number, expected in ((201, Inserted(here)), (200, ExistingSame(here)), (204, ExistingSame(here))):
        server.then(status(404), status(number))
        assert await tier.publish(entry()) == Success(expected)
    other = entry("of another", run="run-2")
    for number in (409, 412):
        server.then(status(404), status(number), status(200, document(result="ok")))
        assert await tier.publish(other) == Failure(CacheConflict(entry().ref))
        server.then(status(404), status(number), status(200, document(result="ok")))
        assert await tier.publish(entry()) == Success(ExistingSame(entry().ref))
    server.then(status(404), status(409), status(404))  # a directory is missing there, and no other row is in the way
    refused = (await tier.publish(entry())).failure()
    assert isinstance(refused, TierRefused)
    assert refused.status == 409
    server.then(status(404), status(403))
    assert isinstance((await tier.publish(entry())).failure(), TierRefused)
    server.then(status(404), status(500))
    unclear = (await tier.publish(entry())).failure()
    assert isinstance(unclear, Unavailable)
    assert unclear.applied == "unknown"
    server.seen.clear()
    server.then(status(500))
    down = (await tier.publish(entry())).failure()
    assert isinstance(down, Unavailable)
    assert down.applied == "no"
    assert server.seen == [("GET", ROW)]


async def test_c29_a_withdrawal_of_nothing_is_false(server: Server, tier: SharedTier) -> None:
    server.then(status(404), status(204), status(200), status(405), status(500))
    assert [await tier.withdraw(KEY) for _ in range(3)] == [Success(False), Success(True), Success(True)]
    assert isinstance((await tier.withdraw(KEY)).failure(), TierRefused)
    assert isinstance((await tier.withdraw(KEY)).failure(), Unavailable)


async def test_each_status_about_bytes_has_its_meaning(server: Server, tier: SharedTier) -> None:
    server.then(status(200), status(204), status(404), status(403), status(500), status(304))
    assert [(await tier.has(DIGEST)) for _ in range(3)] == [Success(True), Success(True), Success(False)]
    assert isinstance((await tier.has(DIGEST)).failure(), TierRefused)
    assert isinstance((await tier.has(DIGEST)).failure(), Unavailable)
    assert isinstance((await tier.has(DIGEST)).failure(), TierNonsense)
    server.then(status(200), status(413), status(500), status(302, Location="/elsewhere"))
    assert await tier.put(DIGEST, io.BytesIO(b"bytes")) == Success(None)
    assert isinstance((await tier.put(DIGEST, io.BytesIO(b"bytes"))).failure(), TierRefused)
    assert isinstance((await tier.put(DIGEST, io.BytesIO(b"bytes"))).failure(), Unavailable)
    assert isinstance((await tier.put(DIGEST, io.BytesIO(b"bytes"))).failure(), TierRefused)
    assert len(server.seen) == 10


async def test_a_row_is_put_only_if_there_is_none(server: Server, tier: SharedTier) -> None:
    _ = await tier.publish(entry())
    assert [seen for seen, _ in server.seen] == ["GET", "PUT"]
    assert server.headers[1]["if-none-match"] == "*"
    server.kept[ROW] = b"damaged"
    assert isinstance(await tier.publish(entry()), Success)
    assert "if-none-match" not in server.headers[-1]  # or what is damaged would stay for good


# --- what comes of a body -------------------------------------------------------


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{",
        b"HTTP/1.1 200 OK\r\nContent-Le",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nab",
        b"HTTP/1.1 404 Not Found\r\nContent-Length: 9\r\n\r\n",
    ],
    ids=["nothing", "half a body", "half a header", "half a chunk", "no chunk", "half a 404"],
)
async def test_an_answer_that_breaks_off_is_no_answer(server: Server, tier: SharedTier, answer: bytes) -> None:
    server.then(raw(answer), raw(answer), raw(answer))
    for asked in (await tier.find(KEY), await tier.copy(DIGEST, lambda _: None)):
        assert isinstance(asked, Failure)
        assert isinstance(asked.failure(), Unavailable | TierNonsense)
    server.script.clear()
    assert await tier.find(KEY) == Success(None)


async def test_what_is_no_http_is_nonsense(server: Server, tier: SharedTier) -> None:
    long = b"HTTP/1.1 200 OK\r\nX: " + b"x" * 70_000 + b"\r\n\r\n"
    server.then(raw(b"SSH-2.0-OpenSSH_9.2\r\n\r\n"), raw(long))
    assert isinstance((await tier.find(KEY)).failure(), TierNonsense)
    assert isinstance((await tier.find(KEY)).failure(), TierNonsense)


async def test_a8_a_body_that_is_announced_too_large_is_refused_before_it_is_read(
    server: Server, tier: SharedTier
) -> None:
    """The server sends no byte of it: whoever read would wait for ever, since the clock stands still."""
    row = Held(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (ROW_BYTES + 1))
    blob = Held(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (LIMIT + 1))
    server.then(row, blob)
    assert isinstance((await tier.find(KEY)).failure(), TooLarge)
    pieces: list[bytes] = []
    assert isinstance((await tier.copy(DIGEST, pieces.append)).failure(), TooLarge)
    assert pieces == []
    await row.is_broken_off()
    await blob.is_broken_off()


async def test_a_body_of_unknown_size_is_read_up_to_the_limit(server: Server, tier: SharedTier) -> None:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    endless = Held(head + b"%x\r\n" % (LIMIT * 2) + bytes(LIMIT + 65_536))
    server.then(raw(head + b"5\r\nbytes\r\n0\r\n\r\n"), endless, raw(b"HTTP/1.0 200 OK\r\n\r\n" + b"bytes"))
    assert await tier.copy(DIGEST, lambda _: None) == Success(5)
    size = 0

    def count(piece: bytes) -> None:
        nonlocal size
        size += len(piece)

    assert isinstance((await tier.copy(DIGEST, count)).failure(), TooLarge)
    assert size <= LIMIT
    await endless.is_broken_off()
    assert await tier.copy(DIGEST, lambda _: None) == Success(5)
    server.then(raw(b"HTTP/1.0 200 OK\r\n\r\n" + b"byt"))
    assert isinstance((await tier.copy(DIGEST, lambda _: None)).failure(), Unavailable)  # and no proof of damage


async def test_a8_wrong_bytes_are_corruption_and_more_than_announced_are_not_taken_for_the_next_answer(
    server: Server, tier: SharedTier
) -> None:
    wrong = Failure(ArtifactCorruption(DIGEST, digest_of(b"other")))
    server.then(status(200, b"other"))
    assert await tier.copy(DIGEST, lambda _: None) == wrong

    def too_much(handler: Handler) -> None:
        handler.answer(200, b"bytes and more", Content_Length="5")

    server.then(too_much)
    assert await tier.copy(DIGEST, lambda _: None) == Success(5)
    server.kept[ROW] = document()
    assert await tier.find(KEY) == Success(entry())


async def test_what_came_encoded_is_not_used(server: Server, tier: SharedTier) -> None:
    server.then(status(200, document(), Content_Encoding="gzip"))
    assert isinstance((await tier.find(KEY)).failure(), TierNonsense)
    assert server.headers[0]["accept-encoding"] == "identity"


# --- redirects, credentials, proxies --------------------------------------------


async def test_a_redirect_is_followed_on_the_same_server_only(server: Server, clock: ManualClock) -> None:
    with serving() as elsewhere:
        elsewhere.kept[ROW] = document()
        async with tier_of(server, clock, path="/cache", headers={"Authorization": "Bearer secret"}) as tier:
            server.kept["/moved"] = document()
            for location in ("/moved", f"{server.url}/moved", "../../moved"):
                server.then(status(307, Location=location))
                assert await tier.find(KEY) == Success(entry()), location
            for location in (elsewhere.url + ROW, f"//127.0.0.1:{elsewhere.port}{ROW}", "", "http://[", "/a b"):
                server.then(status(302, Location=location))
                refused = (await tier.find(KEY)).failure()
                assert isinstance(refused, TierRefused), location
                assert refused.status == 302
            server.then(*[status(301, Location="/round")] * 9)
            server.seen.clear()
            assert isinstance((await tier.find(KEY)).failure(), TierRefused)
            assert len(server.seen) == 4
        assert elsewhere.seen == []


async def test_headers_go_with_every_request_and_into_no_text(server: Server, clock: ManualClock) -> None:
    url = server.url.replace("http://", "http://me:pass%40word@")
    layer = shared_tier.layer_http(url + "/a%20b/", headers={"X-Token": "s3cret"}, proxies={}, pauses=NEVER)
    async with opened(layer, clock) as tier:
        assert await tier.find(KEY) == Success(None)
        server.then(status(500), status(403))
        texts = [str((await tier.find(KEY)).failure()), str((await tier.has(DIGEST)).failure()), repr(layer)]
    assert server.seen[0] == ("GET", f"/a%20b{ROW}")
    assert all(each["x-token"] == "s3cret" for each in server.headers)
    assert all(each["authorization"] == "Basic bWU6cGFzc0B3b3Jk" for each in server.headers)
    assert not any(secret in text for text in texts for secret in ("s3cret", "pass", "bWU6"))


async def test_a_proxy_is_told_the_whole_address(server: Server, clock: ManualClock) -> None:
    proxies = {"http": server.url.replace("http://", "http://proxy:word@")}
    layer = shared_tier.layer_http("http://cache.invalid:81/team", proxies=proxies)
    address = f"http://cache.invalid:81/team{ROW}"
    async with opened(layer, clock) as tier:
        server.kept[address] = document()
        assert await tier.find(KEY) == Success(entry())
    assert server.seen == [("GET", address)]
    assert server.headers[0]["host"] == "cache.invalid:81"
    assert server.headers[0]["proxy-authorization"] == "Basic cHJveHk6d29yZA=="


async def test_a_tunnel_that_a_proxy_refuses_is_unavailable(server: Server, clock: ManualClock) -> None:
    """The server knows no CONNECT."""
    layer = shared_tier.layer_http("https://cache.invalid", proxies={"https": server.url})
    async with opened(layer, clock) as tier:
        assert isinstance((await tier.find(KEY)).failure(), Unavailable)
    assert server.seen == []


@pytest.mark.parametrize(
    "url",
    [
        "",
        "127.0.0.1:80",
        "ftp://127.0.0.1",
        "http://",
        "http://127.0.0.1/?q",
        "http://127.0.0.1/#f",
        "http://127.0.0.1:99999",
        "http://127.0.0.1/a b",
        "http://127.0.0.1/ü",
        "http://" + "a" * 64,
    ],
)
def test_what_is_no_address_is_refused_at_once(url: str) -> None:
    with pytest.raises(ValueError, match=r"shared tier|Port"):
        _ = shared_tier.layer_http(url, proxies={})


@pytest.mark.parametrize(
    "header", [("", "x"), ("a b", "x"), ("A", "x\r\nB: y"), ("Host", "x"), ("Content-Length", "1"), ("A", "ключ")]
)
def test_a_header_that_cannot_be_sent_is_refused_at_once(header: tuple[str, str]) -> None:
    with pytest.raises(ValueError, match="cannot be sent a header") as refused:
        _ = shared_tier.layer_http("http://127.0.0.1", headers=dict([header]), proxies={})
    assert header[1] not in str(refused.value) or header[1] in ("x", "1")
