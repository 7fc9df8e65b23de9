"""What may stand at a path of a host beside the nodes that a workspace knows: devices, pipes, sockets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias, final

from .node import Node

__all__ = ["Seen", "SpecialNode"]


@final
@dataclass(frozen=True, slots=True)
class SpecialNode:
    """Something that is neither a file, nor a link, nor a directory; `kind` says what, in words. Equal to no node."""

    kind: str


Seen: TypeAlias = Node | SpecialNode | None
"""What was seen at a path; None is nothing."""
