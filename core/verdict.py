"""Whether a body kept to what its step declared. Judged on trees alone, before a byte of the host changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias, final

from .boundary import Declaration
from .command import CommandFailure
from .link_rules import link_problem, places
from .model import RecordedError
from .node import DirNode, FileNode, LinkNode, Node, Tree
from .step_sandbox import (
    Deviation,
    MissingOutput,
    SurvivingRemoval,
    UndeclaredRead,
    UndeclaredWrite,
    Violations,
    WorkspaceError,
)
from .tree import NodeChange, changes, diff_identity, path_order
from .workspace_path import ancestors, collision, portable_problem, protected_problem, shown

__all__ = ["Finding", "Found", "Judged", "judge", "made_by"]

Finding: TypeAlias = UndeclaredRead | UndeclaredWrite | MissingOutput | SurvivingRemoval | WorkspaceError


@final
@dataclass(frozen=True, slots=True)
class Found:
    """What a body left behind, and what it looked at without leave.

    `baseline` has the nodes that the host has where the step may write, and the files and links that stand above.
    `failed` is what the body itself failed with, and `command` says more of that if it was a command.
    """

    seeded: Tree
    baseline: Tree
    current: Tree
    undeclared_reads: frozenset[str] = frozenset()
    failed: RecordedError | None = None
    command: CommandFailure | None = None


@final
@dataclass(frozen=True, slots=True)
class Judged:
    """A body that may be accepted: what it changed, and how it departed from its declaration, if it may.

    `outputs` is what stands at the declared targets afterwards, also where that is no change.
    """

    changes: tuple[NodeChange, ...]
    diff_identity: str
    deviation: Deviation | None
    outputs: Tree = field(default_factory=dict[str, Node])


def made_by(found: Found, declaration: Declaration) -> tuple[NodeChange, ...]:
    """What a body changed. A target that was not seeded is compared with what the host has there."""
    return _made_by(found, _settled(found.current, found.seeded, declaration))


def _made_by(found: Found, current: Tree) -> tuple[NodeChange, ...]:
    base = dict(found.seeded)
    base.update((path, node) for path, node in found.baseline.items() if path in current and path not in base)
    return changes(base, current)


def judge(found: Found, declaration: Declaration, portable: bool) -> Judged | Finding:
    """The changes, or the first of these that holds: undeclared reads, a tree that cannot be written, undeclared
    writes, missing outputs, surviving removals. All paths of the kind are named.

    Undeclared reads come first even if the body failed: what it failed of may be that they were not there. In mode
    "expected" the reads, writes, outputs and removals are a deviation instead. A body that failed for reasons of its
    own is not asked about the rest.
    """
    hard = declaration.mode == "hard"
    current = _settled(found.current, found.seeded, declaration)
    made = _made_by(found, current)
    identity = diff_identity(made)
    reads = _sorted(found.undeclared_reads)
    if reads and hard:
        return UndeclaredRead(reads, identity, cause=found.failed, command=found.command)
    if found.failed is None and (problem := _unwritable(found, made, declaration, portable)) is not None:
        return problem
    outputs = {path: node for path, node in current.items() if declaration.writes(path)}
    writes = _sorted(change.path for change in made if not _declared(change, declaration))
    present = found.current.keys() | {directory for path in found.current for directory in ancestors(path)}
    missing = _sorted(path for path in declaration.outputs if path not in present)
    surviving = _sorted(path for path in declaration.removals if path in present)
    if not hard or found.failed is not None:
        deviated = bool(reads or writes or missing or surviving)
        deviation = Deviation(Violations(reads, writes), missing, surviving) if deviated else None
        return Judged(made, identity, deviation, outputs)
    if writes:
        return UndeclaredWrite(writes, identity)
    if missing:
        return MissingOutput(missing, identity)
    if surviving:
        return SurvivingRemoval(surviving, identity)
    return Judged(made, identity, None, outputs)


def _settled(current: Tree, seeded: Tree, declaration: Declaration) -> Mapping[str, Node]:
    """`current` with only those directories that count: empty ones that the body made, and the tops of trees."""
    held = {directory for path in seeded for directory in ancestors(path)}
    outputs = {directory for path in declaration.outputs for directory in ancestors(path)}
    kept = {
        path: node
        for path, node in current.items()
        if not isinstance(node, DirNode)
        or path in seeded
        or (path not in outputs and (path not in held or declaration.tree_of(path) is not None))
    }
    filled = {directory for path in kept for directory in ancestors(path)}
    for top in declaration.trees:
        if top and top not in filled and top not in kept:
            kept[top] = DirNode()
    return kept


def _declared(change: NodeChange, declaration: Declaration) -> bool:
    if change.after is None:
        return declaration.may_remove(change.path)
    return declaration.writes(change.path)


def _unwritable(
    found: Found, made: tuple[NodeChange, ...], declaration: Declaration, portable: bool
) -> WorkspaceError | None:
    """Why a tree with these changes cannot be on this host, or not on every one, if so: what belongs to git, what lies
    beneath a file, a link that leads out, two names that are one."""
    written = [change for change in made if change.after is not None]
    protected = filter(None, (protected_problem(change.path) for change in made))
    if problem := next(protected, None):
        return WorkspaceError(problem.code, problem.message)
    beneath = filter(None, (_beneath(change.path, found) for change in written))
    if refused := next(beneath, None):
        return refused
    links = [(change.path, change.after.target) for change in written if isinstance(change.after, LinkNode)]
    present = places(found.current) if links else ()
    for path, target in links:
        if refused := link_problem(path, target, found.current, declaration, present):
            return refused
    if not portable:
        return None
    odd = filter(None, (portable_problem(change.path) for change in written))
    clash = next(odd, None) or collision(found.current)
    return None if clash is None else WorkspaceError(clash.code, clash.message)


def _beneath(path: str, found: Found) -> WorkspaceError | None:
    """The refusal of what was written beneath a file of the host that the body neither saw nor removed."""
    for above in ancestors(path):
        if above not in found.seeded and isinstance(found.baseline.get(above), FileNode | LinkNode):
            message = f"{shown(path)} cannot be written: {shown(above)} is a file on the host, and no directory"
            return WorkspaceError("not_a_directory", message)
    return None


def _sorted(paths: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(paths, key=path_order))
