"""The manifest of a copy-back, the marker that it is under, and what recovery does with what it finds.

A manifest is a line with the SHA-256 of the rest, and the rest is JSON. What does not match its line, has another
version or belongs to another folder is never acted on. The name of the file is the marker, and each is the one before
it renamed: `manifest.tmp` says what is intended, `manifest` that it is decided, `undo` that it is taken back from now
on, `done` that nothing is left but to clean up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, final

import msgspec

from .copy_back import Op, OpKind
from .node import DirNode, FileNode, LinkNode, Node, digest_of, is_digest
from .tree import NodeForm, node_form

__all__ = [
    "Manifest",
    "ManifestProblem",
    "Marker",
    "Place",
    "Recovery",
    "check_manifest",
    "decide_recovery",
    "decode_manifest",
    "encode_manifest",
    "find_marker",
]

VERSION: Final = 1


@final
@dataclass(frozen=True, slots=True)
class Place:
    """Which folder it is: the device and the inode of its root, and the boot in which the device had that number."""

    device: int
    inode: int
    boot: str


@final
@dataclass(frozen=True, slots=True)
class Manifest:
    """All that ends a copy-back, whoever ends it. `made` are the directories made for it, the upper ones first."""

    transaction: str
    bundle_identity: str
    place: Place
    owner: int
    made: tuple[str, ...]
    ops: tuple[Op, ...]


@final
@dataclass(frozen=True, slots=True)
class ManifestProblem:
    """Why a manifest is not acted on."""

    reason: str


class Marker(Enum):
    """How far a copy-back has come, by the name of its manifest; the strongest first."""

    DONE = "done"
    UNDO = "undo"
    DECIDED = "manifest"
    INTENT = "manifest.tmp"


class Recovery(Enum):
    """What ends a copy-back that was left as it is."""

    CLEAN_UP = "clean up"
    UNDO = "undo"
    ROLL_FORWARD = "roll forward"
    DECIDE = "decide, and roll forward"
    DISCARD = "discard"


_DECISIONS: Final[Mapping[tuple[Marker | None, bool | None], Recovery]] = {
    (Marker.DONE, None): Recovery.CLEAN_UP,
    (Marker.UNDO, None): Recovery.UNDO,
    (Marker.DECIDED, None): Recovery.ROLL_FORWARD,
    (Marker.DECIDED, True): Recovery.ROLL_FORWARD,
    (Marker.DECIDED, False): Recovery.UNDO,
    (Marker.INTENT, None): Recovery.DISCARD,
    (Marker.INTENT, True): Recovery.DECIDE,
    (Marker.INTENT, False): Recovery.DISCARD,
    (None, None): Recovery.DISCARD,
}


def find_marker(names: frozenset[str]) -> Marker | None:
    """The strongest marker among the names of a transaction's files."""
    return next((marker for marker in Marker if marker.value in names), None)


def decide_recovery(marker: Marker | None, decided: bool | None = None) -> Recovery:
    """How to end a copy-back. `decided` is what the journal says, None without one: where it says, it is right.

    From `done` and `undo` on the journal has nothing to say: what was decided is settled, or can only be taken back.
    """
    settled = marker in (None, Marker.DONE, Marker.UNDO)
    return _DECISIONS[marker, None if settled else decided]


# --- the file ---------------------------------------------------------------


class _OpForm(msgspec.Struct, frozen=True, array_like=True):
    kind: OpKind
    path: str
    slot: int
    before: NodeForm | None
    after: NodeForm | None
    mode: int


class _Form(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    v: int
    transaction: str
    bundle: str
    device: int
    inode: int
    boot: str
    owner: int
    made: tuple[str, ...]
    ops: tuple[_OpForm, ...]


def encode_manifest(manifest: Manifest) -> bytes:
    """The bytes of the file."""
    it, place = manifest, manifest.place
    ops = tuple(_OpForm(op.kind, op.path, op.slot, _form(op.before), _form(op.after), op.mode) for op in it.ops)
    form = _Form(
        VERSION, it.transaction, it.bundle_identity, place.device, place.inode, place.boot, it.owner, it.made, ops
    )
    body = msgspec.json.encode(form)
    return digest_of(body).encode() + b"\n" + body


def decode_manifest(raw: bytes) -> Manifest | ManifestProblem:
    """The manifest in a file. Sizes of files are not kept; they count in no comparison."""
    line, _, body = raw.partition(b"\n")
    if digest_of(body).encode() != line:
        return ManifestProblem("it is damaged: its bytes do not match the digest in its first line")
    try:
        form = msgspec.json.decode(body, type=_Form)
        if form.v != VERSION:
            return ManifestProblem(f"it has version {form.v}, and only {VERSION} is understood")
        ops = tuple(Op(op.kind, op.path, op.slot, _node(op.before), _node(op.after), op.mode) for op in form.ops)
    except (msgspec.MsgspecError, UnicodeDecodeError, ValueError) as error:
        return ManifestProblem(f"it is not understood: {error}")
    place = Place(form.device, form.inode, form.boot)
    return Manifest(form.transaction, form.bundle, place, form.owner, form.made, ops)


def check_manifest(raw: bytes, here: Place) -> Manifest | ManifestProblem:
    """The manifest in a file, if it is of this very folder. Numbers of devices hold within a boot only."""
    manifest = decode_manifest(raw)
    if isinstance(manifest, ManifestProblem):
        return manifest
    there = manifest.place
    same_device = there.device == here.device or there.boot != here.boot
    if there.inode != here.inode or not same_device:
        return ManifestProblem("it belongs to another folder, from which this one was copied")
    return manifest


def _form(node: Node | None) -> NodeForm | None:
    return None if node is None else node_form(node)


def _node(form: NodeForm | None) -> Node | None:
    match form:
        case None:
            return None
        case ["f", str(digest), bool(executable)] if is_digest(digest):
            return FileNode(digest, 0, executable)
        case ["l", str(target)]:
            return LinkNode(target)
        case ["d"]:
            return DirNode()
        case _:
            raise ValueError(f"{form} is no node")
