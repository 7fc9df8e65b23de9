"""A process that puts an artifact, and kills itself at a system call on the way; the tests run it as a script."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from io import BytesIO
from pathlib import Path

from stepwell import Artifacts, build, get
from stepwell.layers import artifacts, clock

DATA = bytes(range(256)) * 8_300
"""Three pieces."""


async def main(root: Path, streamed: bool, last: int) -> None:
    """Put; the system call of that number is not made."""
    made = 0

    def on_call(call: str, name: str) -> None:
        nonlocal made
        made += 1
        if made == last:
            os.kill(os.getpid(), signal.SIGKILL)

    async with build(artifacts.layer(root, on_call=on_call) | clock.layer()) as built:
        service = get(built.unwrap(), Artifacts)
        put = await (service.put_stream(BytesIO(DATA)) if streamed else service.put(DATA))
    print(put.unwrap())


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2] == "streamed", int(sys.argv[3])))
