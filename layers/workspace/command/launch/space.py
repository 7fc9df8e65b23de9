"""The file system of one command: in memory, in namespaces of its own, and gone with the last who holds it open."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, final

from .frames import Message, pairs_of, texts_of
from .kernel import NEW_MOUNTS, NEW_USER, mount, unshare

__all__ = ["FOLDERS", "Space", "SpaceRefused", "make_space"]

FOLDERS: Final = {
    "root": 0o755,
    "dev": 0o755,
    "dev/shm": 0o1777,
    "dev/pts": 0o755,
    "ws": 0o755,
    "home": 0o755,
    "tmp": 0o1777,
}
"""What is in it: the root directory, which holds the way to all else, and what the command sees of its own there."""

PLACES: Final = ("dev", "proc", "tmp", "stepwell", "stepwell/ws", "stepwell/home", "etc")
"""Where in the root something else is mounted, or put."""

DEVICES: Final = ("full", "null", "random", "tty", "urandom", "zero")

DEVICE_LINKS: Final = {
    "fd": "/proc/self/fd",
    "ptmx": "pts/ptmx",
    "stderr": "/proc/self/fd/2",
    "stdin": "/proc/self/fd/0",
    "stdout": "/proc/self/fd/1",
}

CANDIDATES: Final = ("/mnt", "/media", "/srv", "/opt", "/sys", "/var/tmp", "/tmp")
"""Where it may be mounted: only its keeper, and bubblewrap before the command begins, see it there."""

NOSUID: Final = 2
NODEV: Final = 4
NOEXEC: Final = 8
RECURSIVE: Final = 0x4000
BIND: Final = 0x1000
PRIVATE: Final = 0x40000


class SpaceRefused(Exception):
    """What cannot be made; the first argument names the probe, the second the kernel's reason."""


@final
@dataclass(frozen=True, slots=True)
class Space:
    """Where it is mounted, and a descriptor of each folder that belongs to the command."""

    at: str
    folders: dict[str, int]


def make_space(asked: Message) -> Space:
    """Leave the host's user and mount namespaces, mount the file system that is asked for, and set it up.

    Bubblewrap takes it from here: it makes all that is bound in it read-only. It could bind the parts one by one
    itself, but each of them costs a dozen calls of which the keeper is told.
    """
    uid, gid = os.geteuid(), os.getegid()
    try:
        unshare(NEW_USER | NEW_MOUNTS)
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"0 {uid} 1")
        _write("/proc/self/gid_map", f"0 {gid} 1")
    except OSError as error:
        raise SpaceRefused("user_namespaces", str(error)) from None
    bound = texts_of(asked, "bound")
    at = _free_place(texts_of(asked, "avoided"))
    try:
        mount("none", "/", "", PRIVATE | RECURSIVE, "")
        options = f"size={asked['bytes']},nr_inodes={asked['inodes']},mode=0755"
        mount("tmpfs", at, "tmpfs", NOSUID | NODEV, options)
        for name, mode in FOLDERS.items():
            os.mkdir(f"{at}/{name}")
            os.chmod(f"{at}/{name}", mode)
        _make_root(f"{at}/root", bound, pairs_of(asked, "links"), pairs_of(asked, "etc"))
        _make_devices(f"{at}/dev")
    except OSError as error:
        raise SpaceRefused("private_tmpfs", str(error)) from None
    own = {"ws": "ws", "home": "home", "tmp": "tmp", "shm": "dev/shm"}
    return Space(at, {name: os.open(f"{at}/{path}", os.O_RDONLY | os.O_DIRECTORY) for name, path in own.items()})


def _make_root(root: str, bound: Sequence[str], links: Message, etc: Message) -> None:
    for place in PLACES:
        os.mkdir(f"{root}/{place}")
    for place, target in links.items():
        os.symlink(str(target), f"{root}{place}")
    for name, text in etc.items():
        _write(f"{root}/etc/{name}", str(text))
    for place in bound:
        try:
            _bind(place, f"{root}{place}")
        except OSError as error:
            raise SpaceRefused("toolchain", f"{place} cannot be shown: {error.strerror}") from None


def _make_devices(dev: str) -> None:
    for name in DEVICES:
        _bind(f"/dev/{name}", f"{dev}/{name}")
    for name, target in DEVICE_LINKS.items():
        os.symlink(target, f"{dev}/{name}")
    mount("devpts", f"{dev}/pts", "devpts", NOSUID | NOEXEC, "newinstance,ptmxmode=0666,mode=620")


def _bind(source: str, target: str) -> None:
    """Show a file or a directory of the host, with all that is mounted in it."""
    if os.path.isdir(source):
        os.makedirs(target, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.close(os.open(target, os.O_WRONLY | os.O_CREAT, 0o644))
    mount(source, target, "", BIND | RECURSIVE, "")


def _free_place(avoided: Sequence[str]) -> str:
    for place in CANDIDATES:
        if os.path.isdir(place) and not any(_meet(place, path) for path in avoided):
            return place
    shown = min(avoided, key=len, default="/")
    raise SpaceRefused("toolchain", f"{shown} leaves none of {', '.join(CANDIDATES)}, of which the sandbox needs one")


def _meet(place: str, path: str) -> bool:
    return f"{path}/".startswith(f"{place}/") or f"{place}/".startswith(f"{path.rstrip('/')}/")


def _write(path: str, text: str) -> None:
    opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        os.write(opened, text.encode())
    finally:
        os.close(opened)
