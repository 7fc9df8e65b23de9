"""What artifacts promise on every host."""

from __future__ import annotations

import io

import pytest

from stepwell import ArtifactCorruption, ArtifactMissing, Failure, Success, TooLarge
from stepwell.core.node import digest_of
from stepwell.layers.workspace.pinned import PIECE
from stepwell.services.artifacts import GRACE_MS, Collected, InvalidDigest

from .artifacts_world import LIMIT, World

NOBODY = digest_of(b"of nobody")
NO_DIGESTS = ["", ".", "..", "a/b", "a\\b", "../" + NOBODY[3:], NOBODY.upper(), NOBODY[:-1], NOBODY + "\n"]


class Breaking(io.BytesIO):
    """A file that cannot be read to its end."""

    def read(self, size: int | None = -1, /) -> bytes:
        if self.tell():
            raise OSError("the cable was pulled out")
        return super().read(3)


class ArtifactsContract:
    async def test_a1_what_is_put_twice_is_kept_once(self, world: World) -> None:
        digest = await world.put(b"one")
        assert await world.put(b"one") == digest
        assert (await world.artifacts.put_stream(io.BytesIO(b"one"))).unwrap() == digest
        assert world.behind.kept() == {digest: b"one"}
        assert await world.artifacts.get(digest) == Success(b"one")

    @pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
    async def test_a2_putting_the_right_bytes_heals(self, world: World, streamed: bool) -> None:
        digest = await world.put(b"right")
        for wrong in (b"wrong", b"", b"right and more"):
            world.behind.damage(digest, wrong)
            put = world.artifacts.put_stream(io.BytesIO(b"right")) if streamed else world.artifacts.put(b"right")
            assert await put == Success(digest)
            assert world.behind.kept() == {digest: b"right"}

    async def test_a5_missing_and_corrupt_are_two_failures(self, world: World) -> None:
        digest = await world.put(b"right")
        world.behind.damage(digest, b"wrong")
        corrupt = Failure(ArtifactCorruption(digest, digest_of(b"wrong")))
        pieces: list[bytes] = []
        assert await world.artifacts.get(digest) == corrupt
        assert await world.artifacts.copy(digest, pieces.append) == corrupt
        assert await world.artifacts.get(NOBODY) == Failure(ArtifactMissing(NOBODY))
        assert await world.artifacts.copy(NOBODY, pieces.append) == Failure(ArtifactMissing(NOBODY))
        assert await world.artifacts.has(digest) == Success(True)

    @pytest.mark.parametrize("text", NO_DIGESTS)
    async def test_a6_what_is_no_digest_is_refused_by_every_call(self, world: World, text: str) -> None:
        digest = await world.put(b"one")
        await world.clock.advance(2 * GRACE_MS)
        invalid = Failure(InvalidDigest(text))
        assert await world.artifacts.get(text) == invalid
        assert await world.artifacts.copy(text, lambda _: None) == invalid
        assert await world.artifacts.has(text) == invalid
        assert await world.artifacts.find_missing([NOBODY, text, NOBODY]) == invalid
        assert await world.artifacts.collect([digest, text]) == invalid
        assert await world.artifacts.collect([text], grace_ms=0) == invalid
        assert world.behind.kept() == {digest: b"one"}

    async def test_a7_what_is_missing_is_named_once_each(self, world: World) -> None:
        one, other = await world.put(b"one"), digest_of(b"other")
        asked = [other, one, NOBODY, other, one, NOBODY]
        assert await world.artifacts.find_missing(asked) == Success((other, NOBODY))
        assert await world.artifacts.find_missing(iter([one])) == Success(())
        assert await world.artifacts.find_missing([]) == Success(())
        assert await world.artifacts.has(one) == Success(True)
        assert await world.artifacts.has(other) == Success(False)

    # --- bytes --------------------------------------------------------------

    @pytest.mark.parametrize("size", [0, 1, PIECE - 1, PIECE, PIECE + 1, 2 * PIECE, LIMIT])
    async def test_all_bytes_come_back_in_pieces(self, world: World, size: int) -> None:
        data = (b"0123456789abcde" * (size // 15 + 1))[:size]
        digest = await world.put(data)
        assert await world.artifacts.get(digest) == Success(data)
        pieces: list[bytes] = []
        assert await world.artifacts.copy(digest, pieces.append) == Success(size)
        assert b"".join(pieces) == data
        assert max(map(len, pieces), default=0) <= PIECE

    async def test_a_stream_is_read_from_where_it_stands(self, world: World) -> None:
        source = io.BytesIO(b"head and tail" * (PIECE // 6))
        _ = source.seek(9)
        digest = (await world.artifacts.put_stream(source)).unwrap()
        assert digest == digest_of(source.getvalue()[9:])
        assert (await world.artifacts.get(digest)).unwrap() == source.getvalue()[9:]

    async def test_what_is_too_large_is_not_kept(self, world: World) -> None:
        data = bytes(LIMIT + 1)
        assert await world.artifacts.put(data) == Failure(TooLarge("an artifact", LIMIT + 1, LIMIT))
        match await world.artifacts.put_stream(io.BytesIO(data * 2)):
            case Failure(TooLarge("an artifact", read, limit)):
                assert LIMIT < read <= LIMIT + PIECE
                assert limit == LIMIT
            case other:
                pytest.fail(f"kept: {other}")
        assert world.behind.kept() == {}

    async def test_what_the_callers_own_functions_raise_passes_through(self, world: World) -> None:
        digest = await world.put(b"one")
        with pytest.raises(OSError, match="the cable was pulled out"):
            _ = await world.artifacts.put_stream(Breaking(b"abcdef"))

        def sink(piece: bytes) -> None:
            raise FileNotFoundError("no room in the attic")

        with pytest.raises(FileNotFoundError, match="no room in the attic"):
            _ = await world.artifacts.copy(digest, sink)
        assert world.behind.kept() == {digest: b"one"}

    async def test_only_bytes_are_put(self, world: World) -> None:
        put = vars(type(world.artifacts))["put"]
        for data in ("text", bytearray(b"mine"), None):
            with pytest.raises(TypeError, match="an artifact is bytes, not a "):
                await put(world.artifacts, data)

    # --- collecting ---------------------------------------------------------

    async def test_what_nothing_refers_to_goes_after_its_grace(self, world: World) -> None:
        root, old = await world.put(b"root"), await world.put(b"an old one")
        await world.clock.advance(GRACE_MS)
        young = await world.put(b"young")
        assert await world.artifacts.collect([root, NOBODY]) == Success(Collected((), 0, 3))
        await world.clock.advance(1)
        assert await world.artifacts.collect([root], dry_run=True) == Success(Collected((old,), 10, 2))
        assert len(world.behind.kept()) == 3
        assert await world.artifacts.collect([root]) == Success(Collected((old,), 10, 2))
        assert world.behind.kept() == {root: b"root", young: b"young"}
        assert await world.artifacts.collect([root]) == Success(Collected((), 0, 2))
        assert await world.artifacts.get(old) == Failure(ArtifactMissing(old))

    @pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
    async def test_what_is_put_again_is_young_again(self, world: World, streamed: bool) -> None:
        digest, other = await world.put(b"again"), await world.put(b"other")
        await world.clock.advance(1_000)
        _ = await (world.artifacts.put_stream(io.BytesIO(b"again")) if streamed else world.artifacts.put(b"again"))
        assert await world.artifacts.collect([], grace_ms=999) == Success(Collected((other,), 5, 1))
        assert await world.artifacts.collect([], grace_ms=0) == Success(Collected((), 0, 1))
        await world.clock.advance(1)
        assert await world.artifacts.collect([], grace_ms=0) == Success(Collected((digest,), 5, 0))

    async def test_many_go_in_order(self, world: World) -> None:
        digests = [await world.put(b"%d" % number) for number in range(40)]
        await world.clock.advance(1)
        collected = (await world.artifacts.collect(digests[:10], grace_ms=0)).unwrap()
        assert collected == Collected(tuple(sorted(digests[10:])), 60, 10)
        assert world.behind.kept().keys() == set(digests[:10])

    async def test_where_there_is_nothing_nothing_goes(self, world: World) -> None:
        assert await world.artifacts.collect([NOBODY], grace_ms=0) == Success(Collected((), 0, 0))

    async def test_a_grace_is_a_number_of_milliseconds(self, world: World) -> None:
        with pytest.raises(ValueError, match="grace_ms is at least 0, not -1"):
            _ = await world.artifacts.collect([], grace_ms=-1)
