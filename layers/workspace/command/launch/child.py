"""From the keeper to bubblewrap: what a process does to itself before it becomes the command."""

from __future__ import annotations

import errno
import json
import os
import resource
import signal
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Never, final

from .calls import Machine
from .filters import refusing, telling
from .frames import receive_descriptors
from .kernel import die_with_parent, install_listener

__all__ = ["Child", "ChildRefused", "start"]

OPEN_FILES: Final = 4096
UMASK: Final = 0o022
FIRST_TO_BE_KILLED: Final = "1000"

IGNORED_BY_PYTHON: Final = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGCHLD)


PROBES: Final[dict[int | None, str]] = {errno.E2BIG: "arguments", errno.EINVAL: "seccomp", errno.EPERM: "seccomp"}
"""What it is that the kernel did not allow, by its errno."""


class ChildRefused(Exception):
    """What the kernel did not allow; the first argument names the probe, the second gives its reason."""


@final
@dataclass(frozen=True, slots=True)
class Child:
    """A started bubblewrap: its process, the listener of its calls, and where it writes how the command ended."""

    pid: int
    process: int
    listener: int
    status: int


def start(machine: Machine, bwrap: str, argv: Sequence[str], standard: Sequence[int], file_bytes: int) -> Child:
    """Start bubblewrap with both filters; `standard` are descriptors for stdin, stdout and stderr."""
    ours, theirs = socket.socketpair()
    status, writing = os.pipe2(os.O_CLOEXEC)
    refused = _file_of(refusing(machine))
    told = telling(machine)
    whole = [bwrap, "--seccomp", str(refused), "--json-status-fd", str(writing), *argv]
    pid = os.fork()
    if pid == 0:
        try:
            _become(machine, told, whole, [*standard, refused, writing], file_bytes, theirs)
        except BaseException as error:
            _give_up(theirs, writing, error)
    theirs.close()
    os.close(writing)
    os.close(refused)
    with ours:
        listener = _listener(ours)
    return Child(pid, os.pidfd_open(pid), listener, status)


def _become(
    machine: Machine, told: bytes, argv: list[str], kept: list[int], file_bytes: int, to: socket.socket
) -> Never:
    die_with_parent(signal.SIGKILL)
    for number in IGNORED_BY_PYTHON:
        signal.signal(number, signal.SIG_DFL)
    for target, source in enumerate(kept[:3]):
        os.dup2(source, target)
    for descriptor in kept[3:]:
        os.set_inheritable(descriptor, True)
    os.umask(UMASK)
    _limit(file_bytes)
    listener = install_listener(machine, told)
    # From here on whatever looks up a path waits for the keeper, so nothing may until it has the listener.
    socket.send_fds(to, [b"+"], [listener])
    os.close(listener)
    os.execv(argv[0], argv)


def _limit(file_bytes: int) -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = OPEN_FILES if most == resource.RLIM_INFINITY else min(OPEN_FILES, most)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # One byte more than is allowed, so that who met the limit is found beyond it.
    resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes + 1, file_bytes + 1))
    with open("/proc/self/oom_score_adj", "w") as file:
        file.write(FIRST_TO_BE_KILLED)


def _give_up(to: socket.socket, status: int, error: BaseException) -> Never:
    """Say why: to who waits for the listener, and, since it may have that already, where bubblewrap would speak."""
    number = error.errno if isinstance(error, OSError) else None
    probe = PROBES.get(number, "bubblewrap")
    try:
        os.write(status, json.dumps({"refused": probe, "reason": str(error)}).encode())
        to.sendall(f"-{probe}\n{error}".encode())
    finally:
        os._exit(127)


def _listener(ours: socket.socket) -> int:
    data, descriptors = receive_descriptors(ours, 1 << 12)
    if data == b"+" and descriptors:
        return descriptors[0]
    probe, _, reason = data[1:].decode(errors="replace").partition("\n")
    raise ChildRefused(probe or "seccomp", reason or "the process ended")


def _file_of(code: bytes) -> int:
    made = os.memfd_create("filter", os.MFD_CLOEXEC)
    os.write(made, code)
    os.lseek(made, 0, os.SEEK_SET)
    return made
