"""The system calls that Python does not offer. Each raises OSError with the kernel's errno."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import struct
from collections.abc import Callable
from contextlib import suppress
from typing import Final, NamedTuple, final

from .calls import Machine

__all__ = [
    "NEW_MOUNTS",
    "NEW_USER",
    "Beneath",
    "Listener",
    "Notification",
    "Reader",
    "adopt_orphans",
    "die_with_parent",
    "install_listener",
    "mount",
    "processor",
    "timer",
    "unshare",
]

NEW_MOUNTS: Final = 0x00020000
NEW_USER: Final = 0x10000000

PR_SET_PDEATHSIG: Final = 1
PR_SET_CHILD_SUBREAPER: Final = 36
PR_SET_NO_NEW_PRIVS: Final = 38

SET_MODE_FILTER: Final = 1
NEW_LISTENER: Final = 1 << 3
WAIT_KILLABLE: Final = 1 << 5
"""Once a call was told of, only a deadly signal ends its wait: no call is told of twice (Linux 5.19)."""

NO_SYMLINKS: Final = 0x04
BENEATH: Final = 0x08

RECEIVE: Final = 0xC0502100
ANSWER: Final = 0xC0182101
SET_FLAGS: Final = 0x40082104
GO_ON: Final = 1
SAME_PROCESSOR: Final = 1
"""Who answers is woken on the processor of who asks, which stands still meanwhile (Linux 6.6)."""
NOTICE: Final = struct.Struct("=QIIiIQ6Q")
REPLY: Final = struct.Struct("=QqiI")

CLOCK_MONOTONIC: Final = 1
TIMER_FLAGS: Final = os.O_CLOEXEC | os.O_NONBLOCK

PAGE: Final = 4096
PATH_MAX: Final = 4096
SHORT: Final = 128
"""What is read of a path at first."""

_libc: Final = ctypes.CDLL(None, use_errno=True)


def _checked(result: int) -> int:
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return result


def _call(name: str) -> Callable[..., int]:
    function = _libc[name]
    function.restype = ctypes.c_long
    called: Callable[..., int] = function
    return called


_syscall: Final = _call("syscall")
_prctl: Final = _call("prctl")


def unshare(flags: int) -> None:
    """Leave namespaces for new ones."""
    _checked(ctypes.c_int(_call("unshare")(ctypes.c_int(flags))).value)


def mount(source: str, target: str, kind: str, flags: int, options: str) -> None:
    """Mount a file system."""
    words = (ctypes.c_char_p(os.fsencode(word)) for word in (source, target, kind))
    result = _call("mount")(*words, ctypes.c_ulong(flags), ctypes.c_char_p(os.fsencode(options)))
    _checked(ctypes.c_int(result).value)


def die_with_parent(signal_number: int) -> None:
    """Be sent a signal when the parent ends."""
    _control(PR_SET_PDEATHSIG, signal_number)


def adopt_orphans() -> None:
    """Become the parent of descendants whose own has ended."""
    _control(PR_SET_CHILD_SUBREAPER, 1)


def processor() -> int:
    """The processor that this thread is on."""
    return _checked(_call("sched_getcpu")())


def _control(option: int, value: int) -> None:
    zero = ctypes.c_ulong(0)
    _checked(ctypes.c_int(_prctl(ctypes.c_int(option), ctypes.c_ulong(value), zero, zero, zero)).value)


class _Filter(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_char_p))


def install_listener(machine: Machine, code: bytes) -> int:
    """Put a filter on this process and all that come from it; the descriptor that its calls are told to."""
    _control(PR_SET_NO_NEW_PRIVS, 1)
    program = _Filter(len(code) // 8, code)
    try:
        return _filter(machine, program, NEW_LISTENER | WAIT_KILLABLE)
    except OSError:
        return _filter(machine, program, NEW_LISTENER)


def _filter(machine: Machine, program: _Filter, flags: int) -> int:
    number, mode = ctypes.c_long(machine.seccomp), ctypes.c_ulong(SET_MODE_FILTER)
    return _checked(_syscall(number, mode, ctypes.c_ulong(flags), ctypes.byref(program)))


class Notification(NamedTuple):
    """A call that waits for an answer."""

    id: int
    task: int
    number: int
    arguments: tuple[int, ...]


@final
class Listener:
    """The kernel's end of a telling filter."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        with suppress(OSError):
            fcntl.ioctl(descriptor, SET_FLAGS, SAME_PROCESSOR)

    def receive(self) -> Notification | None:
        """The next call; None if its task ended meanwhile."""
        buffer = bytearray(NOTICE.size)
        try:
            fcntl.ioctl(self.descriptor, RECEIVE, buffer, True)
        except OSError:
            return None
        told = NOTICE.unpack(buffer)
        return Notification(told[0], told[1], told[3], told[6:])

    def go_on(self, call: Notification) -> bool:
        """Let the call be done. False if nobody waits for it any more."""
        return self._answer(REPLY.pack(call.id, 0, 0, GO_ON))

    def _answer(self, reply: bytes) -> bool:
        try:
            fcntl.ioctl(self.descriptor, ANSWER, reply)
        except OSError:
            return False
        return True


