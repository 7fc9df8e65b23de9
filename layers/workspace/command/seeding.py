"""Filling a workspace with the copies that a command is given, through a descriptor of its directory."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final

from ....core.boundary import Declaration
from ....core.node import DirNode, FileNode, LinkNode
from ....core.tree import path_order
from ....core.workspace_path import ancestors
from ..host import Contents, Seed
from .policy import EPOCH

__all__ = ["Stopped", "fill", "folders"]

PIECE: Final = 1 << 20
TIMES: Final = (EPOCH * 1_000_000_000, EPOCH * 1_000_000_000)


class Stopped(Exception):
    """Nobody wants the workspace any more."""


def folders(seed: Seed, declaration: Declaration) -> frozenset[str]:
    """The directories that a command finds: those of its files, of its outputs, and of its declared trees."""
    tops = {*declaration.trees, *(glob.base for glob in declaration.write_globs)}
    found = set(tops)
    for path in (*seed.tree, *declaration.outputs, *declaration.removals, *tops):
        found.update(ancestors(path))
    found.update(path for path, node in seed.tree.items() if isinstance(node, DirNode))
    return frozenset(found - {""})


def fill(directory: int, seed: Seed, declaration: Declaration, is_wanted: Callable[[], bool]) -> None:
    """Make all files, links and directories of a seed; files can be written where the declaration says so."""
    made = sorted(folders(seed, declaration), key=path_order)
    for path in made:
        os.mkdir(path, dir_fd=directory)
        os.chmod(path, 0o755, dir_fd=directory)  # whatever our own umask is
    for path, node in seed.tree.items():
        if not is_wanted():
            raise Stopped
        if isinstance(node, LinkNode):
            os.symlink(node.target, path, dir_fd=directory)
            os.utime(path, ns=TIMES, dir_fd=directory, follow_symlinks=False)
        elif isinstance(node, FileNode):
            mode = (0o644 if declaration.writes(path) else 0o444) | (0o111 if node.executable else 0)
            _copy(directory, path, mode, seed.contents)
    for path in reversed(made):
        os.utime(path, ns=TIMES, dir_fd=directory)
    os.utime(directory, ns=TIMES)


def _copy(directory: int, path: str, mode: int, contents: Contents) -> None:
    made = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode, dir_fd=directory)
    try:
        with contents.open(path) as source:
            for piece in iter(lambda: source.read(PIECE), b""):
                _write_whole(made, piece)
        os.fchmod(made, mode)
        os.utime(made, ns=TIMES)
    finally:
        os.close(made)


def _write_whole(to: int, data: bytes) -> None:
    while data:
        data = data[os.write(to, data) :]
