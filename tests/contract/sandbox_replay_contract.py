"""What every sandbox keeps to whose results are cached: measuring, recording and replaying, over both hosts.

The worlds of these tests keep all beyond ten bytes as artifacts. That a kill in the middle of a replay leaves all or
nothing is shown by the crash tests of copy-back, which a replay goes by.
"""

from __future__ import annotations

from stepwell import Failure, Success
from stepwell.core.boundary import Boundary
from stepwell.core.measured import MeasuredReads
from stepwell.core.node import DirNode, LinkNode, digest_of
from stepwell.core.outputs import Output, Outputs, needed, outputs_digest
from stepwell.core.step_sandbox import FileChange, Materialized
from stepwell.services.step_sandbox import Workspace

from .replay_world import (
    FIVE,
    LARGE,
    TREE,
    blobs_of,
    file_node,
    measured,
    output,
    recorded,
    replayed,
    write_five,
    write_tree,
    written,
)
from .sandbox_world import World
from .step_sandbox_contract import error_of


class SandboxReplayContract:
    # --- measuring ----------------------------------------------------------

    async def test_what_is_measured_is_what_a_step_is_seeded_with(self, world: World) -> None:
        def body(workspace: Workspace) -> list[str]:
            workspace.write_text("out/r", "")
            workspace.remove("old")
            return workspace.glob("src/**")

        world.link("src/link", "a.py")
        boundary = Boundary(("src/**", "in.txt", "gone", "nothing/*"), ("out/r",), ("old",))
        before = world.snapshot()
        found = await measured(world, boundary)
        async with await world.open_caching() as transaction:
            accepted = (await transaction.execute(boundary, body)).unwrap()
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
        assert accepted.output == list(found.matches[1][1])
        assert world.snapshot() == before

    async def test_what_cannot_be_seeded_cannot_be_measured_and_the_answer_is_the_same(self, world: World) -> None:
        world.link("leads/out", "../../x")
        world.link("behind", "src")
        world.write("names/A", "")
        world.write("names/a", "")
        for reads in (("src",), ("../x",), ("/etc/passwd",), ("leads/out",), ("behind/a.py",), ("names/*",), ("con",)):
            boundary = Boundary(reads)
            async with await world.open_caching() as transaction:
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
        async with await world.open_caching() as transaction:
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
        async with await world.open_caching() as transaction:
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
        async with await world.open_caching() as transaction:
            accepted = (await transaction.execute(TREE, write_tree)).unwrap()
            loose = Boundary(("in.txt",), ("out/r",), mode="expected")
            deviating = (await transaction.execute(loose, write_tree)).unwrap()
            assert error_of(await transaction.record(deviating))[0] == "unverified_read_set"
            async with await world.open_caching() as other:
                assert error_of(await other.record(accepted))[0] == "unknown_result"
        reads = MeasuredReads()
        assert error_of(await transaction.record(accepted))[0] == "closed"
        assert error_of(await transaction.measure(TREE))[0] == "closed"
        assert error_of(await transaction.replay(TREE, Outputs(), reads))[0] == "closed"

    async def test_a_record_whose_artifact_is_gone_is_refused(self, world: World) -> None:
        async with await world.open_caching() as transaction:
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
