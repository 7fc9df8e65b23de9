"""What a workspace may begin with, whichever host it comes from."""

from __future__ import annotations

from typing import Final

from .boundary import Declaration
from .link_rules import link_problem, places
from .node import LinkNode, Tree
from .step_sandbox import LimitExceeded, WorkspaceError
from .workspace_limits import WorkspaceLimits
from .workspace_path import PathProblem, collision, file_path, portable_problem, spelling_problem

__all__ = ["found_problem", "seed_problem"]

_ESCAPES: Final = ("path_escapes_workspace", "invalid_path")


def found_problem(path: str, limits: WorkspaceLimits, portable: bool) -> WorkspaceError | LimitExceeded | None:
    """Why a file that a pattern has found on the host cannot be in a workspace."""
    problem = file_path(path, limits=limits)
    if isinstance(problem, PathProblem):
        return problem.as_failure()
    if not portable:
        return None
    if reason := spelling_problem(path):
        return WorkspaceError("invalid_path", f"a file of the host cannot be read: {reason}")
    odd = portable_problem(path)
    return None if odd is None else odd.as_failure()


def seed_problem(tree: Tree, declaration: Declaration, portable: bool) -> WorkspaceError | LimitExceeded | None:
    """Why these seeds cannot be together: names that are one elsewhere, or a link that leads out of the workspace.

    A link to what is not declared is a seed: it leads to nothing there.
    """
    if portable and (clash := collision(tree)):
        return clash.as_failure()
    links = {path: node.target for path, node in tree.items() if isinstance(node, LinkNode)}
    present = places(tree) if links else frozenset[str]()
    problems = (link_problem(path, target, tree, declaration, present) for path, target in links.items())
    return next((problem for problem in problems if problem is not None and problem.code in _ESCAPES), None)