class _Piece(ctypes.Structure):
    _fields_ = (("start", ctypes.c_void_p), ("length", ctypes.c_size_t))


@final
class Reader:
    """Reads the memory of other tasks. All that can be made once is made once: this is done for every look-up."""

    def __init__(self) -> None:
        self._buffer = bytearray(PAGE)
        self._view = (ctypes.c_char * PAGE).from_buffer(self._buffer)
        self._remote = _Piece(0, 0)
        self._pieces = (
            ctypes.byref(_Piece(ctypes.addressof(self._view), PAGE)),
            ctypes.c_ulong(1),
            ctypes.byref(self._remote),
            ctypes.c_ulong(1),
            ctypes.c_ulong(0),
        )
        self._read = _call("process_vm_readv")

    def _load(self, task: int, address: int, length: int) -> int:
        """Read up to `length` bytes, none beyond the page's end; how many there were."""
        self._remote.start = address
        self._remote.length = min(length, PAGE - address % PAGE)
        return _checked(self._read(task, *self._pieces))

    def bytes_at(self, task: int, address: int, length: int) -> bytes:
        """Up to `length` bytes, none beyond the page's end."""
        return bytes(self._buffer[: self._load(task, address, length)])

    def text_at(self, task: int, address: int) -> str:
        """The text up to the next NUL, or as far as a path may go."""
        whole, length = b"", SHORT
        while len(whole) < PATH_MAX:
            read = self._load(task, address + len(whole), length)
            end = self._buffer.find(0, 0, read)
            if end >= 0:
                return os.fsdecode(whole + self._buffer[:end])
            whole += self._buffer[:read]
            length = PAGE
        return os.fsdecode(whole[:PATH_MAX])


class _How(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def _how(flags: int) -> object:
    return ctypes.byref(_How(flags | os.O_PATH | os.O_CLOEXEC, 0, BENEATH | NO_SYMLINKS))


_NO_LINK: Final = _how(0)
_LINK_AT_END: Final = _how(os.O_NOFOLLOW)
_HOW_SIZE: Final = ctypes.c_size_t(ctypes.sizeof(_How))


@final
class Beneath:
    """Looks beneath directories, without following links."""

    def __init__(self, machine: Machine) -> None:
        self._number = ctypes.c_long(machine.openat2)

    def has(self, directory: int, path: bytes, keeps_link: bool) -> bool:
        """Whether something stands at a path. An OSError with ELOOP says that a link lies on the way.

        A link at the path itself is something if it is kept, and otherwise on the way.
        """
        how = _LINK_AT_END if keeps_link else _NO_LINK
        opened = _syscall(self._number, directory, path, how, _HOW_SIZE)
        if opened >= 0:
            os.close(opened)
            return True
        error = ctypes.get_errno()
        if error == errno.ELOOP:
            raise OSError(error, os.strerror(error))
        return False


def timer(first_ms: int, every_ms: int = 0) -> int:
    """A descriptor that can be read after `first_ms`, and again every `every_ms` if that is not 0."""
    made = _checked(ctypes.c_int(_call("timerfd_create")(CLOCK_MONOTONIC, TIMER_FLAGS)).value)
    spans = (every_ms // 1000, every_ms % 1000 * 1_000_000, first_ms // 1000, first_ms % 1000 * 1_000_000)
    setting = (ctypes.c_long * 4)(*spans)
    try:
        _checked(ctypes.c_int(_call("timerfd_settime")(made, 0, ctypes.byref(setting), None)).value)
    except OSError:
        os.close(made)
        raise
    return made
