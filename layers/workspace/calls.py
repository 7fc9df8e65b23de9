"""The system calls of the file host, each relative to a descriptor, in one place where a test can let them fail.

Those that Python does not offer are made through ctypes, on x86_64 and aarch64. A NUL, which ctypes would cut a path
at, is a ValueError everywhere.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import platform
import struct
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias, final

__all__ = ["CLOSED", "DIRECTORY", "FOLLOW_NOTHING", "OnCall", "SystemCalls", "close_quietly"]

OnCall: TypeAlias = Callable[[str, str], None]
"""Called before each system call with its name and the name that it is about; an OSError it raises is the answer."""

DIRECTORY: Final = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

CLOSED: Final = 2**31 - 1
"""In place of a descriptor that was given back: its number may soon be that of something else, and this is nobody's.

For a negative one Python raises ValueError, where the kernel has an answer.
"""

FOLLOW_NOTHING: Final = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
"""How anything is opened that may be no regular file: no link is followed, no pipe waits for its other end."""

_NUMBERS: Final[Mapping[str, tuple[int | None, int | None]]] = {"x86_64": (437, 316), "aarch64": (437, 276)}
"""By machine the numbers of openat2 and renameat2."""

_NO_NUMBERS: Final[tuple[int | None, int | None]] = (None, None)

_NO_MAGIC_LINKS, _NO_SYMLINKS, _BENEATH = 2, 4, 8
_NOREPLACE, _EXCHANGE = 1, 2
_TRIES: Final = 1_000
"""How often a look-up is made again that a rename elsewhere disturbed."""

_GET_FLAGS: Final = 0x80086601
_UNCHANGEABLE: Final = 0x10 | 0x20  # immutable, append only
_NO_FLAGS: Final = (errno.ENOTTY, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)


def _nothing(call: str, name: str, /) -> None:
    """Lets every call be made."""


@final
class SystemCalls:
    """What the file host asks of the kernel. `openat2=False` does without that call, as an old kernel would."""

    def __init__(self, on_call: OnCall = _nothing, *, openat2: bool = True) -> None:
        self._on_call = on_call
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._libc.syscall.restype = ctypes.c_long
        self._openat2, self._renameat2 = _NUMBERS.get(platform.machine(), _NO_NUMBERS)
        self.has_openat2 = openat2 and self._finds_openat2()
        """Whether one call resolves a whole path safely; otherwise it is walked, part by part."""

    # --- opening ------------------------------------------------------------

    def open(self, name: str, flags: int, mode: int = 0o600, *, at: int) -> int:
        self._on_call("open", name)
        return os.open(name, flags | os.O_CLOEXEC, mode, dir_fd=at)

    def open_path(self, path: str, flags: int) -> int:
        """Open by a path of the whole host: only for the root, once."""
        self._on_call("open", path)
        return os.open(path, flags | os.O_CLOEXEC)

    def open_beneath(self, path: str, flags: int, *, at: int) -> int:
        """Open a path of several parts by openat2: beneath `at`, through no link of any kind."""
        for _ in range(_TRIES):
            try:
                self._on_call("openat2", path)
                return _checked(self._try_openat2(path, flags, at), path)
            except OSError as error:
                if error.errno not in (errno.EAGAIN, errno.EINTR):
                    raise
        raise OSError(errno.EAGAIN, "a directory above it is renamed again and again", path)

    def _try_openat2(self, path: str, flags: int, at: int) -> int:
        _refuse_nul(path)
        how = struct.pack("QQQ", flags | os.O_CLOEXEC, 0, _BENEATH | _NO_SYMLINKS | _NO_MAGIC_LINKS)
        return self._syscall(self._openat2, at, os.fsencode(path), how, len(how))

    def _finds_openat2(self) -> bool:
        if self._openat2 is None:
            return False
        root = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            found = self._try_openat2(".", os.O_PATH | os.O_DIRECTORY, root)
            if found >= 0:
                os.close(found)
            return found >= 0
        finally:
            os.close(root)

    def _syscall(self, number: int | None, *arguments: int | bytes) -> int:
        """The answer of a system call, or the negative number of its error."""
        if number is None:
            return -errno.ENOSYS
        passed = [ctypes.c_long(it) if isinstance(it, int) else it for it in arguments]
        answer: int = self._libc.syscall(ctypes.c_long(number), *passed)
        return -ctypes.get_errno() if answer < 0 else answer

    # --- looking ------------------------------------------------------------

    def stat(self, descriptor: int) -> os.stat_result:
        self._on_call("fstat", "")
        return os.fstat(descriptor)

    def stat_name(self, name: str, *, at: int) -> os.stat_result:
        """What stands there itself, and not what a link leads to."""
        self._on_call("fstatat", name)
        return os.stat(name, dir_fd=at, follow_symlinks=False)

    def names(self, descriptor: int) -> list[str]:
        """The names in a directory, in no order."""
        self._on_call("getdents", "")
        return os.listdir(descriptor)

    def entries(self, descriptor: int) -> list[tuple[str, bool]]:
        """The names in a directory, in no order, each with whether it is a directory itself; no link is one."""
        self._on_call("getdents", "")
        with os.scandir(descriptor) as found:
            return [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in found]

    def read(self, descriptor: int, size: int) -> bytes:
        self._on_call("read", "")
        return os.read(descriptor, size)

    def read_link(self, name: str, *, at: int) -> str:
        self._on_call("readlink", name)
        return os.readlink(name, dir_fd=at)

    def may_write(self, descriptor: int) -> bool:
        """Whether names may be made and removed in a directory, as far as permissions and the mount say."""
        self._on_call("faccessat", "")
        return os.access(".", os.W_OK | os.X_OK, dir_fd=descriptor, effective_ids=True)

    def is_unchangeable(self, descriptor: int) -> bool:
        """Whether a file or directory is marked as immutable or append-only."""
        self._on_call("ioctl", "")
        try:
            flags = fcntl.ioctl(descriptor, _GET_FLAGS, b"\0" * 8)
        except OSError as error:
            if error.errno in _NO_FLAGS:
                return False
            raise
        return bool(int.from_bytes(flags[:4], "little") & _UNCHANGEABLE)

    # --- writing ------------------------------------------------------------

    def write(self, descriptor: int, data: bytes | bytearray | memoryview) -> None:
        """Write all of it."""
        view = memoryview(data).cast("B")
        while view:
            self._on_call("write", "")
            view = view[os.write(descriptor, view) :]

    def chmod(self, descriptor: int, mode: int) -> None:
        self._on_call("fchmod", "")
        os.fchmod(descriptor, mode)

    def stamp(self, descriptor: int, at_ns: int) -> None:
        """Set when the file was last changed, in nanoseconds since the epoch."""
        self._on_call("utimensat", "")
        os.utime(descriptor, ns=(at_ns, at_ns))

    def sync(self, descriptor: int) -> None:
        self._on_call("fsync", "")
        os.fsync(descriptor)

    def make_directory(self, name: str, mode: int, *, at: int) -> None:
        self._on_call("mkdirat", name)
        os.mkdir(name, mode, dir_fd=at)

    def remove_directory(self, name: str, *, at: int) -> None:
        self._on_call("rmdir", name)
        os.rmdir(name, dir_fd=at)

    def make_link(self, target: str, name: str, *, at: int) -> None:
        self._on_call("symlinkat", name)
        os.symlink(target, name, dir_fd=at)

    def unlink(self, name: str, *, at: int) -> None:
        self._on_call("unlinkat", name)
        os.unlink(name, dir_fd=at)

    def rename(self, old: str, new: str, *, at: int) -> None:
        """Within one directory, replacing what is there."""
        self._on_call("renameat", new)
        os.rename(old, new, src_dir_fd=at, dst_dir_fd=at)

    def replace(self, old_at: int, old: str, new_at: int, new: str) -> None:
        """Rename into another directory, replacing what is there."""
        self._on_call("renameat", new)
        os.rename(old, new, src_dir_fd=old_at, dst_dir_fd=new_at)

    def move(self, old_at: int, old: str, new_at: int, new: str) -> None:
        """Rename to a name that is free; FileExistsError if it is not."""
        self._on_call("NOREPLACE", new)
        self._rename2(old_at, old, new_at, new, _NOREPLACE)

    def exchange(self, one_at: int, one: str, other_at: int, other: str) -> None:
        """Swap what two names stand for, in one step. Both must be there."""
        self._on_call("EXCHANGE", other)
        self._rename2(one_at, one, other_at, other, _EXCHANGE)

    def _rename2(self, old_at: int, old: str, new_at: int, new: str, flags: int) -> None:
        _refuse_nul(old)
        _refuse_nul(new)
        _ = _checked(self._syscall(self._renameat2, old_at, os.fsencode(old), new_at, os.fsencode(new), flags), new)

    def try_lock(self, descriptor: int) -> bool:
        """Whether the lock of an open file is ours now: nobody waits here."""
        self._on_call("flock", "")
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def lock(self, descriptor: int) -> None:
        """Wait for the lock of an open file, for as long as it takes: for locks that are held for a moment only."""
        self._on_call("flock", "")
        fcntl.flock(descriptor, fcntl.LOCK_EX)

    def unlock(self, descriptor: int) -> None:
        """Give a lock up, also for processes that were forked while it was held. Never refused."""
        fcntl.flock(descriptor, fcntl.LOCK_UN)

    def close(self, descriptor: int) -> None:
        """Never refused: a descriptor is given back whatever else goes wrong."""
        close_quietly(descriptor)


def close_quietly(descriptor: int) -> None:
    """Close a descriptor; Linux gives it back even where it answers with an error of an earlier write."""
    try:
        os.close(descriptor)
    except OSError as error:
        if error.errno == errno.EBADF:
            raise


def _checked(answer: int, name: str) -> int:
    if answer < 0:
        raise OSError(-answer, os.strerror(-answer), name)
    return answer


def _refuse_nul(text: str) -> None:
    if "\0" in text:
        raise ValueError(f"{text!r} holds a NUL character, at which it would be cut off")
