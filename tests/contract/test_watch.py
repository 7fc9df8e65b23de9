"""The watch hears of a write to the log of a file, and asks the file only then."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from stepwell.layers.sql.watch import Watch

only_linux = pytest.mark.skipif(sys.platform != "linux", reason="nothing tells of writes to files here")


class File:
    """A file whose version a test sets, with a log beside it."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self.log = Path(f"{path}-wal")
        self.version: int | None = 1
        self.told = 0
        self._asked = 0
        self._changed = asyncio.Event()

    def ask(self) -> int | None:
        self._asked += 1
        self._changed.set()
        return self.version

    def hear(self) -> None:
        self.told += 1
        self._changed.set()

    def write(self) -> None:
        with self.log.open("ab") as log:
            log.write(b"frames")

    async def until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            self._changed.clear()
            await asyncio.wait_for(self._changed.wait(), 30)

    async def heard(self) -> None:
        """Return when it has been told once more than now."""
        begun = self.told
        await self.until(lambda: self.told > begun)

    async def asked(self, times: int) -> None:
        """Return when the file has been asked so many times more."""
        begun = self._asked
        await self.until(lambda: self._asked >= begun + times)


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@only_linux
async def test_a_write_that_shows_later_is_heard_once(tmp_path: Path) -> None:
    file = File(tmp_path / "app.db")
    file.write()
    watch = Watch(file.path, file.ask, file.hear)
    assert not watch.polls
    file.write()
    await file.asked(3)
    assert file.told == 0, "it was written to, and the commit cannot be seen yet"
    file.version = None
    await file.asked(1)
    assert file.told == 0, "it could not tell"
    file.version = 2
    await file.until(lambda: file.told == 1)
    await file.asked(1)
    assert file.told == 1
    watch.stop()


@only_linux
async def test_a_log_that_is_made_anew_is_watched_too(tmp_path: Path) -> None:
    file = File(tmp_path / "app.db")
    watch = Watch(file.path, file.ask, file.hear)
    for made_anew in range(3):
        for written in range(2):
            file.version = 10 * made_anew + written + 10
            file.write()
            await file.heard()
        file.log.unlink()
    assert file.told == 6
    watch.stop()


@only_linux
async def test_many_writes_are_few_questions(tmp_path: Path) -> None:
    file = File(tmp_path / "app.db")
    file.write()
    watch = Watch(file.path, file.ask, file.hear)
    for version in range(2, 1002):
        file.version = version
        file.write()
        watch.commit()
        await asyncio.sleep(0)
    await file.until(lambda: file.told > 0)
    await file.asked(2)
    assert file.told < 200
    watch.stop()


@only_linux
async def test_what_it_has_opened_is_closed(tmp_path: Path) -> None:
    before = descriptors()
    file = File(tmp_path / "app.db")
    watch = Watch(file.path, file.ask, file.hear)
    assert descriptors() == before + 1
    watch.stop()
    watch.stop()
    assert descriptors() == before


async def test_where_nothing_tells_of_writes_it_asks_now_and_then(tmp_path: Path) -> None:
    file = File(tmp_path / "app.db")
    watch = Watch(file.path, file.ask, file.hear, notified=False)
    assert watch.polls
    file.version = 2
    await file.until(lambda: file.told == 1)
    watch.stop()


async def test_where_the_folder_cannot_be_watched_it_asks_now_and_then(tmp_path: Path) -> None:
    file = File(tmp_path / "missing" / "app.db")
    watch = Watch(file.path, file.ask, file.hear)
    assert watch.polls
    watch.stop()


def _has_told(file: File, times: int) -> bool:
    return file.told == times


@pytest.mark.parametrize("notified", [True, False])
async def test_what_was_met_by_another_way_is_told_though_the_file_cannot_tell(notified: bool, tmp_path: Path) -> None:
    file = File(tmp_path / "app.db")
    watch = Watch(file.path, file.ask, file.hear, notified=notified)
    file.version = None
    for times in (1, 2, 3):
        watch.met()
        await file.until(partial(_has_told, file, times))
    file.version = 2
    if not notified:
        await file.until(lambda: file.told == 4)  # and it goes on to ask
    watch.stop()
