"""The file system of one command: in memory, in namespaces of its own, and gone with the last who holds it open."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, final

from .frames import Message
from .kernel import NEW_MOUNTS, NEW_USER, mount, unshare

__all__ = ["FOLDERS", "Space", "SpaceRefused", "make_space"]

FOLDERS: Final = {"ws": 0o755, "home": 0o755, "tmp": 0o1777, "shm": 0o1777, "etc": 0o755}
"""What is in it: the workspace, and what else of its own a command sees."""

CANDIDATES: Final = ("/mnt", "/media", "/srv", "/opt", "/sys", "/var/tmp", "/tmp")
"""Where it may be mounted: only its keeper, and bubblewrap before the command begins, see it there."""

NOSUID_NODEV: Final = 2 | 4
PRIVATE_RECURSIVE: Final = 0x40000 | 0x4000


class SpaceRefused(Exception):
    """What cannot be made; the first argument names the probe, the second the kernel's reason."""


@final
@dataclass(frozen=True, slots=True)
class Space:
    """Where it is mounted, and a descriptor of each folder."""

    at: str
    folders: dict[str, int]


def make_space(asked: Message) -> Space:
    """Leave the host's user and mount namespaces, and mount the file system that is asked for."""
    uid, gid = os.geteuid(), os.getegid()
    try:
        unshare(NEW_USER | NEW_MOUNTS)
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"0 {uid} 1")
        _write("/proc/self/gid_map", f"0 {gid} 1")
    except OSError as error:
        raise SpaceRefused("user_namespaces", str(error)) from None
    at = _free_place(_texts(asked["avoid"]))
    try:
        mount("none", "/", "", PRIVATE_RECURSIVE, "")
        mount("tmpfs", at, "tmpfs", NOSUID_NODEV, f"size={asked['bytes']},nr_inodes={asked['inodes']},mode=0755")
    except OSError as error:
        raise SpaceRefused("private_tmpfs", str(error)) from None
    folders = {name: _folder(f"{at}/{name}", mode) for name, mode in FOLDERS.items()}
    _fill_etc(folders["etc"], asked)
    return Space(at, folders)


def _free_place(avoided: Sequence[str]) -> str:
    for place in CANDIDATES:
        if os.path.isdir(place) and not any(_meet(place, path) for path in avoided):
            return place
    raise SpaceRefused("private_tmpfs", f"none of {', '.join(CANDIDATES)} is a folder that commands need not read")


def _meet(place: str, path: str) -> bool:
    return f"{path}/".startswith(f"{place}/") or f"{place}/".startswith(f"{path.rstrip('/')}/")


def _folder(path: str, mode: int) -> int:
    os.mkdir(path)
    os.chmod(path, mode)
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY)


def _fill_etc(etc: int, asked: Message) -> None:
    files, folders = asked["etc_files"], _texts(asked["etc_folders"])
    if not isinstance(files, dict):
        raise TypeError("etc_files is an object")
    for folder in folders:
        _make_folders(etc, folder)
    for name, text in files.items():
        if os.path.dirname(name):
            _make_folders(etc, os.path.dirname(name))
        with os.fdopen(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644, dir_fd=etc), "w") as file:
            file.write(str(text))


def _make_folders(etc: int, folder: str) -> None:
    made = ""
    for part in folder.split("/"):
        made = f"{made}/{part}" if made else part
        try:
            os.mkdir(made, dir_fd=etc)
        except FileExistsError:
            continue


def _texts(value: object) -> list[str]:
    if not isinstance(value, list):
        raise TypeError("a list of text is expected")
    return [str(item) for item in value]


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)
