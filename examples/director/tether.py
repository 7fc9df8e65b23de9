"""`python -m director.tether PARENT PROGRAM ...` becomes the program, and is ended when the process PARENT ends.

However that ends: SIGKILL leaves a director no time to end what it has started. Only Linux offers this; elsewhere the
program is on its own then.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1
"""From linux/prctl.h; what it sets outlasts `exec`."""


def main(parent: int, program: list[str]) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGTERM))
    if os.getppid() == parent:  # otherwise it has ended already
        os.execv(program[0], program)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
