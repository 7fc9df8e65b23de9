"""What to do about one operation of a copy-back, given what stands at its target and in its slot.

The rules hold wherever the process that began it ended: an operation that was applied is left, one that was not is
applied, and what somebody else wrote is never overwritten, neither on the way forward nor on the way back.
"""

from __future__ import annotations

from typing import Literal, TypeAlias, assert_never

from .copy_back import Op
from .node import DirNode
from .special_node import Seen

__all__ = ["Forward", "Undo", "decide_forward", "decide_undo", "holds_other", "is_foreign"]

Forward: TypeAlias = Literal["skip", "act", "conflict"]
"""Leave it, since it is done; do it; or stop, since somebody else was there."""

Undo: TypeAlias = Literal["keep", "restore", "foreign"]
"""Nothing to take back; take it back; or leave what somebody else put there."""


def decide_forward(op: Op, target: Seen, slot: Seen) -> Forward:
    """Whether the operation is to be applied."""
    match op.kind:
        case "remove":
            if target == op.before:
                return "act"
            return "skip" if target in (None, op.after) and slot in (None, op.before) else "conflict"
        case "replace":
            if target == op.before:
                return "act" if slot == op.after else "conflict"
            return "skip" if target == op.after and slot in (None, op.before, op.after) else "conflict"
        case "create":
            if target is None:
                return "act" if slot == op.after else "conflict"
            return "skip" if target == op.after else "conflict"
        case "mkdir":
            if target is None:
                return "act"
            return "skip" if isinstance(target, DirNode) else "conflict"
        case "rmdir":
            if isinstance(target, DirNode):
                return "act"
            return "skip" if target in (None, op.after) else "conflict"
        case "prune":
            return "act" if isinstance(target, DirNode) else "skip"
        case _:
            assert_never(op.kind)


def decide_undo(op: Op, target: Seen, slot: Seen) -> Undo:
    """Whether the operation is to be taken back. The plan is walked backwards, so what came later is back already."""
    match op.kind:
        case "remove":
            if target == op.before:
                return "keep"
            return "restore" if target is None and slot is not None else "foreign"
        case "replace":
            if target == op.before:
                return "keep"
            return "restore" if target == op.after and slot not in (None, op.after) else "foreign"
        case "create":
            if target is None or target == op.before:
                return "keep"
            return "restore" if target == op.after and slot is None else "foreign"
        case "mkdir":
            if target is None or target == op.before:
                return "keep"
            return "restore" if isinstance(target, DirNode) else "foreign"
        case "rmdir" | "prune":
            if isinstance(target, DirNode):
                return "keep"
            return "restore" if target is None else "foreign"
        case _:
            assert_never(op.kind)


def holds_other(op: Op, slot: Seen) -> bool:
    """Whether the slot has what stood at the target, or what somebody made of it since, rather than the new node."""
    return slot is not None and slot != op.after


def is_foreign(op: Op, slot: Seen) -> bool:
    """Whether the slot has neither the old nor the new node: somebody wrote to it, or put it there."""
    return slot not in (None, op.before, op.after)
