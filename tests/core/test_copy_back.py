"""Plans of copy-backs, and what is decided of each operation: played on a dict, and cut short anywhere."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stepwell.core.copy_back import Op, plan, required_directories
from stepwell.core.copy_back_manifest import (
    Manifest,
    ManifestProblem,
    Marker,
    Place,
    Recovery,
    check_manifest,
    decide_recovery,
    decode_manifest,
    encode_manifest,
    find_marker,
)
from stepwell.core.copy_back_moves import decide_forward, decide_undo, holds_other, is_foreign
from stepwell.core.node import DirNode, FileNode, LinkNode, Node, digest_of
from stepwell.core.tree import NodeChange, changes
from stepwell.core.workspace_path import ancestors

HERE = Place(8, 2, "boot")


def file(text: str, *, executable: bool = False) -> FileNode:
    return FileNode(digest_of(text.encode()), len(text), executable)


def kinds(ops: tuple[Op, ...]) -> list[tuple[str, str]]:
    return [(op.kind, op.path) for op in ops]


# --- plans ------------------------------------------------------------------


def test_what_is_removed_goes_first_and_what_is_replaced_comes_last() -> None:
    made = (
        NodeChange("a", file("1"), file("2")),
        NodeChange("b/c/d", file("1"), None),
        NodeChange("b/x", None, LinkNode("c")),
        NodeChange("e", DirNode(), None),
    )
    ops = plan(made)
    assert kinds(ops) == [("remove", "b/c/d"), ("rmdir", "e"), ("create", "b/x"), ("replace", "a")]
    assert [op.slot for op in ops] == [0, 1, 2, 3]
    assert required_directories(made, ops) == ("b",)


def test_a_file_that_becomes_a_directory_is_removed_before_the_directory_is_made() -> None:
    made = (NodeChange("a", file("1"), None), NodeChange("a/b/c", None, file("2")))
    ops = plan(made)
    assert kinds(ops) == [("remove", "a"), ("mkdir", "a"), ("mkdir", "a/b"), ("create", "a/b/c")]
    assert required_directories(made, ops) == ()
    assert kinds(plan([NodeChange("a", file("1"), DirNode())])) == [("remove", "a"), ("mkdir", "a")]


def test_a_directory_that_becomes_a_file_is_emptied_and_removed_before() -> None:
    made = (NodeChange("a", None, file("2")), NodeChange("a/b/c", file("1"), None))
    ops = plan(made)
    assert kinds(ops) == [("remove", "a/b/c"), ("rmdir", "a/b"), ("rmdir", "a"), ("create", "a")]
    assert ops[-1].before == DirNode()
    assert kinds(plan([NodeChange("a", DirNode(), file("2"))])) == [("rmdir", "a"), ("create", "a")]


def test_a_directory_that_is_no_longer_empty_is_not_removed() -> None:
    assert kinds(plan([NodeChange("a", DirNode(), None), NodeChange("a/b", None, file("1"))])) == [("create", "a/b")]


def test_many_changes_are_planned_in_a_time_that_grows_with_them() -> None:
    file = FileNode(digest_of(b""), 0)
    made = [NodeChange(f"new/{number}", None, file) for number in range(20_000)]
    gone = [NodeChange(f"old/{number}/f", file, None) for number in range(20_000)]
    begun = time.process_time()
    ops = plan([*made, *gone], ("old",))
    assert len(ops) == 60_000  # the directories that are left empty are pruned
    assert time.process_time() - begun < 10  # where each is compared with each it is minutes


def test_only_directories_within_a_tree_are_pruned() -> None:
    made = (NodeChange("t/a/b/f", file("1"), None), NodeChange("u/a/f", file("1"), None))
    assert kinds(plan(made, ["t"]))[2:] == [("prune", "t/a/b"), ("prune", "t/a")]
    kept = (*made, NodeChange("t/a/g", None, file("2")))
    assert ("prune", "t/a") not in kinds(plan(kept, ["t"]))
    assert ("prune", "t/a/b") in kinds(plan(kept, ["t"]))


# --- a folder in memory, changed as a host changes it --------------------------

NAMES = st.sampled_from(["a", "b", "c"])
PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)
NODES: st.SearchStrategy[Node] = st.one_of(
    st.builds(file, st.sampled_from("12"), executable=st.booleans()),
    st.builds(LinkNode, st.sampled_from(["x", "y"])),
    st.just(DirNode()),
)


def settled(tree: Mapping[str, Node]) -> dict[str, Node]:
    """The part of a tree that can be: nothing is below a file or link, and only empty directories are named."""
    kept: dict[str, Node] = {}
    for path, node in sorted(tree.items()):
        if not any(above in kept and not isinstance(kept[above], DirNode) for above in ancestors(path)):
            kept[path] = node
    full = {above for path in kept for above in ancestors(path)}
    return {path: node for path, node in kept.items() if path not in full}


TREES = st.dictionaries(PATHS, NODES, max_size=6).map(settled)


class Ended(Exception):
    """The process ends here."""


@dataclass
class Model:
    """A folder with every directory in it, and the slots of one copy-back."""

    nodes: dict[str, Node]
    slots: dict[int, Node] = field(default_factory=dict[int, Node])
    steps: int = 1_000

    @classmethod
    def of(cls, tree: Mapping[str, Node]) -> Model:
        above = {directory: DirNode() for path in tree for directory in ancestors(path)}
        return cls({**above, **tree})

    def tree(self) -> dict[str, Node]:
        full = {above for path in self.nodes for above in ancestors(path)}
        return {path: node for path, node in self.nodes.items() if path not in full}

    def step(self) -> None:
        """One change of the disk; the process may end right after it."""
        self.steps -= 1
        if self.steps == 0:
            raise Ended

    def is_empty(self, path: str) -> bool:
        return not any(other.startswith(f"{path}/") for other in self.nodes)

    def can_hold(self, path: str) -> bool:
        return all(isinstance(self.nodes.get(above), DirNode) for above in ancestors(path))

    # --- the two ways -------------------------------------------------------

    def stage(self, made: tuple[NodeChange, ...], ops: tuple[Op, ...]) -> None:
        """Stage the new nodes, and make the directories that have to be there first."""
        for op in ops:
            if op.kind in ("create", "replace"):
                assert op.after is not None
                self.slots[op.slot] = op.after
        for path in required_directories(made, ops):
            assert isinstance(self.nodes.setdefault(path, DirNode()), DirNode)

    def forward(self, ops: tuple[Op, ...]) -> str | None:
        for op in ops:
            target = self.nodes.get(op.path) if self.can_hold(op.path) else None
            match decide_forward(op, target, self.slots.get(op.slot)):
                case "skip":
                    continue
                case "conflict":
                    return op.path
                case "act":
                    if not self._apply(op):
                        return op.path
            self.step()
        return None

    def _apply(self, op: Op) -> bool:
        if not self.can_hold(op.path):
            return False
        match op.kind:
            case "remove":
                self.slots[op.slot] = self.nodes.pop(op.path)
            case "replace":
                self.slots[op.slot], self.nodes[op.path] = self.nodes[op.path], self.slots[op.slot]
            case "create":
                self.nodes[op.path] = self.slots.pop(op.slot)
            case "mkdir":
                self.nodes[op.path] = DirNode()
            case "rmdir" | "prune":
                if not self.is_empty(op.path):
                    return op.kind == "prune"
                del self.nodes[op.path]
        return True

    def back(self, ops: tuple[Op, ...], made: tuple[str, ...]) -> set[str]:
        left: set[str] = set()
        for op in reversed(ops):
            slot = self.slots.get(op.slot)
            target = self.nodes.get(op.path) if self.can_hold(op.path) else None
            match decide_undo(op, target, slot):
                case "keep":
                    if is_foreign(op, slot):
                        left.add(op.path)
                case "restore":
                    if not self._restore(op):
                        left.add(op.path)
                    self.step()
                case "foreign":
                    left.add(op.path)
        for path in reversed(made):
            if isinstance(self.nodes.get(path), DirNode) and self.is_empty(path):
                del self.nodes[path]
                self.step()
        return left

    def _restore(self, op: Op) -> bool:
        if not self.can_hold(op.path):
            return False
        match op.kind:
            case "remove":
                self.nodes[op.path] = self.slots.pop(op.slot)
            case "replace":
                self.slots[op.slot], self.nodes[op.path] = self.nodes[op.path], self.slots[op.slot]
            case "create":
                self.slots[op.slot] = self.nodes.pop(op.path)
            case "mkdir":
                if not self.is_empty(op.path):
                    return False
                del self.nodes[op.path]
            case "rmdir" | "prune":
                self.nodes[op.path] = DirNode()
        return True


def begun(before: dict[str, Node], after: dict[str, Node]) -> tuple[Model, tuple[Op, ...], tuple[str, ...]]:
    """A copy-back up to its decision, with the directories that were made for it. All is in a declared tree, so that
    no directory is left empty."""
    made = changes(before, after)
    ops = plan(made, [""])
    model = Model.of(before)
    fresh = tuple(path for path in required_directories(made, ops) if path not in model.nodes)
    model.stage(made, ops)
    return model, ops, fresh


STEPS = st.integers(1, 12)
ALL_STEPS = 1_000


@given(TREES, TREES, STEPS, STEPS)
@example({"a": file("1")}, {"a/b": file("1")}, 1, 1)
@example({"a/b/c": file("1")}, {"a": file("2")}, 2, 1)
def test_wherever_it_ended_going_on_makes_all(
    before: dict[str, Node], after: dict[str, Node], first: int, second: int
) -> None:
    model, ops, _ = begun(before, after)
    for model.steps in (first, second, ALL_STEPS):
        with suppress(Ended):
            assert model.forward(ops) is None
    assert model.tree() == after


@given(TREES, TREES, STEPS, STEPS)
@example({"a": file("1")}, {"a/b": file("1")}, 3, 1)
@example({"a/b/c": file("1")}, {"a": file("2")}, 4, 2)
def test_wherever_it_ended_going_back_leaves_nothing(
    before: dict[str, Node], after: dict[str, Node], first: int, second: int
) -> None:
    model, ops, fresh = begun(before, after)
    model.steps = first
    with suppress(Ended):
        assert model.forward(ops) is None
    for model.steps in (second, ALL_STEPS):
        with suppress(Ended):
            assert model.back(ops, fresh) == set()
    assert model.tree() == before


@given(TREES, TREES, STEPS, st.integers(0, 20), st.booleans())
def test_what_somebody_else_wrote_is_kept_and_named(
    before: dict[str, Node], after: dict[str, Node], first: int, choice: int, onward: bool
) -> None:
    """An edit of a file or link, of ours or of theirs, while the process is gone."""
    model, ops, fresh = begun(before, after)
    model.steps = first
    with suppress(Ended):
        _ = model.forward(ops)
    model.steps = ALL_STEPS
    touched = [op.path for op in ops if not isinstance(model.nodes.get(op.path, DirNode()), DirNode)]
    if not touched:
        return
    path = touched[choice % len(touched)]
    model.nodes[path] = file("EDIT")
    if onward and model.forward(ops) is None:
        assert model.nodes[path] == file("EDIT")
        return
    left = model.back(ops, fresh)
    assert model.nodes[path] == file("EDIT")
    assert path in left
    assert model.back(ops, fresh) == left  # going back twice is going back once
    restored = {there: node for there, node in model.tree().items() if there not in left}
    assert restored.items() <= before.items()


@pytest.mark.parametrize("kind", ["remove", "replace"])
def test_a_slot_that_somebody_wrote_to_is_never_taken_for_done(kind: str) -> None:
    after = file("new") if kind == "replace" else None
    op = Op("replace" if kind == "replace" else "remove", "a", 0, file("old"), after)
    late = file("LATE")
    assert decide_forward(op, op.after, late) == "conflict"
    assert decide_undo(op, op.after, late) == "restore"
    assert holds_other(op, late)
    assert is_foreign(op, late)
    assert not is_foreign(op, file("old"))


def test_our_own_new_file_is_not_taken_for_a_third_party_s() -> None:
    made = Op("create", "a", 0, None, file("new"))
    assert decide_undo(made, file("new"), None) == "restore"
    assert decide_undo(made, file("new"), file("new")) == "foreign"  # ours was never put there
    assert not holds_other(made, file("new"))
    replaced = Op("replace", "a", 0, file("old"), file("new"))
    assert decide_undo(replaced, file("new"), file("old")) == "restore"
    assert decide_undo(replaced, file("new"), file("new")) == "foreign"  # somebody wrote the same, ours still waits
    assert decide_undo(replaced, file("new"), None) == "foreign"


# --- manifests --------------------------------------------------------------

OPS = st.builds(
    Op,
    st.sampled_from(["remove", "rmdir", "prune", "mkdir", "create", "replace"]),
    st.text(min_size=1, max_size=9).filter(lambda text: text.isprintable()),
    st.integers(0, 99),
    st.none() | NODES,
    st.none() | NODES,
    st.integers(0, 0o777),
)
MANIFESTS = st.builds(
    Manifest,
    st.text("0123456789abcdef-", min_size=1),
    st.just("bundle1_x"),
    st.builds(Place, st.integers(0, 2**32), st.integers(0, 2**63), st.just("boot")),
    st.integers(1, 2**31),
    st.lists(PATHS).map(tuple),
    st.lists(OPS, max_size=5).map(tuple),
)


@given(MANIFESTS)
def test_a_manifest_is_read_as_it_was_written(manifest: Manifest) -> None:
    assert decode_manifest(encode_manifest(manifest)) == manifest
    assert check_manifest(encode_manifest(manifest), manifest.place) == manifest


@given(MANIFESTS, st.data())
def test_a_manifest_of_which_any_byte_changed_is_refused(manifest: Manifest, data: st.DataObject) -> None:
    raw = bytearray(encode_manifest(manifest))
    at = data.draw(st.integers(0, len(raw) - 1))
    raw[at] ^= data.draw(st.integers(1, 255))
    assert isinstance(decode_manifest(bytes(raw)), ManifestProblem)
    assert isinstance(decode_manifest(bytes(raw[:at])), ManifestProblem)


@given(st.binary())
def test_no_bytes_raise(raw: bytes) -> None:
    assert isinstance(decode_manifest(raw), ManifestProblem)
    assert isinstance(decode_manifest(digest_of(raw).encode() + b"\n" + raw), ManifestProblem)


def test_a_manifest_is_of_one_folder() -> None:
    manifest = Manifest("t", "b", HERE, 1, (), ())
    raw = encode_manifest(manifest)
    assert check_manifest(raw, HERE) == manifest
    assert check_manifest(raw, replace(HERE, device=9, boot="next")) == manifest
    assert isinstance(check_manifest(raw, replace(HERE, device=9)), ManifestProblem)
    assert isinstance(check_manifest(raw, replace(HERE, inode=3)), ManifestProblem)
    assert isinstance(check_manifest(raw, replace(HERE, inode=3, boot="next")), ManifestProblem)


def test_every_marker_has_its_end() -> None:
    assert [find_marker(frozenset({marker.value, "n0"})) for marker in Marker] == list(Marker)
    assert find_marker(frozenset({"n0"})) is None
    assert find_marker(frozenset({"manifest", "undo", "n1"})) is Marker.UNDO
    decided = {
        (marker, said): decide_recovery(marker, said) for marker in (None, *Marker) for said in (None, True, False)
    }
    assert {it for (marker, _), it in decided.items() if marker is None} == {Recovery.DISCARD}
    assert {it for (marker, _), it in decided.items() if marker is Marker.UNDO} == {Recovery.UNDO}
    assert {it for (marker, _), it in decided.items() if marker is Marker.DONE} == {Recovery.CLEAN_UP}
    assert [decided[Marker.DECIDED, said] for said in (None, True, False)] == [
        Recovery.ROLL_FORWARD,
        Recovery.ROLL_FORWARD,
        Recovery.UNDO,
    ]
    assert [decided[Marker.INTENT, said] for said in (None, True, False)] == [
        Recovery.DISCARD,
        Recovery.DECIDE,
        Recovery.DISCARD,
    ]
