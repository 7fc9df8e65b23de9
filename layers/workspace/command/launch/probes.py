"""Executed inside a sandbox: tries to get out in every way that is known, and prints what was possible.

Each probe is an attempt that has to fail; those of `DECLARED` have to succeed. It is one file, without imports of its
own package, since the sandbox does not show that.
"""

from __future__ import annotations

import ctypes
import json
import os
import socket
import sys
from collections.abc import Callable, Mapping
from typing import Final

ALLOWED: Final = "allowed"

DECLARED: Final = ("declared read", "declared write", "declared execution")

CALLS: Final = {
    "x86_64": {"io_uring": 425, "ptrace": 101, "file handle": 304, "mount": 165, "unshare": 272, "keyring": 250},
    "aarch64": {"io_uring": 425, "ptrace": 117, "file handle": 265, "mount": 40, "unshare": 97, "keyring": 219},
}

DEEP: Final = 32
FAMILIES: Final = (1, 2, 10, 16)
KINDS: Final = (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW, socket.SOCK_SEQPACKET)
NEW_USER: Final = 0x10000000
TRACE_ME: Final = 0
SESSION_KEYRING: Final = -3

_syscall: Final[Callable[..., int]] = ctypes.CDLL(None, use_errno=True).syscall


def main() -> None:
    told: Mapping[str, str] = json.loads(sys.argv[1])
    found = {name: _answer(probe) for name, probe in _probes(told).items()}
    json.dump(found, sys.stdout)


def _answer(probe: Callable[[], object]) -> str:
    try:
        probe()
    except OSError as error:
        return f"{type(error).__name__} {error.errno}"
    except Exception as error:
        return type(error).__name__
    return ALLOWED


def _probes(told: Mapping[str, str]) -> dict[str, Callable[[], object]]:
    return {
        "read an undeclared file": lambda: _read(told["secret"]),
        "stat an undeclared file": lambda: os.stat(told["secret"]),
        "read an undeclared file by ..": lambda: _read("../" * DEEP + told["secret"]),
        "read through a planted link": lambda: _read("evil"),
        "write to the host": lambda: _write(told["escape"]),
        "write to the system": lambda: _writable(told["system"].split(":")),
        "write to the kernel's settings": lambda: os.close(os.open("/proc/sys/kernel/core_pattern", os.O_WRONLY)),
        "list a directory of the host": lambda: os.listdir(os.path.dirname(told["secret"])),
        "TCP to the host": lambda: socket.create_connection(("127.0.0.1", int(told["tcp"])), 1).close(),
        "UDP to the host": lambda: _udp(int(told["udp"])),
        "abstract Unix socket": lambda: _unix("\0" + told["abstract"]),
        "path Unix socket": lambda: _unix_beneath(*os.path.split(told["unix"])),
        "socket of another family": _other_family,
        "see processes of the host": lambda: _is_same_process(int(told["process"]), told["started"]),
        "the host's /etc/passwd": lambda: _has(told["etc"]),
        "home directory": lambda: os.lstat(told["home"]),
        "/proc/1/root": lambda: os.listdir(f"/proc/1/root{os.path.dirname(told['secret'])}"),
        "/sys": lambda: os.listdir("/sys/kernel"),
        "environment": lambda: os.environ[told["variable"]],
        "inherited descriptor": _descriptors,
        "io_uring": lambda: _call("io_uring", 1, ctypes.create_string_buffer(120)),
        "file handle": lambda: _call("file handle", -1, ctypes.create_string_buffer(136), 0, refused_by=1),
        "ptrace": lambda: _in_child(lambda: _call("ptrace", TRACE_ME, 0, 0, 0)),
        "mount": lambda: _call("mount", b"none", b"/no/such/place", b"tmpfs", 0, 0, refused_by=1),
        "new user namespace": lambda: _in_child(lambda: _call("unshare", NEW_USER)),
        "keyring": lambda: _call("keyring", 0, SESSION_KEYRING, 0, 0, 0),
        "become root": lambda: os.setuid(0),
        "set-uid program": _set_uid,
        "declared read": lambda: _read("in.txt"),
        "declared write": lambda: _write("out.txt"),
        "declared execution": _execute,
    }


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read(1)


def _write(path: str) -> None:
    with open(path, "w") as file:
        file.write("x")


def _writable(places: list[str]) -> None:
    if not any(os.access(place, os.W_OK) for place in places):
        raise PermissionError


def _udp(port: int) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.settimeout(1)
        sock.connect(("127.0.0.1", port))
        sock.send(b"?")
        sock.recv(1)  # the host answers


def _unix(name: str) -> None:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(1)
        sock.connect(name)


def _unix_beneath(folder: str, name: str) -> None:
    """However long the folder's path is, which has to fit into an address otherwise."""
    opened = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    try:
        _unix(f"/proc/self/fd/{opened}/{name}")
    finally:
        os.close(opened)


def _other_family() -> None:
    families = [family for family in range(64) if family not in FAMILIES]
    if not any(_is_possible(family, kind) for family in families for kind in KINDS):
        raise PermissionError


def _is_possible(family: int, kind: int) -> bool:
    return _answer(lambda: socket.socket(family, kind).close()) == ALLOWED


def _is_same_process(process: int, started: str) -> None:
    with open(f"/proc/{process}/stat") as file:
        if file.read().rpartition(")")[2].split()[19] != started:
            raise ProcessLookupError


def _has(line: str) -> None:
    with open("/etc/passwd") as file:
        if line not in file.read():
            raise LookupError


def _descriptors() -> None:
    others = [number for number in os.listdir("/proc/self/fd") if int(number) > 2]
    if not any(os.path.exists(f"/proc/self/fd/{number}") for number in others):  # but that of the listing itself
        raise LookupError


def _call(name: str, *arguments: object, refused_by: int = 0) -> None:
    """A system call that succeeds, or fails of another reason than the one by which it is refused."""
    number = CALLS[os.uname().machine][name]
    words = [ctypes.c_long(it) if isinstance(it, int) else it for it in arguments]
    if _syscall(ctypes.c_long(number), *words) < 0:
        error = ctypes.get_errno()
        if not refused_by or error == refused_by:
            raise OSError(error, os.strerror(error))


def _in_child(probe: Callable[[], object]) -> None:
    """What a probe does to its process is not to change the next one."""
    child = os.fork()
    if child == 0:
        os._exit(0 if _answer(probe) == ALLOWED else 1)
    if os.waitpid(child, 0)[1]:
        raise PermissionError


def _set_uid() -> None:
    """Whether a program that belongs to root makes whoever executes it root."""
    with open("/proc/self/status") as file:
        if "NoNewPrivs:\t1" in file.read():
            raise PermissionError


def _execute() -> None:
    _in_child(lambda: os.execv(sys.executable, [sys.executable, "-I", "-S", "-c", ""]))


if __name__ == "__main__":
    main()
