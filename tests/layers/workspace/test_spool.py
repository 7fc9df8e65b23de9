"""The contents of a workspace: where they are, and how long."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

from stepwell.layers.workspace.spool import PIECE, Spool

ONE, TWO = b"1" * (PIECE + 1), b"2" * (2 * PIECE)


@pytest.fixture(params=[0, 10 * PIECE], ids=["in a file", "in memory"])
def spool(request: pytest.FixtureRequest) -> Spool:
    return Spool(int(request.param))


def test_what_is_kept_is_read_and_what_is_not_gives_its_room_back(spool: Spool) -> None:
    one, two = (spool.put_file(io.BytesIO(data))[0] for data in (ONE, TWO))
    small = spool.put(b"small")
    before = spool.stored_bytes
    with spool.open(one) as reader:
        spool.keep_only({two, small})
        assert reader.read() == ONE  # which was open already
    assert spool.stored_bytes == before - len(ONE)
    with spool.open(two) as second, spool.open(small) as third:
        assert (second.read(), third.read()) == (TWO, b"small")
    assert spool.put_file(io.BytesIO(ONE))[0] == one
    with spool.open(one) as again:
        assert again.read() == ONE
    spool.close()


def test_a_reader_of_a_spool_that_was_closed_reads_no_other_file(tmp_path: Path) -> None:
    spool = Spool(0)
    digest, _ = spool.put_file(io.BytesIO(TWO))
    reader = spool.open(digest)
    spool.close()
    _ = (tmp_path / "other").write_bytes(b"of somebody else")
    held = [os.open(tmp_path / "other", os.O_RDONLY) for _ in range(8)]  # under the number that is free again
    with pytest.raises(ValueError, match="closed"):
        _ = reader.read()
    for descriptor in held:
        os.close(descriptor)


def test_no_descriptor_is_left() -> None:
    before = len(os.listdir("/proc/self/fd"))
    spool = Spool(0)
    digest, _ = spool.put_file(io.BytesIO(ONE))
    reader = spool.open(digest)
    spool.keep_only(set())
    reader.close()  # and it is kept
    spool.close()
    assert len(os.listdir("/proc/self/fd")) == before
