"""A process that dispatches an effect, and may kill itself when it is delivered; the tests run it as a script."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from stepwell import build, get
from stepwell.layers import clock, effect_dispatcher, ids, ledger, store, wake_bus
from stepwell.services.effect_dispatcher import Effect, EffectDispatcher


async def main(folder: Path, dies: bool) -> None:
    """Deliver is to write a line into a file."""

    async def deliver(effect: Effect) -> None:
        with (folder / "received").open("a") as received:
            _ = received.write(f"{effect.key} {effect.payload}\n")
        if dies:
            os.kill(os.getpid(), signal.SIGKILL)

    beneath = ledger.layer(folder / "app.db") | clock.layer() | ids.layer() | wake_bus.layer() | store.layer()
    async with build(beneath | effect_dispatcher.layer(deliver)) as built:
        outcome = await get(built.unwrap(), EffectDispatcher).dispatch(Effect("mail:1", "hello"))
    print(outcome.unwrap().again)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2] == "dies"))
