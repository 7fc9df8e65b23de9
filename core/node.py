"""What stands at a path of a workspace: a file, a link or a directory, by content and never by time or inode."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias, final

__all__ = ["DirNode", "FileNode", "LinkNode", "Node", "Tree", "digest_of", "is_digest"]

_DIGEST: Final = re.compile(r"[0-9a-f]{64}")


def digest_of(data: bytes | bytearray | memoryview) -> str:
    """The SHA-256 of some bytes as 64 lower-case hex digits: how contents are named everywhere."""
    return hashlib.sha256(data).hexdigest()


def is_digest(text: str) -> bool:
    """Whether `text` has the form of a digest."""
    return _DIGEST.fullmatch(text) is not None


@final
@dataclass(frozen=True, slots=True)
class FileNode:
    """A regular file: the digest of its bytes, how many these are, and whether its owner may execute it.

    Two files are the same if their bytes and that bit are; the size only says what the digest already does.
    """

    digest: str
    size: int = field(compare=False)
    executable: bool = False


@final
@dataclass(frozen=True, slots=True)
class LinkNode:
    """A symbolic link, as the text that it holds. It is not what it leads to."""

    target: str


@final
@dataclass(frozen=True, slots=True)
class DirNode:
    """A directory that counts of itself: an empty one, or the top of a declared tree."""


Node: TypeAlias = FileNode | LinkNode | DirNode

Tree: TypeAlias = Mapping[str, Node]
"""What stands where, by normalised path; the directories above a node go without saying."""
