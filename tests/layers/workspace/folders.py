"""Folders as values for the tests of the file host: written, read back and told apart without the code under test."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from stepwell.core.boundary import Boundary, Declaration, declare
from stepwell.core.node import DirNode, FileNode, LinkNode, Node
from stepwell.core.outcome import Failure, Outcome, Success
from stepwell.core.step_sandbox import LimitExceeded, MaterializationConflict, WorkspaceError
from stepwell.core.tree import NodeChange, changes
from stepwell.core.workspace_limits import LIMITS, WorkspaceLimits
from stepwell.layers.workspace.file_host import FileHost, HostOptions
from stepwell.layers.workspace.host import CopiedBack, Seed, Writer

STATE = ".stepwell"

MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
"""A folder in memory, where the machine has one that may be written; otherwise where temporary files go."""


@dataclass(frozen=True)
class Text:
    """A file of a test's folder."""

    text: str
    executable: bool = False


Thing: TypeAlias = Text | LinkNode | DirNode
Folder: TypeAlias = Mapping[str, Thing]
"""Files, links and empty directories by path; what is above them goes without saying."""

BASE: Folder = {
    "in.txt": Text("alpha\n"),
    "secret": Text("s3cr3t\n"),
    "old": Text("old\n"),
    "run.sh": Text("#!/bin/sh\n", executable=True),
    "src/a.py": Text("A=1\n"),
    "src/.hid.py": Text("H=1\n"),
    "src/d/b.py": Text("B=1\n"),
}


def write_folder(root: Path, folder: Folder) -> None:
    root.mkdir(parents=True, exist_ok=True)
    for path, thing in folder.items():
        place = root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        match thing:
            case Text(text, executable):
                _ = place.write_text(text)
                place.chmod(0o755 if executable else 0o644)
            case LinkNode(target):
                place.symlink_to(target)
            case DirNode():
                place.mkdir()


def read_folder(root: Path) -> dict[str, Thing]:
    """What is in a folder, without what stepwell keeps there."""
    found: dict[str, Thing] = {}
    for where, directories, names in os.walk(root):
        if Path(where) == root:
            directories[:] = [name for name in directories if name not in (STATE, "lost+found")]
        for name in [*names, *(name for name in directories if (Path(where) / name).is_symlink())]:
            place = Path(where) / name
            path = str(place.relative_to(root))
            if place.is_symlink():
                found[path] = LinkNode(os.readlink(place))
            else:
                found[path] = Text(place.read_text(), executable=bool(place.stat().st_mode & stat.S_IXUSR))
        if not directories and not names and Path(where) != root:
            found[str(Path(where).relative_to(root))] = DirNode()
    return found


def node_of(thing: Thing) -> Node:
    match thing:
        case Text(text, executable):
            data = text.encode()
            return FileNode(hashlib.sha256(data).hexdigest(), len(data), executable)
        case _:
            return thing


def tree_of(folder: Folder) -> dict[str, Node]:
    return {path: node_of(thing) for path, thing in folder.items()}


def changes_of(before: Folder, after: Folder) -> tuple[NodeChange, ...]:
    return changes(tree_of(before), tree_of(after))


Stage: TypeAlias = Callable[[str], Writer]
Copied: TypeAlias = Outcome[CopiedBack, MaterializationConflict | WorkspaceError]


def copy_back(host: FileHost, before: Folder, after: Folder, *, trees: tuple[str, ...] = ()) -> Copied:
    """Make `after` of a folder that is expected to be `before`."""
    made = changes_of(before, after)
    started = host.copy_back(made, trees=trees)
    stage_all(started.stage, made, after)
    return started.commit()


def stage_all(stage: Stage, made: tuple[NodeChange, ...], after: Folder) -> None:
    for change in made:
        thing = after.get(change.path)
        if isinstance(thing, Text):
            writer = stage(change.path)
            writer.write(thing.text.encode())
            writer.close()


@contextmanager
def opened(root: Path, options: HostOptions | None = None) -> Generator[FileHost]:
    host = FileHost.open(root, options or HostOptions(durability="process")).unwrap()
    try:
        yield host
    finally:
        host.close()


def refused(root: Path, options: HostOptions | None = None) -> WorkspaceError:
    """The refusal of a folder that cannot be opened."""
    match FileHost.open(root, options):
        case Failure(error):
            return error
        case Success(host):
            host.close()
            raise AssertionError("it was opened")


def declared(boundary: Boundary, *, portable: bool = True) -> Declaration:
    declaration = declare(boundary, portable)
    assert isinstance(declaration, Declaration), declaration
    return declaration


def seed_of(
    host: FileHost, boundary: Boundary, limits: WorkspaceLimits = LIMITS, *, portable: bool = True
) -> Outcome[Seed, LimitExceeded | WorkspaceError]:
    return host.seed(declared(boundary, portable=portable), limits)


def read_seed(seed: Seed) -> dict[str, str]:
    """The texts of the copies; the seed is closed."""
    texts: dict[str, str] = {}
    for path, node in seed.tree.items():
        if isinstance(node, FileNode):
            with seed.contents.open(path) as file:
                texts[path] = file.read().decode()
    seed.contents.close()
    return texts


def unfinished(root: Path) -> list[str]:
    """The copy-backs that left something behind."""
    return sorted(os.listdir(root / ".stepwell/sandbox/tx"))


def open_descriptors() -> list[str]:
    return sorted(os.listdir("/proc/self/fd"))
