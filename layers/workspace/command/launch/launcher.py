"""A small process of one thread that forks a keeper for each command: starting it once is what makes them quick."""

from __future__ import annotations

import os
import signal
import socket
import sys
import traceback
from typing import Final

from .frames import receive_descriptors
from .keeper import keep

__all__ = ["main"]


UMASK: Final = 0o022
"""Whatever the program's own is: what a command sees is not to depend on it."""


def main(descriptor: int) -> None:
    """Serve until the other end is closed: every message is one byte, and the socket of one command."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # keepers are not waited for
    os.umask(UMASK)
    parent_process = os.pidfd_open(os.getppid())
    with socket.socket(fileno=descriptor) as control:
        while True:
            data, descriptors = receive_descriptors(control, 1)
            if not data:
                return
            with socket.socket(fileno=descriptors[0]) as run:
                if os.fork() == 0:
                    control.close()
                    _become_keeper(run, parent_process)


def _become_keeper(run: socket.socket, parent_process: int) -> None:
    status = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        keep(run, parent_process)
        status = 0
    except BaseException:
        traceback.print_exc(file=sys.stderr)
    finally:
        os._exit(status)
