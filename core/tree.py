"""What differs between two trees, and the identities of a difference.

An identity is the SHA-256 of canonical JSON: it depends on paths, contents, exec bits and link targets, on nothing of
the machine, and not on the order in which things were done. `diff_identity` says what came out, `bundle_identity` also
what was there before; neither stands for the other.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias, assert_never, final

from .node import DirNode, FileNode, LinkNode, Node, Tree, digest_of

__all__ = [
    "NodeChange",
    "NodeForm",
    "apply",
    "bundle_identity",
    "change_kind",
    "changes",
    "diff_identity",
    "node_form",
    "outputs_identity",
    "path_order",
    "tree_digest",
]

NodeForm: TypeAlias = list[str | bool]
"""A node as JSON: `["f", digest, executable]`, `["l", target]` or `["d"]`."""


@final
@dataclass(frozen=True, slots=True)
class NodeChange:
    """What stood at a path, and what stands there now; `None` is nothing."""

    path: str
    before: Node | None
    after: Node | None


def change_kind(change: NodeChange) -> Literal["create", "modify", "remove"]:
    """What a change is to whoever looks at its path."""
    if change.after is None:
        return "remove"
    return "create" if change.before is None else "modify"


def path_order(path: str) -> bytes:
    """The key by which paths are ordered wherever an order is seen: their bytes."""
    return path.encode()


def changes(base: Tree, current: Tree) -> tuple[NodeChange, ...]:
    """What turns `base` into `current`, in the order of paths. Equal nodes are no change."""
    differing = (path for path in base.keys() | current.keys() if base.get(path) != current.get(path))
    return tuple(NodeChange(path, base.get(path), current.get(path)) for path in sorted(differing, key=path_order))


def apply(base: Tree, made: Iterable[NodeChange]) -> dict[str, Node]:
    """`base` with the changes made: `apply(base, changes(base, current)) == current`."""
    tree = dict(base)
    for change in made:
        if change.after is None:
            del tree[change.path]
        else:
            tree[change.path] = change.after
    return tree


def diff_identity(made: Iterable[NodeChange]) -> str:
    """The identity of what came out: equal wherever the same paths end as the same nodes."""
    return "diff1_" + _identity([[it.path, _form(it.after)] for it in _ordered(made)])


def bundle_identity(made: Iterable[NodeChange]) -> str:
    """The identity of one copy-back: what came out, and what it replaces."""
    return "bundle1_" + _identity([[it.path, _form(it.before), _form(it.after)] for it in _ordered(made)])


def outputs_identity(after: Iterable[tuple[str, Node | None]]) -> str:
    """The identity of what stands at the targets of a step, whatever stood there before; `None` is nothing."""
    entries = [[path, _form(node)] for path, node in sorted(after, key=lambda it: path_order(it[0]))]
    return "outputs1_" + _digest({"kind": "workspace-outputs", "v": 1, "entries": entries})


def tree_digest(tree: Tree) -> str:
    """The digest of what stands where."""
    return _digest([[path, node_form(tree[path])] for path in sorted(tree, key=path_order)])


def node_form(node: Node) -> NodeForm:
    """A node as the JSON that identities and manifests are made of."""
    match node:
        case FileNode(digest, _, executable):
            return ["f", digest, executable]
        case LinkNode(target):
            return ["l", target]
        case DirNode():
            return ["d"]
        case _:
            assert_never(node)


def _form(node: Node | None) -> NodeForm | None:
    return None if node is None else node_form(node)


def _ordered(made: Iterable[NodeChange]) -> list[NodeChange]:
    return sorted(made, key=lambda change: path_order(change.path))


def _identity(entries: object) -> str:
    return _digest({"kind": "workspace-diff", "v": 1, "entries": entries})


def _digest(form: object) -> str:
    # With ASCII keys, no floats and valid Unicode this is RFC 8785, byte for byte.
    text = json.dumps(form, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return digest_of(text.encode())
