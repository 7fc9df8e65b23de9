"""From a call that waits to the path that it looks up, and whether that is there."""

from __future__ import annotations

import errno
import os
import re
import struct
from collections.abc import Mapping
from typing import Final, NamedTuple, final

from .calls import AT_EMPTY_PATH, AT_FDCWD, AT_SYMLINK_NOFOLLOW, Call, Kind, Machine
from .kernel import Beneath, Notification, Reader

__all__ = ["Decoder", "Look", "Places"]

O_CREAT: Final = os.O_CREAT
FLAGS: Final = re.compile(r"^flags:\s*([0-7]+)$", re.MULTILINE)
KEEPS_NOTHING: Final = os.O_TRUNC | os.O_EXCL
O_PATH: Final = os.O_PATH
HEAD_ONLY: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

LINKS: Final = 40
"""The most links that a path may lead through, as in the kernel."""

OWN: Final = re.compile(r"/proc/(?:self|thread-self)/(cwd|root|fd/\d+)(?=/|\Z)|/dev/(fd/\d+)(?=/|\Z)")
"""What leads from a task to its own directories and descriptors."""

DOTS: Final = re.compile(r"(?:\A|/)(?:\.|/|\Z)")
"""Where a path may have parts that say nothing, or go back."""

SAME: Final = re.compile(r"/(?:\.?/)+")
"""What says no more than one slash."""

DELETED: Final = " (deleted)"

INTERPRETERS: Final = 5
"""How many scripts may each be the next one's interpreter, as in the kernel."""

HEAD: Final = 256
"""What the kernel reads of a program to see how to execute it."""

LINE: Final = re.compile(rb"#![ \t]*([^ \t\n\0]+)")


class Look(NamedTuple):
    """A look at a path as the command sees it, without links and dots where it lies in a place of its own."""

    kind: Kind
    path: str
    present: bool


@final
class Places:
    """The directories that belong to the command alone, by the path at which it sees each of them."""

    def __init__(self, machine: Machine, places: Mapping[str, int]) -> None:
        self._beneath = Beneath(machine)
        self._places = tuple((path, path + "/", directory) for path, directory in places.items())

    def looks(self, kind: Kind, path: str, keeps_link: bool) -> list[Look]:
        """What is looked at on the way along an absolute path: links that are read, and the end."""
        steps: list[Look] = []
        for _ in range(LINKS):
            found = self._place(path)
            if found is None:
                path = os.path.normpath(path)
                if self._place(path) is None:
                    return [*steps, Look(kind, path, False)]
                continue
            place, directory, rest = found
            look = self._direct(kind, place, directory, rest, keeps_link)
            if look is not None:
                return [*steps, look]
            link, path = self._through_link(place, directory, rest, keeps_link)
            if link is None:
                return [*steps, Look(kind, path, self._is_there(path))]
            steps.append(link)
        return steps

    def interpreter(self, path: str) -> str:
        """What is named as its interpreter by a script of the command's own; "" if it is none."""
        found = self._place(path)
        try:
            opened = os.open(found[2], HEAD_ONLY, dir_fd=found[1]) if found is not None else None
        except OSError:
            return ""
        if opened is None:
            return ""
        try:
            line = LINE.match(os.read(opened, HEAD))
        except OSError:
            return ""
        finally:
            os.close(opened)
        return os.fsdecode(line[1]) if line else ""

    def _place(self, path: str) -> tuple[str, int, str] | None:
        for place, inside, directory in self._places:
            if path.startswith(inside):
                return place, directory, path[len(inside) :]
            if path == place:
                return place, directory, ""
        return None

    def _direct(self, kind: Kind, place: str, directory: int, rest: str, keeps_link: bool) -> Look | None:
        """The look, if neither a link nor ".." lies on the way, as is usual."""
        if DOTS.search(rest):
            parts = rest.split("/")
            if ".." in parts:
                return None
            rest = "/".join(part for part in parts if part not in {"", "."})
        try:
            present = self._beneath.has(directory, os.fsencode(rest) or b".", keeps_link)
        except OSError:
            return None
        return Look(kind, f"{place}/{rest}" if rest else place, present)

    def _through_link(self, place: str, directory: int, rest: str, keeps_link: bool) -> tuple[Look | None, str]:
        """The first link on the way, and the path with that link followed; no link if only dots were in the way."""
        done: list[str] = []
        parts = [part for part in rest.split("/") if part not in {"", "."}]
        for index, part in enumerate(parts):
            if part == "..":
                if not done:
                    return None, os.path.normpath("/".join([os.path.dirname(place), *parts[index + 1 :]]))
                done.pop()
                continue
            is_last = index == len(parts) - 1
            here = "/".join([*done, part])
            target = None if is_last and keeps_link else _link(directory, here)
            if target is None:
                done.append(part)
                continue
            base = target if target.startswith("/") else "/".join([place, *done, target])
            return Look("readlink", f"{place}/{here}", True), "/".join([base, *parts[index + 1 :]])
        return None, "/".join([place, *done])

    def _is_there(self, path: str) -> bool:
        found = self._place(path)
        if found is None:
            return False
        _, directory, rest = found
        try:
            os.lstat(rest or ".", dir_fd=directory)
        except OSError:
            return False
        return True


def _link(directory: int, path: str) -> str | None:
    try:
        return os.readlink(path, dir_fd=directory)
    except OSError:
        return None


