"""What a step still owes that was executed and recorded: its files to the host, and its effects to whoever sends them.

    {"v": 1, "result": ..., "outputs": {...}, "effects": [...], "reads": "<digest>", "in_place": ["path"]}

It is the value of the step's row while that is settling, written in the commit that recorded the result. Whoever finds
such a row settles it: brings the outputs to the host, where they may be already, sends the effects, and records the
step as done. It is not executed again, unless its reads are others by then.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from hashlib import sha256
from typing import Final, Literal, TypeAlias, final

import msgspec

from .boundary import Boundary, declare
from .cached_row import Kept, effects_form, kept_form, read_effects, read_kept
from .effect import Effect
from .measured import MeasuredReads
from .node import Node
from .outputs import Outputs
from .replay import BoundaryCorruption
from .tree import node_form
from .workspace_path import PathProblem

__all__ = ["Owed", "Standing", "decide_owed", "in_place", "owed_json", "read_owed", "reads_digest"]

_VERSION: Final = 1


@final
@dataclass(frozen=True, slots=True)
class Owed:
    """`result` is JSON, `reads` the digest of what was read, `in_place` the changed targets that are reads too."""

    result: bytes
    kept: Kept
    effects: tuple[Effect, ...]
    reads: str
    in_place: tuple[str, ...] = ()


class _Form(msgspec.Struct, frozen=True):
    v: int
    result: msgspec.Raw
    outputs: dict[str, object]
    effects: tuple[tuple[str, str], ...]
    reads: str
    in_place: tuple[str, ...]


_read: Final = msgspec.json.Decoder(_Form).decode


def owed_json(owed: Owed) -> bytes:
    """As the value of a step's row."""
    return msgspec.json.encode(
        _Form(
            v=_VERSION,
            result=msgspec.Raw(owed.result),
            outputs=kept_form(owed.kept),
            effects=effects_form(owed.effects),
            reads=owed.reads,
            in_place=owed.in_place,
        )
    )


def read_owed(value: bytes) -> Owed | None:
    """What `owed_json` wrote; None if it cannot be read, so that the step has to be executed again."""
    try:
        form = _read(value)
        kept, effects = read_kept(form.outputs), read_effects(form.effects)
    except (msgspec.DecodeError, ValueError, TypeError, RecursionError):
        return None
    if form.v != _VERSION or isinstance(kept, BoundaryCorruption):
        return None
    return Owed(bytes(form.result), kept, effects, form.reads, form.in_place)


# --- where it stands ------------------------------------------------------------

Standing: TypeAlias = Literal["bring", "there", "changed"]
"""Nothing has changed since: bring the outputs. They came, and changed what was read. The reads are others now."""


def decide_owed(owed: Owed, outputs: Outputs, now: MeasuredReads) -> Standing:
    """Whether the outputs of a step that was interrupted may still be brought to the host, by what its reads are now.

    A step that writes what it reads has other reads once its outputs are there: where one of these targets stands as
    the step left it, they came, since they come all together.
    """
    files, after = dict(now.files), outputs.tree()
    if any(files.get(path) == after.get(path) for path in owed.in_place):
        return "there"
    return "bring" if reads_digest(now) == owed.reads else "changed"


def in_place(boundary: Boundary, outputs: Outputs, reads: MeasuredReads) -> tuple[str, ...]:
    """The targets that the step may read and that it has changed."""
    declared = declare(boundary, portable=False)
    if isinstance(declared, PathProblem):
        return ()
    before, after = dict(reads.files), outputs.tree()
    targets = (*after, *outputs.removed)
    return tuple(path for path in targets if declared.reads(path) and before.get(path) != after.get(path))


def reads_digest(reads: MeasuredReads) -> str:
    """The digest of a whole measurement of the declared reads."""
    form = [[[path, _form(node)] for path, node in reads.files], [[glob, list(found)] for glob, found in reads.matches]]
    return sha256(json.dumps(form, ensure_ascii=False).encode()).hexdigest()


def _form(node: Node | None) -> object:
    return None if node is None else node_form(node)
