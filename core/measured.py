"""What a step's declared reads were measured to be: the files, what its globs matched, and what it would begin with.

A measurement names contents and never times or inodes, so two of them are equal where a step could not tell them apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

from .boundary import Declaration
from .node import Node, Tree
from .tree import path_order, tree_digest

__all__ = ["MeasuredReads", "base_digest", "measured_reads"]


@final
@dataclass(frozen=True, slots=True)
class MeasuredReads:
    """The declared reads, measured whole.

    `files` has each path that the step may read, those of its globs among them, in the order of their bytes; `None` is
    a declared file that is not there. `matches` has each declared pattern with the sorted paths that it matched, none
    if there were none. `base_digest` is that of `Evidence` for a step that is seeded with the same.
    """

    files: tuple[tuple[str, Node | None], ...] = ()
    matches: tuple[tuple[str, tuple[str, ...]], ...] = ()
    base_digest: str = tree_digest({})


def base_digest(seeded: Tree) -> str:
    """The digest of what a step begins with: its reads, and what it has to remove."""
    return tree_digest(seeded)


def measured_reads(declaration: Declaration, seeded: Tree, matches: Mapping[str, tuple[str, ...]]) -> MeasuredReads:
    """The measurement that a seed is: of `seeded` what the step reads, what of its declared files is absent.

    `seeded` is what stands at the declared reads and removals; `matches` what each declared pattern matched. A removal
    that is no read counts in `base_digest` only.
    """
    paths = {read.path for read in declaration.read_files}.union(*matches.values())
    return MeasuredReads(
        files=tuple((path, seeded.get(path)) for path in sorted(paths, key=path_order)),
        matches=tuple(
            (pattern, tuple(sorted(matches[pattern], key=path_order))) for pattern in sorted(matches, key=path_order)
        ),
        base_digest=base_digest(seeded),
    )
