"""The bell: what threads tell it is called on the loop, in order, with an eventfd and without."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVarTuple

import pytest

from stepwell.layers.sql.bell import Bell

if TYPE_CHECKING:
    from _typeshed import FileDescriptorLike

_Ts = TypeVarTuple("_Ts")


class _WatchesNoFiles(asyncio.SelectorEventLoop):
    """As on a system whose loop watches no files."""

    def add_reader(self, fd: FileDescriptorLike, callback: Callable[[*_Ts], Any], *args: *_Ts) -> None:
        raise NotImplementedError


LOOPS = [asyncio.SelectorEventLoop, _WatchesNoFiles]


def run(loop: asyncio.AbstractEventLoop, main: Callable[[], Any]) -> None:
    try:
        loop.run_until_complete(main())
    finally:
        loop.close()


@pytest.mark.parametrize("make", LOOPS)
def test_what_threads_tell_is_called_on_the_loop_in_order(make: Callable[[], asyncio.AbstractEventLoop]) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        bell, heard, done = Bell(loop), list[int](), asyncio.Event()
        on = set[int]()

        def note(number: int) -> None:
            on.add(threading.get_ident())
            heard.append(number)
            if number == 999:
                done.set()

        def tell() -> None:
            for number in range(1000):
                bell.tell(partial(note, number))

        thread = threading.Thread(target=tell)
        thread.start()
        async with asyncio.timeout(20):
            await done.wait()
        thread.join()
        bell.close()
        assert heard == list(range(1000))
        assert on == {threading.get_ident()}

    run(make(), main)


@pytest.mark.parametrize("make", LOOPS)
def test_closing_hears_what_was_told_and_leaves_no_file_open(make: Callable[[], asyncio.AbstractEventLoop]) -> None:
    async def main() -> None:
        before = len(os.listdir("/proc/self/fd"))
        bell, heard = Bell(asyncio.get_running_loop()), list[str]()
        bell.tell(lambda: heard.append("told"))
        bell.close()
        assert heard == ["told"]
        assert len(os.listdir("/proc/self/fd")) == before

    run(make(), main)


@pytest.mark.parametrize("make", LOOPS)
def test_one_that_fails_is_reported_and_the_next_is_called(make: Callable[[], asyncio.AbstractEventLoop]) -> None:
    async def main() -> None:
        loop, heard, told = asyncio.get_running_loop(), asyncio.Event(), list[object]()
        loop.set_exception_handler(lambda _, context: told.append(context["exception"]))
        bell, broken = Bell(loop), ValueError("broken")

        def fail() -> None:
            raise broken

        bell.tell(fail)
        bell.tell(heard.set)
        async with asyncio.timeout(20):
            await heard.wait()
        bell.close()
        assert told == [broken]

    run(make(), main)


def test_a_loop_that_has_ended_hears_nothing() -> None:
    loop = _WatchesNoFiles()
    bell = Bell(loop)
    loop.close()
    bell.tell(lambda: pytest.fail("called"))
