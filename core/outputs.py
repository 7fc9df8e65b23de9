"""The record of what an accepted step made: what stands at its declared targets afterwards, and how to write it anew.

    {"v": 1, "digest": "outputs1_…", "removed": ["old"], "entries": [
        ["d", "out/empty"], ["l", "out/link", "r"],
        ["f", "out/r", "<sha256>", false, 5, "YmV0YQo="],     small: its bytes are here, in base64
        ["f", "out/large", "<sha256>", true, 9000000, null]]}  large: an artifact

It says how things stand and not what changed: an output that was rewritten with the same bytes is in it too.
"""

from __future__ import annotations

import binascii
from base64 import b64decode, b64encode
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Annotated, Final, TypeAlias, final

import msgspec

from .node import DirNode, FileNode, LinkNode, Node, Tree, digest_of, is_digest
from .replay import BoundaryCorruption
from .tree import outputs_identity, path_order

__all__ = ["Output", "Outputs", "check_bytes", "needed", "outputs_digest", "outputs_json", "read_outputs"]

VERSION: Final = 1


@final
@dataclass(frozen=True, slots=True)
class Output:
    """One path, and what stands there. `data` are the bytes of a small file; those of another one are an artifact."""

    path: str
    node: Node
    data: bytes | None = field(default=None, compare=False, repr=False)


@final
@dataclass(frozen=True, slots=True)
class Outputs:
    """Everything that stands at the declared targets of a step, and what it has removed, by the bytes of the paths.

    Of directories those that are empty, and the top of a declared tree if nothing is in it. In a declared tree what is
    not among the entries is not there.
    """

    entries: tuple[Output, ...] = ()
    removed: tuple[str, ...] = ()

    def tree(self) -> Tree:
        """The entries by path."""
        return {entry.path: entry.node for entry in self.entries}


def outputs_digest(outputs: Outputs) -> str:
    """The identity of what a replay brings about: equal wherever the same paths end as the same nodes."""
    after: list[tuple[str, Node | None]] = [(entry.path, entry.node) for entry in outputs.entries]
    return outputs_identity([*after, *((path, None) for path in outputs.removed)])


def needed(outputs: Outputs) -> frozenset[str]:
    """The digests of what has to be in the artifact store."""
    return frozenset(
        entry.node.digest for entry in outputs.entries if isinstance(entry.node, FileNode) and entry.data is None
    )


_NOTHING: Final = Outputs()
_NO_OUTPUTS: Final = outputs_digest(_NOTHING)

# --- JSON ---------------------------------------------------------------------


class _File(msgspec.Struct, frozen=True, array_like=True, tag="f", forbid_unknown_fields=True):
    path: str
    digest: str
    executable: bool
    size: Annotated[int, msgspec.Meta(ge=0)]
    data: str | None


class _Link(msgspec.Struct, frozen=True, array_like=True, tag="l", forbid_unknown_fields=True):
    path: str
    target: str


class _Directory(msgspec.Struct, frozen=True, array_like=True, tag="d", forbid_unknown_fields=True):
    path: str


_Entry: TypeAlias = _File | _Link | _Directory


class _Form(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    v: int
    digest: str
    entries: tuple[_Entry, ...]
    removed: tuple[str, ...]


def outputs_json(outputs: Outputs) -> dict[str, object]:
    """The record as a JSON value: a part of the meta of a cache row."""
    form = _Form(VERSION, outputs_digest(outputs), tuple(map(_entry_form, outputs.entries)), outputs.removed)
    return msgspec.json.decode(msgspec.json.encode(form), type=dict[str, object])


def read_outputs(value: object) -> Outputs | BoundaryCorruption:
    """The record that `outputs_json` gave, or the first of its faults; nothing of a faulty record is to be used.

    Inline bytes hash to their digest, and the whole to that of the record. Whether its paths may be written is not
    asked here.
    """
    try:
        form = msgspec.convert(value, type=_Form)
    except (msgspec.ValidationError, RecursionError):
        return _no_record()
    if form.v != VERSION:
        return _no_record(str(form.v))
    if not form.entries and not form.removed:  # as of every step without files
        return _NOTHING if form.digest == _NO_OUTPUTS else BoundaryCorruption("", form.digest, _NO_OUTPUTS)
    entries: list[Output] = []
    for each in form.entries:
        read = _read_entry(each)
        if isinstance(read, BoundaryCorruption):
            return read
        entries.append(read)
    outputs = Outputs(tuple(entries), form.removed)
    if problem := _order_problem([entry.path for entry in entries]) or _order_problem(form.removed):
        return problem
    digest = outputs_digest(outputs)
    return outputs if digest == form.digest else BoundaryCorruption("", form.digest, digest)


def _entry_form(entry: Output) -> _Entry:
    match entry.node:
        case FileNode(digest, size, executable):
            data = None if entry.data is None else b64encode(entry.data).decode("ascii")
            return _File(entry.path, digest, executable, size, data)
        case LinkNode(target):
            return _Link(entry.path, target)
        case DirNode():
            return _Directory(entry.path)


def _read_entry(form: _Entry) -> Output | BoundaryCorruption:
    match form:
        case _Link(path, target):
            return Output(path, LinkNode(target)) if _is_unicode(path, target) else _no_record()
        case _Directory(path):
            return Output(path, DirNode()) if _is_unicode(path) else _no_record()
        case _File():
            return _read_file(form)


def _read_file(form: _File) -> Output | BoundaryCorruption:
    node = FileNode(form.digest, form.size, form.executable)
    if not is_digest(form.digest) or not _is_unicode(form.path):
        return BoundaryCorruption(form.path, form.digest, "invalid_record")
    if form.data is None:
        return Output(form.path, node)
    try:
        data = b64decode(form.data, validate=True)
    except (binascii.Error, ValueError):
        return BoundaryCorruption(form.path, form.digest, "invalid_base64")
    return check_bytes(form.path, node, data) or Output(form.path, node, data)


def check_bytes(path: str, node: FileNode, data: bytes) -> BoundaryCorruption | None:
    """What is wrong with bytes that are to be those of a recorded file."""
    measured = digest_of(data)
    if measured != node.digest:
        return BoundaryCorruption(path, node.digest, measured)
    return None if len(data) == node.size else BoundaryCorruption(path, node.digest, "invalid_size")


def _order_problem(paths: Iterable[str]) -> BoundaryCorruption | None:
    """Paths are sorted, and none is there twice."""
    before: bytes | None = None
    for path in paths:
        if not _is_unicode(path) or (before is not None and path_order(path) <= before):
            return BoundaryCorruption(path, "", "invalid_record")
        before = path_order(path)
    return None


def _no_record(recorded: str = "") -> BoundaryCorruption:
    return BoundaryCorruption("", recorded, "invalid_record")


def _is_unicode(*texts: str) -> bool:
    try:
        for text in texts:
            _ = text.encode()
    except UnicodeEncodeError:
        return False
    return True
