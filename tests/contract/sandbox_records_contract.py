"""Which records no sandbox replays, and what stays as it is then: everything.

The worlds of these tests keep all beyond ten bytes as artifacts.
"""

from __future__ import annotations

import pytest

from stepwell import Failure
from stepwell.core.boundary import Boundary, DeclaredRead
from stepwell.core.measured import MeasuredReads
from stepwell.core.node import DirNode, FileNode, LinkNode, digest_of
from stepwell.core.outputs import Output, Outputs
from stepwell.core.replay import BoundaryCorruption, MissingArtifact
from stepwell.core.step_sandbox import LimitExceeded, MaterializationConflict, WorkspaceError

from .replay_world import LARGE, TREE, blobs_of, file_node, measured, output, recorded, replayed, write_tree, written
from .sandbox_world import World
from .step_sandbox_contract import error_of


class SandboxRecordsContract:
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

    async def test_what_belongs_to_git_stays_whatever_a_boundary_declares(self, world: World) -> None:
        world.write(".git/config", "of git")
        before = world.snapshot()
        for boundary in (Boundary((), (".git/**",)), Boundary((), (), (".git/config",))):
            for outputs in (Outputs(), Outputs((Output(".git", DirNode()),)), Outputs((), (".git/config",))):
                assert isinstance(await replayed(world, boundary, outputs), Failure)
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
            for text in ("beta\n", None):
                if text is None:
                    world.remove("in.txt")
                else:
                    world.write("in.txt", text)
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
        async with await world.open_caching() as transaction:
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
