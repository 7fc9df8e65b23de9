"""Which records of outputs may be replayed, and what a replay has to change. Pure: it is decided before any write.

A record is held to the rules that a body is held to: its paths name what the boundary declares, its links stay within
the workspace, its names can stand beside each other, nothing is beyond a limit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import TypeAlias

from .boundary import Declaration
from .link_rules import link_problem, places
from .measured import MeasuredReads
from .node import DirNode, FileNode, LinkNode, Node, Tree, is_digest
from .outputs import Outputs, check_bytes
from .replay import BoundaryCorruption
from .step_sandbox import LimitExceeded, WorkspaceError
from .tree import NodeChange, changes, path_order
from .workspace_limits import WorkspaceLimits
from .workspace_path import (
    PathProblem,
    ancestors,
    collision,
    file_path,
    portable_problem,
    protected_problem,
    shown,
)

__all__ = ["RecordProblem", "find_problem", "replay_changes"]

RecordProblem: TypeAlias = WorkspaceError | LimitExceeded | BoundaryCorruption


def find_problem(
    outputs: Outputs, declaration: Declaration, reads: MeasuredReads, limits: WorkspaceLimits, portable: bool
) -> RecordProblem | None:
    """Why a record may not be replayed, if so; nothing of it is to be written then."""
    tree = outputs.tree()
    named = [entry.path for entry in outputs.entries] + list(outputs.removed)
    spelled = (_path_problem(path, limits, portable) for path in named)
    checks: tuple[Callable[[], RecordProblem | None], ...] = (
        lambda: next((problem for problem in spelled if problem is not None), None),
        lambda: _undeclared(outputs, declaration),
        lambda: _contradiction(outputs, tree, named),
        lambda: _damaged(outputs),
        lambda: _exceeded(tree, reads, limits),
        lambda: _lacking(outputs, tree, declaration),
        lambda: _odd_tree(tree, declaration, reads, portable),
    )
    found = (check() for check in checks)  # the later ones rest on the ones before
    return next((problem for problem in found if problem is not None), None)


def replay_changes(
    outputs: Outputs, declaration: Declaration, standing: Tree
) -> tuple[NodeChange, ...] | WorkspaceError:
    """What turns what stands at the targets into what was recorded; nothing where that is so already.

    `standing` has all that stands at the paths of the record and in the declared trees, and above them what is no
    directory. In a tree everything goes that was not recorded.
    """
    wanted = outputs.tree()
    filled = {above for path in wanted for above in ancestors(path)}
    named = wanted.keys() | set(outputs.removed)
    going = {path for path in standing if declaration.may_remove(path)} - wanted.keys()
    for path in sorted(wanted, key=path_order):
        for above in ancestors(path):
            if above not in going and isinstance(standing.get(above), FileNode | LinkNode):
                message = f"{shown(path)} cannot be written: {shown(above)} is a file on the host, and no directory"
                return WorkspaceError("not_a_directory", message)
    emptied = {above for path in going for above in ancestors(path)}
    base = {path: node for path, node in standing.items() if path in named or path in going}
    for path in [path for path in base if path in filled | emptied and base[path] == DirNode()]:
        del base[path]  # it holds something, now or then: it is not to be removed, or is to stay when it is emptied
    return changes(base, wanted)


# --- records that are refused -------------------------------------------------


def _path_problem(path: str, limits: WorkspaceLimits, portable: bool) -> WorkspaceError | LimitExceeded | None:
    checked = file_path(path, (), limits)
    if isinstance(checked, PathProblem):
        return checked.as_failure()
    if checked != path:
        return WorkspaceError("invalid_path", f"a recorded output is spelled {shown(path)} and not {shown(checked)}")
    problem = protected_problem(path) or (portable_problem(path) if portable else None)
    return None if problem is None else problem.as_failure()


def _undeclared(outputs: Outputs, declaration: Declaration) -> WorkspaceError | None:
    for entry in outputs.entries:
        if not declaration.writes(entry.path):
            message = f"the record has {shown(entry.path)}, which the step does not declare to write"
            return WorkspaceError("undeclared_write", message)
    for path in outputs.removed:
        if not declaration.removes(path):
            message = f"the record has {shown(path)} as removed, which the step does not declare to remove"
            return WorkspaceError("undeclared_write", message)
    return None


def _contradiction(outputs: Outputs, tree: Tree, named: list[str]) -> BoundaryCorruption | None:
    """A path that is there twice, or beneath what is no directory, or beneath one that is said to hold nothing."""
    if twice := next((path for path, count in Counter(named).items() if count > 1), None):
        return BoundaryCorruption(twice, "", "invalid_record")
    for path in tree:
        if above := next((above for above in ancestors(path) if above in tree), None):
            return BoundaryCorruption(above, "", "invalid_record")
    beneath = {above for path in tree for above in ancestors(path)}
    crossed = next((path for path in outputs.removed if path in beneath), None)
    return None if crossed is None else BoundaryCorruption(crossed, "", "invalid_record")


def _damaged(outputs: Outputs) -> BoundaryCorruption | None:
    for entry in outputs.entries:
        if not isinstance(entry.node, FileNode):
            continue
        if not is_digest(entry.node.digest) or entry.node.size < 0:
            return BoundaryCorruption(entry.path, entry.node.digest, "invalid_record")
        if entry.data is not None and (problem := check_bytes(entry.path, entry.node, entry.data)):
            return problem
    return None


def _exceeded(tree: Tree, reads: MeasuredReads, limits: WorkspaceLimits) -> LimitExceeded | None:
    """The limit that a body would have met which made this; what it only left as it was read does not count."""
    read = dict(reads.files)
    made = [node for path, node in tree.items() if read.get(path) != node]
    sizes = [node.size for node in tree.values() if isinstance(node, FileNode)]
    produced = sum(node.size for node in made if isinstance(node, FileNode))
    found = (
        ("file_bytes", max(sizes, default=0), limits.file_bytes),
        ("nodes", len(made), limits.nodes),
        ("produced_bytes", produced, limits.produced_bytes),
    )
    return next((LimitExceeded(what, actual, limit) for what, actual, limit in found if actual > limit), None)


def _lacking(outputs: Outputs, tree: Tree, declaration: Declaration) -> WorkspaceError | None:
    present = places(tree)
    if lost := next((path for path in declaration.outputs if path not in present), None):
        return WorkspaceError("missing_output", f"the record lacks {shown(lost)}, which the step declares to write")
    if lost := next((path for path in declaration.trees if path not in present), None):
        return WorkspaceError("missing_output", f"the record says nothing of the tree {shown(lost)}")
    if kept := next((path for path in declaration.removals if path not in outputs.removed), None):
        message = f"the record does not say that {shown(kept)} is gone, which the step declares to remove"
        return WorkspaceError("surviving_removal", message)
    return None


def _odd_tree(
    tree: Tree, declaration: Declaration, reads: MeasuredReads, portable: bool
) -> WorkspaceError | LimitExceeded | None:
    """Links that lead out, or names that are one elsewhere: among the outputs, and what the step read beside them."""
    whole = dict(_kept_reads(declaration, reads)) | dict(tree)
    links = [(path, node.target) for path, node in tree.items() if isinstance(node, LinkNode)]
    present = places(whole) if links else frozenset[str]()
    problems = (_link_problem(path, target, whole, declaration, present) for path, target in links)
    if problem := next(filter(None, problems), None):
        return problem
    clash = collision(whole) if portable else None
    return None if clash is None else clash.as_failure()


def _link_problem(
    path: str, target: str, whole: Tree, declaration: Declaration, present: frozenset[str]
) -> WorkspaceError | None:
    try:
        _ = target.encode()
    except UnicodeEncodeError:
        return WorkspaceError("invalid_path", f"the link {shown(path)} to {target!a} cannot be: it is no valid Unicode")
    return link_problem(path, target, whole, declaration, present)


def _kept_reads(declaration: Declaration, reads: MeasuredReads) -> Iterator[tuple[str, Node]]:
    """What the step read and left where it was, as far as it is no target."""
    for path, node in reads.files:
        if node is not None and not declaration.writes(path) and not declaration.may_remove(path):
            yield path, node
