"""What every sandbox keeps to whose results are cached: measuring, recording and replaying, over both hosts.

The worlds of these tests keep all beyond ten bytes as artifacts. That a kill in the middle of a replay leaves all or
nothing is shown by the crash tests of copy-back, which a replay goes by.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pytest

from stepwell import Failure, Outcome, Success
from stepwell.core.boundary import Boundary, DeclaredRead
from stepwell.core.measured import MeasuredReads
from stepwell.core.node import DirNode, FileNode, LinkNode, Node, digest_of
from stepwell.core.outputs import Output, Outputs, needed, outputs_digest, outputs_json, read_outputs
from stepwell.core.replay import BoundaryCorruption, MissingArtifact
from stepwell.core.step_sandbox import FileChange, LimitExceeded, MaterializationConflict, Materialized, WorkspaceError
from stepwell.layers.artifacts import MemoryArtifacts
from stepwell.services.step_sandbox import CachingTransaction, Workspace

from .sandbox_world import World
from .step_sandbox_contract import error_of

LARGE = "large " * 5
R = TypeVar("R")

TREE = Boundary(("in.txt",), ("out/**",))
FIVE = Boundary(("in.txt",), tuple(f"out/{number}" for number in range(5)))


def file_node(text: str, executable: bool = False) -> FileNode:
    return FileNode(digest_of(text.encode()), len(text.encode()), executable)


def output(path: str, text: str, executable: bool = False) -> Output:
    return Output(path, file_node(text, executable), text.encode())


def write_five(workspace: Workspace) -> None:
    for number in range(5):
        workspace.write_text(f"out/{number}", str(number) if number else LARGE)


def write_tree(workspace: Workspace) -> None:
    workspace.write_text("out/a", workspace.read_text("in.txt"))
    workspace.write_text("out/d/run", LARGE)
    workspace.set_executable("out/d/run", True)
    workspace.make_link("out/d/link", "../a")
    workspace.make_dir("out/empty")


async def recorded(world: World, boundary: Boundary, body: Callable[[Workspace], object]) -> Outputs:
    """The record of a step that is executed and materialized, as it comes back from JSON."""
    async with await caching(world) as transaction:
        accepted = (await transaction.execute(boundary, body)).unwrap()
        outputs = (await transaction.record(accepted)).unwrap()
        _ = (await transaction.materialize(accepted)).unwrap()
    read = read_outputs(outputs_json(outputs))
    assert read == outputs
    assert isinstance(read, Outputs)
    return read


async def caching(world: World) -> CachingTransaction:
    return await world.open_caching()


async def measured(world: World, boundary: Boundary) -> MeasuredReads:
    async with await caching(world) as transaction:
        return (await transaction.measure(boundary)).unwrap()


async def replayed(
    world: World, boundary: Boundary, outputs: Outputs, reads: MeasuredReads | None = None
) -> Outcome[Materialized, object]:
    async with await caching(world) as transaction:
        if reads is None:
            reads = (await transaction.measure(boundary)).unwrap()
        return await transaction.replay(boundary, outputs, reads)


def blobs_of(world: World) -> MemoryArtifacts:
    assert isinstance(world.artifacts, MemoryArtifacts)
    return world.artifacts


def written(outcome: Outcome[Materialized, object]) -> list[str]:
    return [change.path for change in outcome.unwrap().changes]


class SandboxReplayContract:
    # --- measuring ----------------------------------------------------------

    async def test_what_is_measured_is_what_a_step_is_seeded_with(self, world: World) -> None:
        world.link("src/link", "a.py")
        boundary = Boundary(("src/**", "in.txt", "gone", "nothing/*"), ("out/r",), ("old",))
        before = world.snapshot()
        found = await measured(world, boundary)
        async with await caching(world) as transaction:
            accepted = (
                await transaction.execute(
                    boundary, lambda it: (it.glob("src/**"), it.write_text("out/r", ""), it.remove("old"))
                )
            ).unwrap()
        assert accepted.record is not None
        assert found.base_digest == accepted.record.base_digest
        assert dict(found.files) == {
            "gone": None,
            "in.txt": file_node("alpha\n"),
            "src/.hid.py": file_node("H=1\n"),
            "src/a.py": file_node("A=1\n"),
            "src/d/b.py": file_node("B=1\n"),
            "src/link": LinkNode("a.py"),
        }
        assert [path for path, _ in found.files] == sorted(path for path, _ in found.files)
        assert found.matches == (
            ("nothing/*", ()),
            ("src/**", ("src/.hid.py", "src/a.py", "src/d/b.py", "src/link")),
        )
        assert [path for path, _ in found.matches[1:]] == ["src/**"]
        assert accepted.output[0] == list(found.matches[1][1])
        assert world.snapshot() == before

    async def test_what_cannot_be_seeded_cannot_be_measured_and_the_answer_is_the_same(self, world: World) -> None:
        world.link("leads/out", "../../x")
        world.link("behind", "src")
        world.write("names/A", "")
        world.write("names/a", "")
        for reads in (("src",), ("../x",), ("/etc/passwd",), ("leads/out",), ("behind/a.py",), ("names/*",), ("con",)):
            boundary = Boundary(reads)
            async with await caching(world) as transaction:
                executed = await transaction.execute(boundary, lambda _: None)
                found = await transaction.measure(boundary)
            assert isinstance(found, Failure), reads
            assert found.failure() == executed.failure()

    async def test_an_exec_bit_and_a_file_more_or_less_are_measured_and_a_touch_is_not(self, world: World) -> None:
        boundary = Boundary(("in.txt", "src/*.py"))
        seen = [await measured(world, boundary)]
        world.write("in.txt", "alpha\n")
        assert await measured(world, boundary) == seen[0]
        world.write("in.txt", "alpha\n", executable=True)
        seen.append(await measured(world, boundary))
        world.write("src/new.py", "")
        seen.append(await measured(world, boundary))
        world.remove("src/a.py")
        seen.append(await measured(world, boundary))
        assert len(set(seen)) == len(seen)

    # --- recording ----------------------------------------------------------

    async def test_all_that_stands_at_the_targets_is_recorded(self, world: World) -> None:
        outputs = await recorded(world, TREE, write_tree)
        assert outputs.tree() == {
            "out/a": file_node("alpha\n"),
            "out/d/link": LinkNode("../a"),
            "out/d/run": file_node(LARGE, executable=True),
            "out/empty": DirNode(),
        }
        assert [entry.data for entry in outputs.entries] == [b"alpha\n", None, None, None]
        assert needed(outputs) == {digest_of(LARGE.encode())}
        assert (await world.artifacts.get(digest_of(LARGE.encode()))).unwrap() == LARGE.encode()

    async def test_what_was_written_anew_with_the_same_bytes_is_recorded_too(self, world: World) -> None:
        """Also what is too large to be in the record, and no artifact since it is no change."""
        for number in range(5):
            world.write(f"out/{number}", str(number) if number else LARGE)
        async with await caching(world) as transaction:
            accepted = (await transaction.execute(FIVE, write_five)).unwrap()
            assert accepted.changes == ()
            assert (await world.artifacts.find_missing([digest_of(LARGE.encode())])).unwrap() != ()
            outputs = (await transaction.record(accepted)).unwrap()
        assert outputs.tree() == {f"out/{n}": file_node(str(n) if n else LARGE) for n in range(5)}
        assert (await world.artifacts.find_missing(needed(outputs))).unwrap() == ()
        for number in range(5):
            world.remove(f"out/{number}")
        assert written(await replayed(world, FIVE, outputs)) == [f"out/{number}" for number in range(5)]
        assert world.read("out/0") == LARGE.encode()

    async def test_what_was_read_and_left_at_a_target_is_recorded(self, world: World) -> None:
        world.write("out/large", LARGE)
        boundary = Boundary(("out/**", "in.txt"), ("out/**", "in.txt"))
        outputs = await recorded(world, boundary, lambda it: it.write_text("out/r", "r"))
        assert outputs.tree() == {
            "in.txt": file_node("alpha\n"),
            "out/large": file_node(LARGE),
            "out/r": file_node("r"),
        }

    async def test_a_record_is_the_same_before_and_after_materializing_and_whenever_it_is_asked(
        self, world: World
    ) -> None:
        async with await caching(world) as transaction:
            early = (await transaction.execute(TREE, write_tree)).unwrap()
            late = (await transaction.execute(TREE, write_tree)).unwrap()
            first = (await transaction.record(early)).unwrap()
            _ = (await transaction.materialize(late)).unwrap()
            again = (await transaction.execute(TREE, write_tree)).unwrap()
            assert again.changes == ()
            others = [(await transaction.record(each)).unwrap() for each in (late, early, again, again)]
        assert [outputs_digest(each) for each in others] == [outputs_digest(first)] * 4
        assert others == [first] * 4

    async def test_only_an_accepted_result_of_an_open_transaction_that_kept_to_its_boundary_is_recorded(
        self, world: World
    ) -> None:
        async with await caching(world) as transaction:
            accepted = (await transaction.execute(TREE, write_tree)).unwrap()
            loose = Boundary(("in.txt",), ("out/r",), mode="expected")
            deviating = (await transaction.execute(loose, write_tree)).unwrap()
            assert error_of(await transaction.record(deviating))[0] == "unverified_read_set"
            async with await caching(world) as other:
                assert error_of(await other.record(accepted))[0] == "unknown_result"
        reads = MeasuredReads()
        assert error_of(await transaction.record(accepted))[0] == "closed"
        assert error_of(await transaction.measure(TREE))[0] == "closed"
        assert error_of(await transaction.replay(TREE, Outputs(), reads))[0] == "closed"

    async def test_a_record_whose_artifact_is_gone_is_refused(self, world: World) -> None:
        async with await caching(world) as transaction:
            accepted = (await transaction.execute(TREE, write_tree)).unwrap()
            _ = blobs_of(world).blobs.pop(digest_of(LARGE.encode()))
            assert error_of(await transaction.record(accepted))[0] == "not_found"

    # --- replaying ----------------------------------------------------------

    async def test_r_01_and_b17_nothing_is_written_where_all_is_right(self, world: World) -> None:
        for boundary, body in ((TREE, write_tree), (FIVE, write_five)):
            outputs = await recorded(world, boundary, body)
            before = world.snapshot()
            assert await replayed(world, boundary, outputs) == Success(Materialized(()))
            assert world.snapshot() == before

    async def test_r_02_and_b18_only_what_differs_is_written(self, world: World) -> None:
        outputs = await recorded(world, FIVE, write_five)
        for path, spoilt in (("out/0", "LARGE " * 5), ("out/3", "4")):
            before = world.snapshot()
            world.write(path, spoilt)
            assert await replayed(world, FIVE, outputs) == Success(Materialized((FileChange(path, "modify"),)))
            after = world.snapshot()
            assert {each: after[each] for each in after if each != path} == {
                each: before[each] for each in before if each != path
            }
            assert world.read(path) == (LARGE.encode() if path == "out/0" else b"3")

    async def test_r_03_and_b24_what_is_gone_is_restored_with_the_directories_above(self, world: World) -> None:
        outputs = await recorded(world, TREE, write_tree)
        after = world.nodes()
        empty = await recorded(world, TREE, lambda _: None)
        assert empty.tree() == {"out": DirNode()}
        assert "out/a" in written(await replayed(world, TREE, empty))
        assert {path for path in world.nodes() if path.startswith("out/")} == set()
        _ = (await replayed(world, TREE, outputs)).unwrap()
        assert world.nodes() == after
        assert world.is_executable("out/d/run")
        assert world.link_target("out/d/link") == "../a"
        assert world.is_dir("out/empty")

    async def test_a_tree_is_exactly_as_it_was_recorded_and_beside_it_nothing_is_touched(self, world: World) -> None:
        outputs = await recorded(world, TREE, write_tree)
        after = world.nodes()
        world.write("outer", "1")
        world.write("out/stale", "1")
        world.write("out/empty/stale", "1")
        world.write("out/deep/er/stale", "1")
        world.link("out/d/stale", "../a")
        paths = ["out/d/stale", "out/deep/er/stale", "out/empty/stale", "out/stale"]
        assert written(await replayed(world, TREE, outputs)) == paths
        assert world.read("outer") == b"1"
        world.remove("outer")
        assert world.nodes() == after

    async def test_types_change_within_a_tree(self, world: World) -> None:
        outputs = await recorded(world, TREE, write_tree)
        after = world.nodes()
        for path in ("out/a", "out/d/run", "out/d/link"):
            world.remove(path)
        _ = (await replayed(world, TREE, Outputs((Output("out/d", file_node("d"), b"d"),)))).unwrap()
        world.write("out/a/b/c", "1")
        assert world.read("out/d") == b"d"
        _ = (await replayed(world, TREE, outputs)).unwrap()
        assert world.nodes() == after
        world.remove("out/a")
        world.link("out/a", "d")
        _ = (await replayed(world, TREE, Outputs((output("out/a/x", "1"),)))).unwrap()
        assert world.read("out/a/x") == b"1"

    async def test_what_was_removed_is_removed_again(self, world: World) -> None:
        boundary = Boundary((), (), ("old", "older"))
        outputs = await recorded(world, boundary, lambda it: it.remove("old"))
        assert outputs == Outputs((), ("old", "older"))
        assert written(await replayed(world, boundary, outputs)) == []
        world.write("old", "again")
        world.write("older", "too")
        assert written(await replayed(world, boundary, outputs)) == ["old", "older"]
        assert (world.read("old"), world.read("older")) == (None, None)

    async def test_r_09_a_restored_file_is_a_copy(self, world: World) -> None:
        outputs = await recorded(world, TREE, write_tree)
        digest = digest_of(LARGE.encode())
        for text in ("appended", "again"):
            world.write("out/d/run", LARGE + text)
            _ = (await replayed(world, TREE, outputs)).unwrap()
            assert (world.read("out/d/run"), world.is_executable("out/d/run")) == (LARGE.encode(), True)
            assert (await world.artifacts.get(digest)).unwrap() == LARGE.encode()

    # --- what is refused ----------------------------------------------------

    async def test_b21_and_r_04_a_missing_artifact_touches_nothing(self, world: World) -> None:
        outputs = await recorded(world, TREE, write_tree)
        digest = digest_of(LARGE.encode())
        for path in ("out/a", "out/d/run"):
            world.remove(path)
        kept = blobs_of(world).blobs.pop(digest)
        before = world.snapshot()
        assert await replayed(world, TREE, outputs) == Failure(MissingArtifact("out/d/run", digest))
        assert world.snapshot() == before
        blobs_of(world).blobs[digest] = kept
        assert written(await replayed(world, TREE, outputs)) == ["out/a", "out/d/run"]

    @pytest.mark.parametrize("damage", [b"", LARGE.encode()[:-1], b"M" + LARGE.encode()[1:]])
    async def test_b22_and_r_05_damaged_bytes_never_reach_the_host(self, world: World, damage: bytes) -> None:
        outputs = await recorded(world, TREE, write_tree)
        digest = digest_of(LARGE.encode())
        for path in ("out/a", "out/d/run"):
            world.remove(path)
        blobs_of(world).blobs[digest].data = damage
        before = world.snapshot()
        refused = await replayed(world, TREE, outputs)
        assert refused == Failure(BoundaryCorruption("out/d/run", digest, digest_of(damage)))
        assert world.snapshot() == before
        _ = (await world.artifacts.put(LARGE.encode())).unwrap()
        assert written(await replayed(world, TREE, outputs)) == ["out/a", "out/d/run"]

    async def test_bytes_in_a_record_that_are_not_its_own_are_refused(self, world: World) -> None:
        node = file_node("right")
        wrong = Outputs((output("out/a", "a"), Output("out/b", node, b"wrong")))
        before = world.snapshot()
        assert await replayed(world, TREE, wrong) == Failure(
            BoundaryCorruption("out/b", node.digest, digest_of(b"wrong"))
        )
        _ = (await world.artifacts.put(b"right")).unwrap()
        lying = Outputs((output("out/a", "a"), Output("out/b", FileNode(node.digest, 4))))
        refused = await replayed(world, TREE, lying)
        assert refused == Failure(BoundaryCorruption("out/b", node.digest, "invalid_size"))
        assert world.snapshot() == before

    @pytest.mark.parametrize(
        ("path", "code"),
        [
            ("/abs", "path_escapes_workspace"),
            ("../x", "invalid_path"),
            ("out/../../x", "invalid_path"),
            ("out/./x", "invalid_path"),
            ("out//x", "invalid_path"),
            ("out/x\0", "invalid_path"),
            ("", "invalid_path"),
            (".git/hooks/x", "protected_path"),
            (".stepwell/x", "protected_path"),
            (".STEPWELL/x", "protected_path"),
            ("out/con", "invalid_path"),
            ("in.txt", "undeclared_write"),
            ("outer", "undeclared_write"),
        ],
    )
    async def test_b16_a_record_that_names_another_place_is_refused_before_any_write(
        self, world: World, path: str, code: str
    ) -> None:
        before = world.snapshot()
        for node in (file_node("x"), DirNode(), LinkNode("a")):
            entries = (output("out/a", "a"), Output(path, node, b"x" if isinstance(node, FileNode) else None))
            assert error_of(await replayed(world, TREE, Outputs(entries)))[0] == code
        assert error_of(await replayed(world, TREE, Outputs((output("out/a", "a"),), (path,))))[0] == code
        assert world.snapshot() == before

    @pytest.mark.parametrize("target", ["/etc/passwd", "../../x", "../..", "nothing/../../../x", "../secret", "a/\0"])
    async def test_b16_a_record_with_a_link_that_leads_out_is_refused_before_any_write(
        self, world: World, target: str
    ) -> None:
        before = world.snapshot()
        refused = await replayed(world, TREE, Outputs((output("out/a", "a"), Output("out/l", LinkNode(target)))))
        assert isinstance(refused.failure(), WorkspaceError)
        assert world.snapshot() == before

    async def test_a_record_that_contradicts_itself_or_the_boundary_is_refused(self, world: World) -> None:
        boundary = Boundary(("in.txt",), ("out/**", "r"), ("old",))
        right = (output("out/a", "a"), output("r", "r"))
        before = world.snapshot()
        for outputs, answer in (
            (Outputs(right[:1], ("old",)), "missing_output"),
            (Outputs(right[1:], ("old",)), "missing_output"),
            (Outputs(right), "surviving_removal"),
            (Outputs((*right, output("out/A", "A")), ("old",)), "name_collision"),
        ):
            assert error_of(await replayed(world, boundary, outputs))[0] == answer
        for entries in ((*right, right[0]), (*right, output("out/a/b", "b")), (*right, Output("out", DirNode()))):
            refused = (await replayed(world, boundary, Outputs(entries, ("old",)))).failure()
            assert isinstance(refused, BoundaryCorruption)
            assert refused.measured == "invalid_record"
        assert world.snapshot() == before

    async def test_what_stands_in_the_way_stays(self, world: World) -> None:
        boundary = Boundary(("in.txt",), ("file/x", "dir"))
        world.write("file", "of somebody")
        world.write("dir/theirs", "1")
        before = world.snapshot()
        beneath = await replayed(world, boundary, Outputs((output("dir", "1"), output("file/x", "1"))))
        assert error_of(beneath)[0] == "not_a_directory"
        assert world.snapshot() == before
        world.remove("file")
        before = world.snapshot()
        refused = await replayed(world, boundary, Outputs((output("dir", "1"), output("file/x", "1"))))
        assert isinstance(refused.failure(), MaterializationConflict)
        assert world.snapshot() == before

    async def test_a_link_above_a_target_is_not_followed(self, world: World) -> None:
        world.link("out", "src")
        before = world.snapshot()
        for boundary in (TREE, Boundary((), ("out/a",))):
            refused = await replayed(world, boundary, Outputs((output("out/a", "1"),)), MeasuredReads())
            assert isinstance(refused.failure(), WorkspaceError | MaterializationConflict)
        assert world.snapshot() == before

    async def test_sb30_what_was_read_has_to_be_as_it_was_measured(self, world: World) -> None:
        """Also where nothing would be written; the measurement tells the change too, so that the key is another."""
        outputs = await recorded(world, TREE, write_tree)
        reads = await measured(world, TREE)
        for missing in (False, True):
            if missing:
                world.remove("out/a")
            for change in (lambda: world.write("in.txt", "beta\n"), lambda: world.remove("in.txt")):
                change()
                before = world.snapshot()
                refused = await replayed(world, TREE, outputs, reads)
                assert refused == Failure(MaterializationConflict(("in.txt",)))
                assert world.snapshot() == before
                assert await measured(world, TREE) != reads
            world.write("in.txt", "alpha\n")
        assert written(await replayed(world, TREE, outputs, reads)) == ["out/a"]

    async def test_a_file_that_came_to_a_pattern_is_a_change_of_what_was_read(self, world: World) -> None:
        boundary = Boundary(("src/*.py", "gone"), ("out/a",))
        outputs = Outputs((output("out/a", "1"),))
        for path in ("src/new.py", "gone"):
            reads = await measured(world, boundary)
            world.write(path, "")
            assert await replayed(world, boundary, outputs, reads) == Failure(MaterializationConflict((path,)))
        assert world.read("out/a") is None

    async def test_a_step_that_changes_what_it_reads_is_replayed(self, world: World) -> None:
        boundary = Boundary(("in.txt",), ("in.txt",))
        reads = await measured(world, boundary)
        outputs = await recorded(world, boundary, lambda it: it.write_text("in.txt", it.read_text("in.txt") + "1"))
        world.write("in.txt", "alpha\n")
        assert written(await replayed(world, boundary, outputs, reads)) == ["in.txt"]
        assert world.read("in.txt") == b"alpha\n1"

    async def test_a_declared_digest_does_not_change_what_is_measured(self, world: World) -> None:
        plain, declared = Boundary(("in.txt",)), Boundary((DeclaredRead("in.txt", digest_of(b"other")),))
        assert await measured(world, plain) == await measured(world, declared)

    async def test_a_misuse_is_told(self, world: World) -> None:
        async with await caching(world) as transaction:
            nothing: object = None
            with pytest.raises(TypeError, match="measure needs a Boundary, not NoneType"):
                _ = await transaction.measure(nothing)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

    async def test_limits_hold_for_records(self, world: World) -> None:
        """The worlds of these tests allow twenty nodes and files of a hundred bytes."""
        many = Outputs(tuple(output(f"out/{number:02}", "") for number in range(21)))
        huge = Outputs((Output("out/a", FileNode(digest_of(b"x" * 101), 101)),))
        before = world.snapshot()
        for outputs, limit in (
            (many, LimitExceeded("nodes", 21, 20)),
            (huge, LimitExceeded("file_bytes", 101, 100)),
        ):
            assert await replayed(world, TREE, outputs) == Failure(limit)
        assert world.snapshot() == before


def model(before: dict[str, Node], outputs: Outputs, boundary_trees: tuple[str, ...]) -> dict[str, Node]:
    """The files and links that a host has after a replay, by the words of the promise."""
    kept = {
        path: node
        for path, node in before.items()
        if path not in outputs.removed and not any(path.startswith(f"{tree}/") for tree in boundary_trees)
    }
    return {path: node for path, node in {**kept, **outputs.tree()}.items() if node != DirNode()}