@final
class Decoder:
    """Reads what a waiting call asks for. The task stands still meanwhile, its other threads do not."""

    def __init__(self, machine: Machine, places: Places) -> None:
        self._machine = machine
        self._places = places
        self._reader = Reader()

    def looks(self, notification: Notification) -> list[Look]:
        """The looks of a call, none if it names no path. An OSError says that its task has ended."""
        call = self._machine.watched[notification.number]
        task, arguments = notification.task, notification.arguments
        if call.path < 0:
            if call.kind == "truncate" and not self._cuts(task, arguments[call.at], arguments[1]):
                return []
            named = self._descriptor(task, arguments[call.at])
            return [Look(call.kind, named, True)] if _is_path(named) else []
        text = self._text(task, arguments[call.path])
        flags = self._flags(task, call, arguments)
        if not text:
            return self._of_descriptor(call, task, arguments, flags)
        keeps_link = call.keeps_link or self._keeps_link(call, flags)
        path = self._own(task, self._absolute(task, call, arguments, text), keeps_link)
        if not _is_path(path):
            return []
        looks = self._places.looks(self._kind(call, flags), path, keeps_link)
        return looks + self._interpreters(task, looks[-1]) if call.kind == "exec" else looks

    def _interpreters(self, task: int, executed: Look) -> list[Look]:
        """Who executes a script, and who executes that one: the kernel opens them without being called."""
        found: list[Look] = []
        while executed.present and len(found) < INTERPRETERS:
            named = self._places.interpreter(executed.path)
            path = named if named.startswith("/") else f"{self._base(task, 'cwd')}/{named}"
            if not named or not _is_path(path):
                break
            found += self._places.looks("exec", path, False)
            executed = found[-1]
        return found

    def _text(self, task: int, address: int) -> str:
        try:
            return self._reader.text_at(task, address)
        except OSError as error:
            if error.errno == errno.EFAULT:
                return ""  # the kernel will say so to the task
            raise

    def _flags(self, task: int, call: Call, arguments: tuple[int, ...]) -> int:
        if call.flags < 0:
            return 0
        if not call.is_how:
            return arguments[call.flags] & 0xFFFFFFFF
        try:
            (flags,) = struct.unpack("=Q", self._reader.bytes_at(task, arguments[call.flags], 8))
        except (OSError, struct.error):
            return 0
        return int(flags)

    def _of_descriptor(self, call: Call, task: int, arguments: tuple[int, ...], flags: int) -> list[Look]:
        # Only execution by descriptor reads what was not looked up before; a stat of an open file is none of a path.
        if call.kind == "exec" and flags & AT_EMPTY_PATH:
            path = self._descriptor(task, arguments[call.at])
            return self._places.looks("exec", path, False) if _is_path(path) else []
        return []

    def _absolute(self, task: int, call: Call, arguments: tuple[int, ...], text: str) -> str:
        if not text.startswith("/"):
            at = AT_FDCWD if call.at < 0 else _signed(arguments[call.at])
            base = self._base(task, "cwd") if at == AT_FDCWD else self._descriptor(task, at)
            return f"{base}/{text}" if base else ""
        return text

    def _own(self, task: int, path: str, keeps_link: bool) -> str:
        """A path without what leads through a task's own directories and descriptors."""
        path = SAME.sub("/", path)
        own = OWN.match(path)
        if own is None or (keeps_link and own.end() == len(path)):
            return path
        return self._base(task, own[1] or own[2]).rstrip("/") + path[own.end() :]

    def _kind(self, call: Call, flags: int) -> Kind:
        if not call.opens:
            return call.kind
        if flags & O_PATH:
            return "stat"
        if flags & O_CREAT:
            if flags & KEEPS_NOTHING:
                return "create"
            return "append" if flags & os.O_ACCMODE == os.O_WRONLY else "update"
        return "list" if flags & self._machine.o_directory else "read"

    def _cuts(self, task: int, descriptor: int, size: int) -> bool:
        """Whether a file is cut to nothing by a descriptor that it could not be read by."""
        try:
            with open(f"/proc/{task}/fdinfo/{_signed(descriptor)}") as file:
                found = FLAGS.search(file.read())
        except OSError:
            return False
        return size == 0 and found is not None and int(found[1], 8) & os.O_ACCMODE == os.O_WRONLY

    def _keeps_link(self, call: Call, flags: int) -> bool:
        return bool(flags & (self._machine.o_nofollow if call.opens else AT_SYMLINK_NOFOLLOW))

    def _descriptor(self, task: int, number: int) -> str:
        return self._base(task, f"fd/{_signed(number)}")

    def _base(self, task: int, name: str) -> str:
        link = f"/proc/{task}/{name}"
        try:
            path = os.readlink(link)
            return path.removesuffix(DELETED) if path.endswith(DELETED) and not os.stat(link).st_nlink else path
        except OSError:
            os.stat(f"/proc/{task}")  # an OSError if it is the task that is not there
            return ""


def _is_path(text: str) -> bool:
    """Whether what the kernel says of a descriptor is a path, and no pipe or file in memory."""
    return text.startswith("/") and not text.startswith("/memfd:")


def _signed(word: int) -> int:
    word &= 0xFFFFFFFF
    return word - (1 << 32) if word >> 31 else word
