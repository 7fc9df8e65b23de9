"""Which files are reviewed, and the ids of their runs."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from .steps import Job

LARGEST = 200_000
"""The size in bytes up to which a file is reviewed."""

SKIPPED_FOLDERS = frozenset({"__pycache__", "node_modules", "venv", "env", "build", "dist", "demo-out"})
"""Folders that hold what was installed or made. Hidden folders, .git and .venv among them, are skipped too."""

LOCK_FILES = frozenset({"package-lock.json", "pnpm-lock.yaml", "go.sum"})
"""Lock files that no suffix tells; `*.lock` are skipped too."""


@dataclass(frozen=True, slots=True)
class Ordered:
    """A job, and the id of its run: the same for the same content at the same place, another for any other."""

    run_id: str
    job: Job


def select(root: Path, out: Path, limit: int) -> list[Ordered]:
    """The first `limit` text files below `root`: Markdown before all others, both in the order of their paths."""
    paths = sorted(_candidates(root, out), key=lambda path: (not path.endswith(".md"), path))
    texts = ((path, content) for path in paths if (content := _text(root / path)) is not None)
    board = root.name or "root"
    return [_order(root, path, content, board, out) for path, content in islice(texts, limit)]


def _candidates(root: Path, out: Path) -> Iterator[str]:
    for folder, folders, names in os.walk(root):
        here = Path(folder)
        folders[:] = [name for name in folders if not _is_skipped(name) and here / name != out]
        for name in names:
            path = (here / name).relative_to(root).as_posix()
            if path.isprintable() and not (name in LOCK_FILES or name.endswith(".lock") or name.startswith(".")):
                yield path


def _is_skipped(folder: str) -> bool:
    return folder.startswith(".") or folder in SKIPPED_FOLDERS


def _text(path: Path) -> bytes | None:
    """The content of a text file of at most `LARGEST` bytes; None for whatever else the path may be."""
    try:
        if path.is_symlink() or not path.is_file() or path.stat().st_size > LARGEST:
            return None
        content = path.read_bytes()
        content.decode()
    except (OSError, UnicodeDecodeError):
        return None
    return None if b"\0" in content or not content.strip() else content


def _order(root: Path, path: str, content: bytes, board: str, out: Path) -> Ordered:
    digest = hashlib.sha256(content).hexdigest()
    identity = hashlib.sha256("\0".join((str(root), path, digest)).encode()).hexdigest()
    job = Job(root=str(root), path=path, digest=digest, board=board, out=str(out))
    return Ordered(f"{path[-100:]}@{identity[:12]}", job)
