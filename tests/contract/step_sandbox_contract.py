"""What every sandbox keeps to with bodies in Python: the cases that hold over files in memory and over a folder."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from functools import partial
from io import BufferedIOBase
from typing import NoReturn

import pytest

from stepwell import Failure, Outcome, Success
from stepwell.core.boundary import Boundary, DeclaredRead
from stepwell.core.node import digest_of
from stepwell.core.step_sandbox import (
    BodyFailed,
    FileChange,
    LimitExceeded,
    MaterializationConflict,
    Materialized,
    MissingOutput,
    SurvivingRemoval,
    UndeclaredRead,
    UndeclaredWrite,
    Violations,
    WorkspaceError,
)
from stepwell.services.step_sandbox import Workspace, WorkspaceRefusal

from .sandbox_world import BETA, EMPTY, World


def beta(workspace: Workspace) -> str:
    workspace.write_text("out/r", "beta\n")
    return workspace.read_text("in.txt")


def code_of(call: Callable[[], object]) -> str:
    """The code with which a call of a workspace is refused; "ok" if it is not."""
    try:
        _ = call()
    except WorkspaceRefusal as refusal:
        return refusal.code
    return "ok"


def error_of(outcome: Outcome[object, object]) -> tuple[str, str]:
    """The code and message of a workspace error that was answered."""
    error = outcome.failure()
    assert isinstance(error, WorkspaceError), error
    return error.code, error.message


class StepSandboxContract:
    # --- the contract -------------------------------------------------------

    async def test_a_01_and_sb1_what_is_accepted_is_on_the_host_once_it_is_materialized(self, world: World) -> None:
        def body(workspace: Workspace) -> dict[str, int]:
            workspace.queue_effect({"send": "mail"})
            workspace.write_text("out/r", "beta\n")
            return {"n": len(workspace.read_bytes("in.txt"))}

        before = world.snapshot()
        async with await world.open() as transaction:
            accepted = (await transaction.execute(Boundary(("in.txt",), ("out/r",)), body)).unwrap()
            assert (accepted.output, accepted.diff_identity) == ({"n": 6}, BETA)
            assert accepted.changes == (FileChange("out/r", "create"),)
            assert (len(accepted.effects), accepted.violations) == (1, Violations())
            assert world.snapshot() == before
            written = (await transaction.materialize(accepted)).unwrap()
        assert written == Materialized((FileChange("out/r", "create"),))
        assert (world.read("out/r"), world.is_executable("out/r")) == (b"beta\n", False)

    async def test_a_02_and_sb28_an_undeclared_read_is_named(self, world: World) -> None:
        before = world.snapshot()
        refused = await world.run(lambda workspace: workspace.read_bytes("secret"))
        assert refused == Failure(UndeclaredRead(("secret",), EMPTY))
        assert world.snapshot() == before

    async def test_a_03_an_undeclared_read_that_is_swallowed_is_told_all_the_same(self, world: World) -> None:
        def body(workspace: Workspace) -> str:
            with pytest.raises(FileNotFoundError):
                _ = workspace.read_bytes("secret")
            assert code_of(lambda: workspace.read_bytes("secret")) == "undeclared_read"
            return "ok"

        assert await world.run(body, writes=()) == Failure(UndeclaredRead(("secret",), EMPTY))

    async def test_a_04_and_sb27_what_the_body_failed_with_is_the_cause_of_an_undeclared_read(
        self, world: World
    ) -> None:
        def body(workspace: Workspace) -> NoReturn:
            _ = code_of(lambda: workspace.read_bytes("secret"))
            raise ValueError("boom")

        refused = (await world.run(body)).failure()
        assert isinstance(refused, UndeclaredRead)
        assert refused.cause is not None
        assert (refused.paths, refused.cause.type, refused.cause.message) == (("secret",), "ValueError", "boom")

    @pytest.mark.parametrize("mode", ["hard", "expected"])
    async def test_sb27_a_body_that_fails_is_told_by_its_own_failure(self, world: World, mode: str) -> None:
        def body(workspace: Workspace) -> NoReturn:
            if mode == "expected":
                _ = code_of(lambda: workspace.read_bytes("secret"))
            raise ValueError("boom")

        failed = (await world.run(body, mode="hard" if mode == "hard" else "expected")).failure()
        assert isinstance(failed, BodyFailed)
        assert (failed.cause.type, failed.cause.message) == ("ValueError", "boom")
        assert "boom" in failed.cause.traceback

    async def test_a_06_and_sb26_what_the_body_wrote_is_its_own_to_read(self, world: World) -> None:
        def body(workspace: Workspace) -> str:
            workspace.write_text("gen", "g1\n")
            return workspace.read_text("gen")

        world.write("gen", "of the host\n")
        accepted = (await world.run(body, writes=("gen",))).unwrap()
        assert accepted.output == "g1\n"
        assert accepted.record is not None
        assert "gen" not in [seen.path for seen in accepted.record.observed]

    async def test_a_removed_file_is_the_bodys_own_to_look_for(self, world: World) -> None:
        def body(workspace: Workspace) -> bool:
            workspace.remove("old")
            return workspace.exists("old")

        assert (await world.run(body, writes=(), removes=("old",))).unwrap().output is False

    async def test_a_08_and_b1_an_undeclared_write_is_named_and_nothing_is_written(self, world: World) -> None:
        def body(workspace: Workspace) -> None:
            _ = beta(workspace)
            workspace.write_text("other", "beta\n")

        before = world.snapshot()
        refused = (await world.run(body)).failure()
        assert isinstance(refused, UndeclaredWrite)
        assert (refused.code, refused.paths) == ("undeclared_write", ("other",))
        assert world.snapshot() == before

    async def test_sb3_an_undeclared_read_comes_before_an_undeclared_write(self, world: World) -> None:
        def body(workspace: Workspace) -> None:
            _ = code_of(lambda: workspace.read_bytes("secret"))
            workspace.write_text("other", "x")

        refused = (await world.run(body)).failure()
        assert isinstance(refused, UndeclaredRead)
        assert refused.paths == ("secret",)
        assert world.read("other") is None

    async def test_a_09_sb25_and_b2_in_expected_mode_deviations_are_told(self, world: World) -> None:
        def body(workspace: Workspace) -> str:
            workspace.write_text("out/r", "beta\n")
            workspace.write_text("other", "x")
            return code_of(lambda: workspace.read_bytes("secret"))

        accepted = (await world.run(body, mode="expected")).unwrap()
        assert accepted.output == "not_found"
        assert accepted.violations == Violations(("secret",), ("other",))
        assert accepted.deviation is not None
        assert accepted.deviation.violations == accepted.violations

    async def test_a_10_and_b4_a_missing_output_is_told_before_anything_is_written(self, world: World) -> None:
        before = world.snapshot()
        refused = (await world.run(lambda workspace: workspace.queue_effect("k1"))).failure()
        assert refused == MissingOutput(("out/r",), EMPTY)
        assert world.snapshot() == before

    async def test_b3_in_expected_mode_a_missing_output_is_a_deviation(self, world: World) -> None:
        accepted = (await world.run(lambda _: None, mode="expected")).unwrap()
        assert accepted.deviation is not None
        assert accepted.deviation.missing_outputs == ("out/r",)

    async def test_b5_a_write_glob_may_match_nothing(self, world: World) -> None:
        assert (await world.run(lambda _: 1, writes=("gen/*.txt",))).unwrap().changes == ()

    async def test_a_11_and_b7_a_removal_that_is_still_there_is_told(self, world: World) -> None:
        before = world.snapshot()
        refused = await world.run(lambda _: None, writes=(), removes=("old",))
        assert refused == Failure(SurvivingRemoval(("old",), EMPTY))
        assert world.snapshot() == before
        accepted = (await world.run(lambda _: None, writes=(), removes=("old",), mode="expected")).unwrap()
        assert accepted.deviation is not None
        assert accepted.deviation.surviving_removals == ("old",)

    async def test_a_12_and_sb6_a_removal_is_a_change(self, world: World) -> None:
        accepted = await world.settle(lambda workspace: workspace.remove("old"), writes=(), removes=("old",))
        identity = "diff1_6a99d90fff27ccc08c57f87b2f60646619d1d3c4aa64448d2dde9f49b6563c6c"
        assert (accepted.changes, accepted.diff_identity) == ((FileChange("old", "remove"),), identity)
        assert world.read("old") is None

    async def test_b6_a_removal_of_what_is_not_there_is_done(self, world: World) -> None:
        assert (await world.run(lambda _: 1, writes=(), removes=("nowhere",))).unwrap().changes == ()

    async def test_b8_a_declared_read_is_not_declared_to_be_written(self, world: World) -> None:
        refused = (await world.run(lambda workspace: workspace.write_text("in.txt", "x"), writes=())).failure()
        assert isinstance(refused, UndeclaredWrite)
        assert refused.paths == ("in.txt",)

    async def test_a_14_materializing_twice_writes_once(self, world: World) -> None:
        async with await world.open() as transaction:
            accepted = (await transaction.execute(Boundary(("in.txt",), ("out/r",)), beta)).unwrap()
            _ = (await transaction.materialize(accepted)).unwrap()
            after = world.snapshot()
            assert await transaction.materialize(accepted) == Success(Materialized(()))
            assert world.snapshot() == after

    async def test_cb11_nothing_is_materialized_of_a_step_that_changed_nothing(self, world: World) -> None:
        before = world.snapshot()
        accepted = await world.settle(lambda _: 1, writes=())
        assert (accepted.changes, accepted.diff_identity, world.snapshot()) == ((), EMPTY, before)

    async def test_a_16_a_workspace_and_its_handles_are_dead_once_the_body_has_ended(self, world: World) -> None:
        kept: list[tuple[Workspace, BufferedIOBase]] = []
        _ = await world.run(lambda workspace: kept.append((workspace, workspace.open_binary("in.txt"))), writes=())
        workspace, handle = kept[0]
        calls: list[Callable[[], object]] = [
            lambda: workspace.read_bytes("in.txt"),
            handle.read,
            lambda: workspace.exists("in.txt"),
            lambda: workspace.list_dir("."),
            lambda: workspace.write_text("out/r", "late"),
            lambda: workspace.queue_effect("late"),
        ]
        assert [code_of(call) for call in calls] == ["closed"] * len(calls)

    @pytest.mark.parametrize("peeks", [False, True], ids=["plain", "after an undeclared read"])
    async def test_a_17_sb11_and_sb32_a_cancelled_body_stays_cancelled(self, world: World, peeks: bool) -> None:
        begun = asyncio.Event()

        async def body(workspace: Workspace) -> None:
            workspace.write_text("out/r", "beta\n")
            if peeks:
                _ = code_of(lambda: workspace.read_bytes("secret"))
            begun.set()
            await asyncio.Event().wait()

        before = world.snapshot()
        async with await world.open() as transaction:
            running = asyncio.ensure_future(transaction.execute(Boundary(("in.txt",), ("out/r",)), body))
            await begun.wait()
            _ = running.cancel()
            with pytest.raises(asyncio.CancelledError):
                _ = await running
        assert world.snapshot() == before

    async def test_a_cancelled_body_on_a_thread_can_do_nothing_more(self, world: World) -> None:
        begun, go_on, codes = threading.Event(), threading.Event(), list[str]()

        def body(workspace: Workspace) -> None:
            begun.set()
            _ = go_on.wait(60)
            codes.append(code_of(lambda: workspace.write_text("out/r", "late")))
            ended.set()

        ended = threading.Event()
        async with await world.open() as transaction:
            running = asyncio.ensure_future(transaction.execute(Boundary(("in.txt",), ("out/r",)), body))
            assert await asyncio.to_thread(begun.wait, 60)
            _ = running.cancel()
            with pytest.raises(asyncio.CancelledError):
                _ = await running
            go_on.set()
            assert await asyncio.to_thread(ended.wait, 60)
        assert codes == ["closed"]

    async def test_a_19_two_transactions_at_once_both_land(self, world: World) -> None:
        async def write(name: str) -> None:
            async with await world.open() as transaction:
                boundary = Boundary((), (f"out/{name}",))
                accepted = await transaction.execute(boundary, lambda it: it.write_text(f"out/{name}", f"{name}\n"))
                _ = (await transaction.materialize(accepted.unwrap())).unwrap()

        _ = await asyncio.gather(write("a"), write("b"))
        assert (world.read("out/a"), world.read("out/b")) == (b"a\n", b"b\n")

    async def test_a_23_one_script_gives_one_trace(self, world: World) -> None:
        def script(workspace: Workspace) -> list[str]:
            _ = workspace.read_bytes("in.txt")
            names = workspace.list_dir("src")
            workspace.write_text("out/r", "beta\n")
            return names

        accepted = [(await world.run(script, reads=("in.txt", "src/**"))).unwrap() for _ in range(2)]
        assert accepted[0] == accepted[1]
        assert accepted[0].record == accepted[1].record
        assert accepted[0].record is not None
        assert [(it.look, it.path) for it in accepted[0].record.observed] == [("read", "in.txt"), ("list", "src")]

    async def test_a_result_of_another_transaction_is_refused(self, world: World) -> None:
        accepted = (await world.run(beta)).unwrap()
        async with await world.open() as transaction:
            assert error_of(await transaction.materialize(accepted))[0] == "unknown_result"

    async def test_a_transaction_that_was_left_is_closed(self, world: World) -> None:
        async with await world.open() as transaction:
            accepted = (await transaction.execute(Boundary(("in.txt",), ("out/r",)), beta)).unwrap()
        assert error_of(await transaction.materialize(accepted))[0] == "closed"
        assert error_of(await transaction.execute(Boundary(), lambda _: 1))[0] == "closed"
        assert world.read("out/r") is None

    async def test_async_bodies_and_callables_of_every_kind(self, world: World) -> None:
        async def later(workspace: Workspace) -> str:
            await asyncio.sleep(0)
            return workspace.read_text("in.txt")

        class Called:
            async def __call__(self, workspace: Workspace) -> str:
                return await later(workspace)

        async with await world.open() as transaction:
            reads = Boundary(("in.txt",))
            assert (await transaction.execute(reads, later)).unwrap().output == "alpha\n"
            assert (await transaction.execute(reads, Called())).unwrap().output == "alpha\n"
            assert (await transaction.execute(reads, lambda it: later(it))).unwrap().output == "alpha\n"

    @pytest.mark.parametrize("error", [StopIteration("x"), SystemExit(3), asyncio.CancelledError()], ids=repr)
    @pytest.mark.parametrize("is_async", [False, True], ids=["thread", "loop"])
    async def test_a_body_that_raises_what_is_odd_has_failed(
        self, world: World, error: BaseException, is_async: bool
    ) -> None:
        def on_thread(_workspace: Workspace) -> NoReturn:
            raise error

        async def on_loop(_workspace: Workspace) -> NoReturn:
            raise error

        assert isinstance((await world.run(on_loop if is_async else on_thread)).failure(), BodyFailed)

    # --- declarations -------------------------------------------------------

    async def test_d_09_a_directory_is_no_declared_read(self, world: World) -> None:
        code, message = error_of(await world.run(lambda _: 1, reads=("src",)))
        assert code == "unsupported_file_type"
        assert "src/**" in message

    @pytest.mark.parametrize(
        ("reads", "removes", "code"),
        [(("../x",), (), "invalid_path"), (("/abs",), (), "path_escapes_workspace"), ((), ("..",), "invalid_path")],
    )
    async def test_sb22_a_declaration_that_escapes_is_answered_before_the_body_runs(
        self, world: World, reads: tuple[str, ...], removes: tuple[str, ...], code: str
    ) -> None:
        ran: list[int] = []
        refused = await world.run(lambda _: ran.append(1), reads=reads, writes=(), removes=removes)
        assert (error_of(refused)[0], ran) == (code, [])

    async def test_sb16_a_glob_of_everything_has_the_dotfiles(self, world: World) -> None:
        world.write(".env", "E=1\n")
        accepted = await world.run(lambda workspace: workspace.read_text(".env"), reads=("**/*",), writes=())
        assert accepted.unwrap().output == "E=1\n"

    async def test_sb15_a_glob_at_the_top_is_that_of_the_top(self, world: World) -> None:
        def body(workspace: Workspace) -> list[bool]:
            return [workspace.exists("top.ts"), "nested.ts" in workspace.glob("**/*.ts")]

        world.write("top.ts", "1")
        world.write("src/nested.ts", "1")
        assert (await world.run(body, reads=("*.ts",), writes=())).unwrap().output == [True, False]

    async def test_sb21_globs_and_removals_are_seeded(self, world: World) -> None:
        def body(workspace: Workspace) -> list[str]:
            workspace.remove("old")
            return workspace.glob("**")

        accepted = await world.run(body, reads=("src/**", "in.txt"), writes=(), removes=("old",))
        assert accepted.unwrap().output == ["in.txt", "src/.hid.py", "src/a.py", "src/d/b.py"]

    async def test_sb2_writes_under_a_tree_and_under_a_glob(self, world: World) -> None:
        def body(workspace: Workspace) -> None:
            workspace.write_text("tree/deep/x", "1")
            workspace.write_text("flat/y.txt", "2")

        accepted = await world.settle(body, writes=("tree/**", "flat/*.txt"))
        assert [change.path for change in accepted.changes] == ["flat/y.txt", "tree/deep/x"]

    async def test_sb7_a_body_reads_and_writes(self, world: World) -> None:
        def body(workspace: Workspace) -> str:
            text = workspace.read_text("src/input.txt")
            workspace.write_text("out/result.txt", text + "!")
            return text

        world.write("src/input.txt", "input")
        accepted = await world.settle(body, reads=("src/input.txt",), writes=("out/result.txt",))
        assert (accepted.output, [it.path for it in accepted.changes]) == ("input", ["out/result.txt"])
        assert world.read("out/result.txt") == b"input!"

    async def test_sb19_existence_of_what_is_declared_and_of_what_is_not(self, world: World) -> None:
        def body(workspace: Workspace) -> list[bool]:
            return [workspace.exists("in.txt"), workspace.exists("secret")]

        assert (await world.run(body, writes=(), mode="expected")).unwrap().output == [True, False]
        assert isinstance((await world.run(body, writes=())).failure(), UndeclaredRead)

    async def test_b10_and_b11_what_is_seen_is_what_is_there_whatever_was_measured_before(self, world: World) -> None:
        reads = (DeclaredRead("in.txt", digest_of(b"of before")), DeclaredRead("gone", digest_of(b"gone")))
        async with await world.open() as transaction:
            accepted = await transaction.execute(
                Boundary(reads), lambda it: (it.read_bytes("in.txt"), it.exists("gone"))
            )
        assert accepted.unwrap().output == (b"alpha\n", False)
        record = accepted.unwrap().record
        assert record is not None
        assert [(it.path, it.outcome) for it in record.observed] == [
            ("in.txt", digest_of(b"alpha\n")),
            ("gone", "absent"),
        ]

    # --- looking ------------------------------------------------------------

    async def test_p_01_and_sb20_asking_whether_an_undeclared_path_exists(self, world: World) -> None:
        def body(workspace: Workspace) -> tuple[bool, bool]:
            return workspace.exists("nope"), workspace.exists("secret")

        accepted = (await world.run(body, writes=(), mode="expected")).unwrap()
        assert accepted.output == (False, False)
        assert accepted.violations.reads == ("secret",)
        assert accepted.record is not None
        looks = [(it.look, it.path, it.outcome) for it in accepted.record.observed]
        assert looks == [("probe", "nope", "absent"), ("exists", "secret", "undeclared")]
        assert await world.run(body, writes=()) == Failure(UndeclaredRead(("secret",), EMPTY))

    async def test_p_02_looking_at_an_undeclared_path_in_any_way(self, world: World) -> None:
        def body(workspace: Workspace) -> list[str]:
            _ = code_of(lambda: workspace.is_executable("secret"))
            _ = code_of(lambda: workspace.read_bytes("secret"))
            return workspace.list_dir(".")

        accepted = (await world.run(body, writes=(), mode="expected")).unwrap()
        assert (accepted.output, accepted.violations.reads) == (["in.txt"], ("secret",))
        looks: list[Callable[[Workspace], object]] = [
            lambda it: it.read_link("secret"),
            lambda it: it.open_binary("secret"),
            lambda it: it.is_dir("secret"),
            lambda it: it.list_dir("src"),
        ]
        for look in looks:
            refused = (await world.run(look, writes=())).failure()
            assert isinstance(refused, UndeclaredRead), refused

    async def test_p_03_sb18_and_sb23_listings_show_what_was_seeded_and_produced(self, world: World) -> None:
        def body(workspace: Workspace) -> list[list[str]]:
            before = [workspace.list_dir(path) for path in ("", ".", "src")]
            workspace.write_text("out/x", "1")
            return [*before, workspace.list_dir(".")]

        accepted = (await world.run(body, reads=("in.txt", "src/**"), writes=("out/x",))).unwrap()
        top, src = ["in.txt", "src"], [".hid.py", "a.py", "d"]
        assert accepted.output == [top, top, src, ["in.txt", "out", "src"]]
        assert accepted.record is not None
        assert {it.path for it in accepted.record.observed if it.look == "list"} == {"", "src"}

    async def test_p_04_and_sb13_spellings_of_a_path(self, world: World) -> None:
        def body(workspace: Workspace) -> list[str]:
            up = [code_of(partial(workspace.read_bytes, path)) for path in ("src/../in.txt", "../x")]
            return [*up, workspace.read_text("./in.txt"), workspace.read_text("src//a.py")]

        accepted = (await world.run(body, reads=("in.txt", "src/**"), writes=())).unwrap()
        assert accepted.output == ["invalid_path", "invalid_path", "alpha\n", "A=1\n"]

    async def test_p_05_the_absolute_spelling_of_the_workspace(self, world: World) -> None:
        def body(workspace: Workspace) -> str:
            workspace.write_text("/stepwell/ws/out/r", "beta\n")
            return workspace.read_text("/stepwell/ws/in.txt")

        accepted = (await world.run(body)).unwrap()
        assert (accepted.output, accepted.diff_identity) == ("alpha\n", BETA)
        assert accepted.record is not None
        assert [it.path for it in accepted.record.observed] == ["in.txt"]

    @pytest.mark.parametrize("path", ["a\0b", "a\nb", "a\x7f", "a\udc80", ""], ids=ascii)
    async def test_p_07_and_sb17_what_is_no_path_is_refused_without_asking_the_host(
        self, world: World, path: str
    ) -> None:
        def body(workspace: Workspace) -> list[str]:
            calls: list[Callable[[], object]] = [
                lambda: workspace.read_bytes(path),
                lambda: workspace.write_bytes(path, b""),
                lambda: workspace.exists(path),
                lambda: workspace.remove(path),
            ]
            return [code_of(call) for call in calls]

        assert (await world.run(body, writes=())).unwrap().output == ["invalid_path"] * 4

    async def test_sb12_operations_that_escape_are_refused(self, world: World) -> None:
        def body(workspace: Workspace) -> list[str]:
            calls: list[Callable[[], object]] = [
                lambda: workspace.read_bytes("../x"),
                lambda: workspace.remove(".."),
                lambda: workspace.write_text("/abs", "1"),
                lambda: workspace.read_bytes("gone.txt"),
            ]
            return [code_of(call) for call in calls]

        accepted = (await world.run(body, reads=("gone.txt",), writes=())).unwrap()
        assert accepted.output == ["invalid_path", "invalid_path", "path_escapes_workspace", "not_found"]

    async def test_a_refusal_that_the_body_lets_pass_is_the_answer(self, world: World) -> None:
        assert error_of(await world.run(lambda workspace: workspace.read_bytes("../x")))[0] == "invalid_path"
        missing = await world.run(lambda workspace: workspace.read_bytes("gone.txt"), reads=("gone.txt",))
        assert error_of(missing)[0] == "not_found"

    async def test_p_10_the_deepest_and_the_longest_path(self, world: World) -> None:
        def write(path: str) -> Callable[[Workspace], None]:
            return lambda workspace: workspace.write_text(path, "1")

        deep = ["/".join(["d"] * depth) for depth in (64, 65)]
        names = ["n" * 200] * 5
        longest = "/".join([*names, "n" * (1_024 - 5 * 201)])
        for path, is_possible in ((deep[0], True), (deep[1], False), (longest, True), (longest + "n", False)):
            outcome = await world.run(write(path), writes=("**/*",))
            if is_possible:
                assert isinstance(outcome, Success), path
            else:
                assert isinstance(outcome.failure(), LimitExceeded)

    async def test_sb29_one_file_is_one_violation(self, world: World) -> None:
        def body(workspace: Workspace) -> None:
            for _ in range(3):
                _ = code_of(lambda: workspace.read_bytes("secret"))

        assert await world.run(body, writes=()) == Failure(UndeclaredRead(("secret",), EMPTY))

    async def test_a_declared_removal_is_not_declared_to_be_read(self, world: World) -> None:
        def body(workspace: Workspace) -> None:
            _ = code_of(lambda: workspace.read_bytes("old"))
            workspace.remove("old")

        refused = (await world.run(body, writes=(), removes=("old",))).failure()
        assert isinstance(refused, UndeclaredRead)
        assert refused.paths == ("old",)

    # --- names --------------------------------------------------------------

    @pytest.mark.parametrize(
        ("one", "other"), [("A.txt", "a.txt"), ("caf\u00e9", "cafe\u0301")], ids=["u_03_case", "u_05_unicode"]
    )
    async def test_u_03_and_u_05_names_that_are_one_elsewhere_collide(self, world: World, one: str, other: str) -> None:
        def body(workspace: Workspace) -> None:
            workspace.write_text(f"out/{one}", "1")
            workspace.write_text(f"out/{other}", "2")

        code, message = error_of(await world.run(body, writes=("out/**",)))
        assert code == "name_collision"
        assert f"out/{one}" in message or ascii(f"out/{one}") in message

    @pytest.mark.parametrize("name", ["con", "nul.txt", "x.", "a:b"])
    async def test_u_07_names_that_windows_takes_for_others(self, world: World, name: str) -> None:
        code, message = error_of(await world.run(lambda it: it.write_text(f"out/{name}", "1"), writes=("out/**",)))
        assert code == "invalid_path"
        assert name in message

    # --- links --------------------------------------------------------------

    async def test_s_07_a_link_is_no_licence_to_read_what_it_leads_to(self, world: World) -> None:
        world.write("in2.txt", "two\n")
        world.link("ln", "in2.txt")
        refused = (await world.run(lambda workspace: workspace.read_bytes("ln"), reads=("ln",))).failure()
        assert isinstance(refused, UndeclaredRead)
        assert refused.paths == ("in2.txt",)
        accepted = await world.run(lambda it: it.read_text("ln"), reads=("ln", "in2.txt"), writes=())
        assert accepted.unwrap().output == "two\n"

    @pytest.mark.parametrize("target", ["/etc/passwd", "../../x", "../nope", "l"])
    async def test_s_08_links_that_lead_out_or_nowhere_are_refused(self, world: World, target: str) -> None:
        before = world.snapshot()
        code, message = error_of(await world.run(lambda it: it.make_link("out/l", target), writes=("out/**",)))
        assert code in ("path_escapes_workspace", "unsupported_file_type")
        assert "out/l" in message
        assert target in message
        assert world.snapshot() == before

    async def test_s_09_a_link_is_copied_back_as_a_link(self, world: World) -> None:
        def body(workspace: Workspace) -> str:
            workspace.write_text("out/f", "1")
            workspace.make_link("out/l", "f")
            return workspace.read_text("out/l")

        accepted = await world.settle(body, writes=("out/**",))
        assert (accepted.output, world.link_target("out/l")) == ("1", "f")

    # --- writing ------------------------------------------------------------

    async def test_w_01_and_sb13_rewriting_the_same_bytes_is_no_change(self, world: World) -> None:
        before = world.snapshot()
        accepted = await world.settle(lambda it: it.write_text("in.txt", "alpha\n"), writes=("in.txt",))
        assert (accepted.changes, accepted.diff_identity, world.snapshot()) == ((), EMPTY, before)

    async def test_w_02_what_was_written_and_removed_is_no_change(self, world: World) -> None:
        def body(workspace: Workspace) -> None:
            workspace.write_text("out/t", "1")
            workspace.remove("out/t")

        accepted = (await world.run(body, writes=("out/**",))).unwrap()
        assert "out/t" not in [change.path for change in accepted.changes]

    async def test_w_04_a_renamed_file_is_a_removal_and_a_creation(self, world: World) -> None:
        def body(workspace: Workspace) -> None:
            workspace.rename("src/a.py", "src/z.py")

        refused = (await world.run(body, reads=("src/a.py",), writes=("src/z.py",))).failure()
        assert isinstance(refused, UndeclaredWrite)
        assert refused.paths == ("src/a.py",)
        accepted = await world.settle(body, reads=("src/a.py",), writes=("src/z.py",), removes=("src/a.py",))
        assert accepted.changes == (FileChange("src/a.py", "remove"), FileChange("src/z.py", "create"))
        assert (world.read("src/a.py"), world.read("src/z.py")) == (None, b"A=1\n")

    async def test_w_05_handles_append_seek_and_truncate(self, world: World) -> None:
        def body(workspace: Workspace) -> bytes:
            workspace.write_text("out/r", "abcdef")
            with workspace.open_binary("out/r", "a") as appending:
                _ = appending.write(b"gh")
            with workspace.open_binary("out/r", "r+") as second:
                _ = second.seek(2)
                _ = second.write(b"XY")
                _ = second.truncate(6)
            return workspace.read_bytes("out/r")

        accepted = await world.settle(body)
        assert (accepted.output, world.read("out/r")) == (b"abXYef", b"abXYef")
        assert accepted.changes == (FileChange("out/r", "create"),)

    async def test_w_06_only_the_exec_bit(self, world: World) -> None:
        accepted = await world.settle(lambda it: it.set_executable("in.txt", True), writes=("in.txt",))
        assert accepted.diff_identity != EMPTY
        assert (world.read("in.txt"), world.is_executable("in.txt")) == (b"alpha\n", True)

    async def test_w_09_and_w_10_directories_of_a_tree_count(self, world: World) -> None:
        def body(workspace: Workspace) -> None:
            workspace.make_dir("out/empty")
            workspace.write_text("out/f", "1")

        _ = await world.settle(body, writes=("out/**",))
        assert (world.is_dir("out/empty"), world.read("out/f")) == (True, b"1")
        _ = await world.settle(lambda _: None, writes=("nothing/**",))
        assert world.is_dir("nothing")

    async def test_w_13_a_file_of_no_bytes(self, world: World) -> None:
        accepted = await world.settle(lambda it: it.write_bytes("out/r", b""))
        assert (accepted.changes, world.read("out/r")) == ((FileChange("out/r", "create"),), b"")

    async def test_w_16_b20_and_sb33_small_outputs_are_inline_and_large_ones_artifacts(self, world: World) -> None:
        def sizes(folder: str, *sizes: int) -> Callable[[Workspace], None]:
            def body(workspace: Workspace) -> None:
                for number, size in enumerate(sizes):
                    workspace.write_bytes(f"{folder}/{number}", bytes([number]) * size)

            return body

        mib = 2**20
        accepted = await world.settle(sizes("two", mib, mib + 1), writes=("two/**",))
        assert [change.data is not None for change in accepted.changes] == [True, False]
        assert [len(world.read(f"two/{number}") or b"") for number in range(2)] == [mib, mib + 1]
        accepted = await world.settle(sizes("nine", *[mib] * 9), writes=("nine/**",))
        assert [change.data is not None for change in accepted.changes] == [True] * 8 + [False]
        assert world.read("nine/8") == bytes([8]) * mib

    async def test_w_17_a_handle_has_the_bytes_of_when_it_was_opened(self, world: World) -> None:
        def body(workspace: Workspace) -> list[bytes]:
            workspace.write_text("out/r", "one")
            old = workspace.open_binary("out/r")
            with workspace.open_binary("out/r", "w") as writer:
                _ = writer.write(b"two!")
            with old, workspace.open_binary("out/r") as new:
                return [old.read(), new.read()]

        assert (await world.run(body)).unwrap().output == [b"one", b"two!"]

    async def test_text_handles_and_what_is_left_open(self, world: World) -> None:
        def body(workspace: Workspace) -> list[str]:
            with workspace.open_text("out/r", "x") as writer:
                _ = writer.write("gr\u00fc\u00df\r\ndich\n")
            left.append(workspace.open_binary("out/late", "w"))
            _ = left[0].write(b"not closed")
            with workspace.open_text("out/r") as reader:
                return list(reader)

        left: list[BufferedIOBase] = []
        accepted = await world.settle(body, writes=("out/**",))
        assert accepted.output == ["gr\u00fc\u00df\r\n", "dich\n"]
        assert world.read("out/late") == b"not closed"

    @pytest.mark.parametrize("mode", ["rb", "q", "", "rw", "br+", "wb"])
    async def test_sb24_a_mode_that_is_none_is_refused_and_loses_nothing(self, world: World, mode: str) -> None:
        def body(workspace: Workspace) -> str:
            with workspace.open_binary("in.txt", mode):  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
                return "opened"

        async with await world.open() as transaction:
            ended = await transaction.execute(Boundary(("in.txt",), ("in.txt",)), body)
        if mode in ("rb", "br+", "wb"):
            assert ended.unwrap().output == "opened"
            assert bool(ended.unwrap().changes) is (mode == "wb")
        else:
            failed = ended.failure()
            assert isinstance(failed, BodyFailed)
            assert failed.cause.type == "ValueError"

    async def test_directories_are_moved_whole(self, world: World) -> None:
        def body(workspace: Workspace) -> list[str]:
            workspace.write_text("out/a/x", "1")
            workspace.write_text("out/a/b/y", "2")
            workspace.rename("out/a", "out/c")
            return workspace.glob("out/**")

        assert (await world.run(body, writes=("out/**",))).unwrap().output == ["out/c/b/y", "out/c/x"]

    async def test_sb34_an_output_at_the_top(self, world: World) -> None:
        _ = await world.settle(lambda it: it.write_text("top", "1"), writes=("top",))
        assert world.read("top") == b"1"

    async def test_m_06_and_sb35_a_blind_write_replaces_what_was_there_when_the_step_began(self, world: World) -> None:
        world.write("out/r", "v1")
        accepted = await world.settle(beta)
        assert accepted.changes == (FileChange("out/r", "modify"),)
        assert world.read("out/r") == b"beta\n"

    async def test_what_is_in_a_tree_and_was_not_seen_stays(self, world: World) -> None:
        world.write("out/unseen", "kept")
        _ = await world.settle(lambda it: it.write_text("out/new", "1"), writes=("out/**",))
        assert (world.read("out/unseen"), world.read("out/new")) == (b"kept", b"1")

    @pytest.mark.parametrize("removes_it", [False, True])
    async def test_a_tree_has_the_directories_that_the_body_left(self, world: World, removes_it: bool) -> None:
        def body(workspace: Workspace) -> None:
            workspace.remove("out/sub/x")
            if removes_it:
                workspace.remove("out/sub")

        world.write("out/sub/x", "1")
        _ = await world.settle(body, reads=("out/**",), writes=("out/**",))
        assert (world.is_dir("out/sub"), world.is_dir("out")) == (not removes_it, True)

    # --- conflicts ----------------------------------------------------------

    async def test_cb12_and_m_01_one_target_that_moved_stops_all(self, world: World) -> None:
        def body(workspace: Workspace) -> None:
            for number in range(5):
                workspace.write_text(f"out/{number}", "new")

        world.write("out/3", "v1")
        async with await world.open() as transaction:
            accepted = (await transaction.execute(Boundary((), ("out/**",)), body)).unwrap()
            world.write("out/3", "EDIT")
            before = world.snapshot()
            assert await transaction.materialize(accepted) == Failure(MaterializationConflict(("out/3",)))
        assert world.snapshot() == before

    async def test_a_target_that_appears_meanwhile_is_a_conflict(self, world: World) -> None:
        async with await world.open() as transaction:
            accepted = (await transaction.execute(Boundary(("in.txt",), ("out/r",)), beta)).unwrap()
            world.write("out/r", "of somebody else")
            assert await transaction.materialize(accepted) == Failure(MaterializationConflict(("out/r",)))
        assert world.read("out/r") == b"of somebody else"

    @pytest.mark.parametrize("path", [".stepwell/sandbox/lock", ".git/config"])
    async def test_cb10_what_belongs_to_the_sandbox_is_not_written(self, world: World, path: str) -> None:
        before = world.snapshot()
        code, message = error_of(await world.run(lambda it: it.write_text(path, "1"), writes=("**/*",)))
        assert (code, path in message) == ("protected_path", True)
        assert world.snapshot() == before

    # --- misuse -------------------------------------------------------------

    async def test_an_effect_that_is_not_json_is_a_type_error(self, world: World) -> None:
        failed = (await world.run(lambda workspace: workspace.queue_effect({1, 2}))).failure()
        assert isinstance(failed, BodyFailed)
        assert failed.cause.type == "TypeError"
