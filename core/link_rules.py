"""Which symbolic links a step may leave behind: those that mean the same wherever the workspace is copied to.

A link is relative, climbs first and then names what it leads to, and that is in the workspace, with no other link on
the way. A link is never followed to judge it: it is text, and the tree says what stands where the text leads.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Final

from .boundary import Declaration
from .node import FileNode, LinkNode, Tree
from .step_sandbox import WorkspaceError
from .workspace_path import PathProblem, ancestors, operation_path, shown

__all__ = ["link_problem", "places"]

_TARGET_BYTES: Final = 4_095
"""The longest text of a link, in bytes of UTF-8: what file systems take."""


def link_problem(
    path: str, target: str, tree: Tree, declaration: Declaration, present: Container[str] | None = None
) -> WorkspaceError | None:
    """Why the link `target` may not stand at `path`; the message names both.

    `tree` is what the step leaves behind. `present` is `places(tree)`, for a caller that asks about many links. A link
    to nothing is allowed where the step declares to write there.
    """
    link = f"the link {shown(path)} to {shown(target)}"
    if target.startswith("/"):
        return WorkspaceError("path_escapes_workspace", f"{link} is absolute; make it relative to its directory")
    parts = [part for part in target.split("/") if part not in ("", ".")]
    climbs = next((at for at, part in enumerate(parts) if part != ".."), len(parts))
    above, named = path.split("/")[:-1], "/".join(parts[climbs:])
    problem = operation_path(named)
    if isinstance(problem, PathProblem):
        return WorkspaceError("invalid_path", f"{link} cannot be: {problem.message}")
    if not 1 <= len(target.encode()) <= _TARGET_BYTES:
        return WorkspaceError("invalid_path", f"{link} has a text that is not 1 to {_TARGET_BYTES} bytes long")
    if climbs > len(above):
        return WorkspaceError("path_escapes_workspace", f"{link} leads out of the workspace")
    end = "/".join((*above[: len(above) - climbs], named)).rstrip("/")
    reason = _unusable(end, tree, declaration, places(tree) if present is None else present)
    return None if reason is None else WorkspaceError("unsupported_file_type", f"{link} {reason}")


def _unusable(end: str, tree: Tree, declaration: Declaration, present: Container[str]) -> str | None:
    for place in (end, *ancestors(end)):
        match tree.get(place):
            case LinkNode():
                return f"leads through the link {shown(place)}; let it lead to where that one does"
            case FileNode() if place != end:
                return f"leads through {shown(place)}, which is a file"
            case _:
                pass
    if end not in present and not declaration.writes(end):
        return "leads to nothing that the step reads or writes; declare what it leads to"
    return None


def places(tree: Tree) -> frozenset[str]:
    """Every path of a tree, and those of the directories above: all that a link can lead to, with "" for the top."""
    return frozenset({"", *tree, *(directory for path in tree for directory in ancestors(path))})
