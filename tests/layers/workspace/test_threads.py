"""Work on threads: whoever is cancelled meanwhile leaves nothing of it behind."""

from __future__ import annotations

import asyncio
import threading

import pytest

from stepwell.layers.workspace.threads import in_thread


@pytest.mark.parametrize("times", [1, 2, 3])
@pytest.mark.parametrize("fails", [False, True])
async def test_what_nobody_waits_for_any_more_is_dropped(times: int, fails: bool) -> None:
    begun, go_on, dropped = threading.Event(), threading.Event(), list[str]()

    def work() -> str:
        begun.set()
        assert go_on.wait(60)
        if fails:
            raise ValueError("it went wrong")
        return "given"

    running = asyncio.ensure_future(in_thread(work, drop=dropped.append))
    assert await asyncio.to_thread(begun.wait, 60)
    for _ in range(times):
        _ = running.cancel()
        await asyncio.sleep(0)
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        _ = await running
    assert dropped == ([] if fails else ["given"])
