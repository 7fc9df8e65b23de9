"""The launcher as its program sees it: a process that is started when it is needed, and a talk for each command."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final, final

from .launch.frames import Gone, Message, receive, receive_descriptors, send

__all__ = ["Launcher", "NoLauncher", "Talk"]

FOLDER: Final = str(Path(__file__).parent / "launch")

BOOT: Final = (
    "import sys, types; package = types.ModuleType('launch'); package.__path__ = [sys.argv[1]]; "
    "sys.modules['launch'] = package; from launch.launcher import main; main(int(sys.argv[2]))"
)
"""Imports the launcher from its folder alone: what lies around it takes far longer to import than to fork."""


class NoLauncher(Exception):
    """The launcher cannot be started, or ended at once; the argument says why."""


@final
class Launcher:
    """Starts the launcher once, and again if it has ended. Its calls block, and may come from several threads."""

    def __init__(self, python: str = sys.executable) -> None:
        self._python = python
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._is_closed = False

    def talk(self) -> Talk:
        """A talk with a new keeper. A `NoLauncher` says that there is none to be had."""
        ours, theirs = socket.socketpair()
        with theirs, self._lock:
            try:
                self._send(theirs)
            except BaseException:
                ours.close()
                raise
        return Talk(ours)

    def _send(self, theirs: socket.socket) -> None:
        for _ in range(2):
            control = self._control or self._start()
            try:
                socket.send_fds(control, [b"+"], [theirs.fileno()])
            except OSError:
                self._end()
            else:
                return
        raise NoLauncher("the launcher ends as soon as it is started")

    def _start(self) -> socket.socket:
        if self._is_closed:
            raise NoLauncher("the sandbox is closed")
        ours, theirs = socket.socketpair()
        descriptor = theirs.fileno()
        words = [self._python, "-I", "-S", "-c", BOOT, FOLDER, str(descriptor)]
        nothing = subprocess.DEVNULL
        try:
            self._process = subprocess.Popen(
                words, stdin=nothing, stdout=nothing, stderr=nothing, pass_fds=[descriptor], env={}, cwd="/",
                start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            ours.close()
            raise NoLauncher(f"{self._python!r} cannot be executed: {error}") from None
        finally:
            theirs.close()
        self._control = ours
        return ours

    @property
    def process(self) -> int | None:
        """The process of the launcher, if there is one."""
        return None if self._process is None else self._process.pid

    def close(self) -> None:
        """End the launcher; commands that are being executed are not affected by it."""
        with self._lock:
            self._is_closed = True
            self._end()

    def _end(self) -> None:
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._process is not None:
            self._process.wait()
            self._process = None


@final
class Talk:
    """What is said with one keeper. When it is closed, and not before, nothing of the command is alive."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    def say(self, message: Message, descriptors: Sequence[int] = ()) -> None:
        """Raises `Gone` if the keeper is not there. Blocks shortly."""
        send(self._sock, message, descriptors)

    def hear(self) -> tuple[Message, list[int]]:
        """The keeper's next message, its descriptors the caller's to close. Raises `Gone`. Blocks until it comes."""
        try:
            return receive(self._sock)
        except ConnectionResetError:
            raise Gone from None

    async def wait(self) -> None:
        """Return when there is something to hear, without blocking the loop."""
        loop = asyncio.get_running_loop()
        heard = loop.create_future()
        loop.add_reader(self._sock, _tell, heard)
        try:
            await heard
        finally:
            loop.remove_reader(self._sock)

    def give_up(self) -> None:
        """Tell the keeper that nobody waits any more: it kills everything, and then hangs up."""
        try:
            self._sock.shutdown(socket.SHUT_WR)
        except OSError:
            return

    def wait_for_end(self) -> None:
        """Block until the keeper has hung up."""
        while True:
            try:
                data, descriptors = receive_descriptors(self._sock, 1 << 16)
            except OSError:
                return
            for descriptor in descriptors:
                os.close(descriptor)
            if not data:
                return

    def close(self) -> None:
        self._sock.close()


def _tell(heard: asyncio.Future[None]) -> None:
    if not heard.done():
        heard.set_result(None)
