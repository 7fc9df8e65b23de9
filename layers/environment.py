"""Reads what steps run in: the interpreter, the machine, the installed packages, and the programs of commands.

What is installed is looked at once in a process, when it is first asked for: it takes some tenths of a second. Code
that was loaded stays what it was, so what is installed later does not count in this process.
"""

from __future__ import annotations

import csv
import os
import platform
import re
import shutil
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import Distribution, distributions
from typing import Final, final

from ..core.canonical_json import canonical_material
from ..core.environment import Environment, Package, Platform, packages_digest
from ..core.node import digest_of
from ..core.outcome import Failure, Outcome, Success

__all__ = ["ToolUnreadable", "find_tool", "installed_packages", "read_environment", "read_packages", "tool_digest"]


@final
@dataclass(frozen=True, slots=True)
class ToolUnreadable:
    """The program of a command cannot be read, so that it is not known which one it is."""

    path: str
    reason: str


def read_environment(variables: Iterable[str] = (), extra: Mapping[str, str] | None = None) -> Environment:
    """The environment of this process. Of its variables those count that are named, as they are now."""
    return Environment(
        python=platform.python_version(),
        implementation=f"{sys.implementation.name} {sys.implementation.cache_tag}",
        platform=_platform(),
        packages=installed_packages(),
        variables={name: os.environ.get(name) for name in variables},
        extra=extra or {},
    )


@cache
def installed_packages() -> str:
    """The digest of what is installed where this process looks for packages, found once."""
    return packages_digest(read_packages())


@cache
def _platform() -> Platform:
    return Platform(sys.platform, platform.machine(), " ".join(filter(None, platform.libc_ver())))


# --- packages ---------------------------------------------------------------------


def read_packages(paths: Sequence[str] | None = None) -> tuple[Package, ...]:
    """The distributions in some folders, or where this process looks for packages; of one name, the one found first."""
    found = distributions() if paths is None else distributions(path=list(paths))
    packages: dict[str, Package] = {}
    for each in found:
        name, version = _told(each)
        if name and name not in packages:
            packages[name] = Package(name, version, _record(each.read_text("RECORD")))
    return tuple(packages[name] for name in sorted(packages))


def _told(distribution: Distribution) -> tuple[str, str]:
    """The normal name and the version; nothing of one whose metadata is damaged."""
    metadata = distribution.metadata
    if "Name" not in metadata or "Version" not in metadata:
        return "", ""
    return re.sub(r"[-_.]+", "-", metadata["Name"]).lower(), metadata["Version"]


def _record(text: str | None) -> str | None:
    """The digest of the files of a distribution, as its record tells their digests; None without one.

    What depends on where or how it was installed is left out: scripts, which name the interpreter's path, what is
    compiled, and what the installer writes of itself.
    """
    return None if text is None else digest_of(canonical_material(sorted(_files(text))))


def _files(record: str) -> Iterator[list[str]]:
    for row in csv.reader(record.splitlines()):
        if len(row) < 2 or not row[1]:
            continue
        path, digest = row[0].replace("\\", "/"), row[1]
        if not path.startswith(("../", "/")) and not _OF_INSTALLER.search(path):
            yield [path, digest]


_OF_INSTALLER: Final = re.compile(
    r"\.pyc$|^__editable__|\.pth$|\.dist-info/(?:INSTALLER|REQUESTED|RECORD|direct_url\.json|uv_[^/]*)$"
)


# --- programs ---------------------------------------------------------------------


def find_tool(program: str, search_path: str) -> str | None:
    """Where a program is, with all links followed; `search_path` is as in PATH, for a name without a slash."""
    found = shutil.which(program, path=search_path)
    return None if found is None else os.path.realpath(found)


def tool_digest(path: str, hasher: Callable[[int, os.stat_result], str]) -> Outcome[str, ToolUnreadable]:
    """The digest of a program's file. `hasher` gives that of an open file, as `DigestMemo.digest` does by its status.

    A script counts by its own text, and not by its interpreter; a program by its file, not by what it loads.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        return Failure(ToolUnreadable(path, os.strerror(error.errno or 0)))
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return Failure(ToolUnreadable(path, "it is no regular file"))
        return Success(hasher(descriptor, status))
    except OSError as error:
        return Failure(ToolUnreadable(path, os.strerror(error.errno or 0)))
    finally:
        os.close(descriptor)
