"""What a shared tier promises on every host."""

from __future__ import annotations

import io

import pytest

from stepwell import ArtifactCorruption, ArtifactMissing, Failure, RecordedRef, Success, TooLarge
from stepwell.core.node import digest_of
from stepwell.core.shared_row import ROW_BYTES, OtherKey, TierNonsense, write_row
from stepwell.core.step_cache import CacheConflict, CacheEntry, ExistingSame, Inserted, InvalidEntry
from stepwell.services.artifacts import InvalidDigest

from .shared_tier_world import KEY, LIMIT, NOW_MS, World, entry

NOBODY = digest_of(b"of nobody")
NO_KEYS = ["", "a/b", "..", "a" * 257, "ключ"]


async def kept(world: World, data: bytes) -> str:
    digest = digest_of(data)
    assert await world.tier.put(digest, io.BytesIO(data)) == Success(None)
    return digest


class SharedTierContract:
    # --- rows ---------------------------------------------------------------

    async def test_what_one_machine_publishes_another_finds(self, world: World) -> None:
        row = entry({"a": [1, 1.5, None, "ü", 1e300], "b": {}}, note="n")
        assert await world.other.find(KEY) == Success(None)
        assert isinstance((await world.tier.publish(row)).unwrap(), Inserted)
        assert await world.other.find(KEY) == Success(row)
        assert await world.tier.publish(row) == Success(ExistingSame(row.ref))
        assert len(world.behind.rows()) == 1

    async def test_the_first_row_stays(self, world: World) -> None:
        first = entry("first")
        _ = await world.tier.publish(first)
        assert await world.other.publish(entry("second", run="run-2")) == Failure(CacheConflict(first.ref))
        again = entry("first", run="run-2", note="other meta")
        assert await world.other.publish(again) == Success(ExistingSame(first.ref))
        assert await world.tier.find(KEY) == Success(first)

    async def test_keys_of_any_form_are_kept_apart(self, world: World) -> None:
        rows = [entry(key, key=key) for key in ("k", "K", "a" * 256, "-", "_", "0" * 64)]
        for row in rows:
            _ = (await world.tier.publish(row)).unwrap()
        for row in rows:
            assert await world.other.find(row.ref.key_digest) == Success(row)

    async def test_a_damaged_row_is_not_given_and_is_healed_by_the_next(self, world: World) -> None:
        row = entry("right")
        _ = await world.tier.publish(row)
        data = world.behind.rows().popitem()[1]
        for wrong in (
            b"",
            b"<html>",
            b"[]",
            b"{}",
            b"[" * 100_000,
            data[:-1],
            data.replace(b"right", b"wrong"),
            b"\xff",
        ):
            world.behind.damage_row(KEY, wrong)
            assert isinstance((await world.other.find(KEY)).failure(), TierNonsense)
            assert isinstance(await world.other.publish(row), Success)
            assert await world.tier.find(KEY) == Success(row)

    async def test_the_row_of_another_key_is_not_given(self, world: World) -> None:
        data = write_row(entry(key="another"))
        assert isinstance(data, bytes)
        world.behind.damage_row(KEY, data)
        assert await world.tier.find(KEY) == Failure(OtherKey(KEY, "another"))
        assert isinstance(await world.tier.publish(entry()), Success)
        assert await world.tier.find(KEY) == Success(entry())

    async def test_a_row_that_is_too_large_is_not_read(self, world: World) -> None:
        world.behind.damage_row(KEY, bytes(ROW_BYTES + 1))
        assert isinstance(large := (await world.tier.find(KEY)).failure(), TooLarge)
        assert (large.size_bytes, large.limit_bytes) == (ROW_BYTES + 1, ROW_BYTES)

    async def test_the_largest_row_goes_through(self, world: World) -> None:
        row = entry("x" * (4 << 20 >> 1), note="y" * (4 << 20 >> 1))
        _ = (await world.tier.publish(row)).unwrap()
        assert await world.other.find(KEY) == Success(row)

    async def test_a_row_is_withdrawn_for_everybody(self, world: World) -> None:
        _ = await world.tier.publish(entry())
        assert await world.other.withdraw(KEY) == Success(True)
        assert await world.tier.withdraw(KEY) == Success(False)
        assert await world.tier.find(KEY) == Success(None)

    @pytest.mark.parametrize("key", NO_KEYS)
    async def test_c29_nobody_is_asked_for_what_no_key_is(self, world: World, key: str) -> None:
        with pytest.raises(ValueError, match="a cache key is"):
            _ = await world.tier.find(key)
        with pytest.raises(ValueError, match="a cache key is"):
            _ = await world.tier.withdraw(key)
        assert isinstance((await world.tier.publish(entry(key=key))).failure(), InvalidEntry)
        assert world.behind.rows() == {}

    async def test_what_is_no_row_is_not_published(self, world: World) -> None:
        for wrong in (
            entry(float("nan")),
            entry((1, 2)),
            entry("\ud800"),
            entry(run=""),
            entry(run="a\0b"),
            entry(seq=-1),
            entry("x" * (4 << 20)),
            CacheEntry(RecordedRef(KEY, "run-1", 3), 1, {}, -1),
        ):
            assert isinstance((await world.tier.publish(wrong)).failure(), InvalidEntry)
        assert world.behind.rows() == {}
        assert await world.tier.find(KEY) == Success(None)

    # --- bytes --------------------------------------------------------------

    @pytest.mark.parametrize("size", [0, 1, 65_537, LIMIT])
    async def test_bytes_come_back(self, world: World, size: int) -> None:
        data = (b"0123456789abcde" * (size // 15 + 1))[:size]
        digest = digest_of(data)
        assert await world.other.has(digest) == Success(False)
        assert await kept(world, data) == digest
        assert await kept(world, data) == digest
        pieces: list[bytes] = []
        assert await world.other.copy(digest, pieces.append) == Success(size)
        assert b"".join(pieces) == data
        assert await world.other.has(digest) == Success(True)

    async def test_bytes_are_sent_from_where_the_file_stands(self, world: World) -> None:
        source = io.BytesIO(b"head and tail")
        _ = source.seek(9)
        assert await world.tier.put(digest_of(b"tail"), source) == Success(None)
        assert await world.other.copy(digest_of(b"tail"), lambda _: None) == Success(4)

    async def test_wrong_bytes_are_not_sent(self, world: World) -> None:
        digest = digest_of(b"right")
        assert await world.tier.put(digest, io.BytesIO(b"wrong")) == Failure(
            ArtifactCorruption(digest, digest_of(b"wrong"))
        )
        assert await world.tier.has(digest) == Success(False)

    async def test_a8_wrong_bytes_and_too_many_are_told_apart(self, world: World) -> None:
        digest = await kept(world, b"right")
        world.behind.damage_blob(digest, b"wrong")
        pieces: list[bytes] = []
        assert await world.tier.copy(digest, pieces.append) == Failure(ArtifactCorruption(digest, digest_of(b"wrong")))
        pieces.clear()
        world.behind.damage_blob(digest, bytes(LIMIT + 1))
        assert isinstance(large := (await world.tier.copy(digest, pieces.append)).failure(), TooLarge)
        assert (large.size_bytes, large.limit_bytes, pieces) == (LIMIT + 1, LIMIT, [])
        assert await world.tier.copy(NOBODY, pieces.append) == Failure(ArtifactMissing(NOBODY))

    async def test_what_is_too_large_is_not_sent(self, world: World) -> None:
        data = bytes(LIMIT + 1)
        digest = digest_of(data)
        assert await world.tier.put(digest, io.BytesIO(data)) == Failure(TooLarge("an artifact", LIMIT + 1, LIMIT))
        assert await world.tier.has(digest) == Success(False)

    @pytest.mark.parametrize("text", ["", "..", "a/b", "../" + NOBODY[3:], NOBODY.upper(), NOBODY[:-1], NOBODY + "\n"])
    async def test_what_is_no_digest_is_refused(self, world: World, text: str) -> None:
        invalid = Failure(InvalidDigest(text))
        assert await world.tier.copy(text, lambda _: None) == invalid
        assert await world.tier.put(text, io.BytesIO(b"")) == invalid
        assert await world.tier.has(text) == invalid

    async def test_what_the_callers_own_functions_raise_passes_through(self, world: World) -> None:
        digest = await kept(world, b"one")

        def sink(piece: bytes) -> None:
            raise FileNotFoundError("no room in the attic")

        with pytest.raises(FileNotFoundError, match="no room in the attic"):
            _ = await world.tier.copy(digest, sink)

        class Breaking(io.BytesIO):
            def read(self, size: int | None = -1, /) -> bytes:
                raise OSError("the cable was pulled out")

        with pytest.raises(OSError, match="the cable was pulled out"):
            _ = await world.tier.put(digest, Breaking(b"one"))
        assert await world.tier.copy(digest, lambda _: None) == Success(3)

    async def test_the_instant_of_a_row_is_that_of_its_recording(self, world: World) -> None:
        _ = await world.tier.publish(entry())
        await world.clock.advance(5_000)
        found = (await world.other.find(KEY)).unwrap()
        assert found is not None
        assert found.created_at_ms == NOW_MS
