"""Random steps are recorded on one host and replayed on another one; random records are replayed that no step made.

What a replay leaves is told by a model of a few lines, from the words of its promise.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from stepwell import Failure, Success
from stepwell.core.boundary import Boundary, Declaration, declare
from stepwell.core.glob import is_glob
from stepwell.core.measured import MeasuredReads
from stepwell.core.node import DirNode, FileNode, LinkNode, digest_of
from stepwell.core.outputs import Output, Outputs, needed, outputs_json, read_outputs
from stepwell.core.step_sandbox import FileChange, Materialized
from stepwell.core.workspace_limits import WorkspaceLimits

from .replay_world import model
from .sandbox_world import FolderWorld, Host, World, open_world
from .test_sandbox_properties import PROGRAMS, Program, nodes_of, perform

LIMITS = WorkspaceLimits(inline_bytes=5)

TARGETS = st.sampled_from(["out/r", "out/d", "out/d/x", "out/d/y", "out/e/f", "out/r/z"])
TEXTS = st.sampled_from(["", "1", "alpha\n", "longer than five"])
WRITTEN = st.one_of(
    st.tuples(st.just("write"), TARGETS, TEXTS),
    st.tuples(st.sampled_from(["make_dir", "remove", "set_executable"]), TARGETS),
    st.tuples(st.just("make_link"), TARGETS, st.sampled_from(["r", "x", "../in.txt", "../r"])),
    st.tuples(st.just("rename"), TARGETS, TARGETS),
)


@st.composite
def accepted_programs(draw: st.DrawFn) -> Program:
    """Programs that mostly are accepted: they write to a tree, or to a file and what a pattern stands for."""
    reads = draw(st.sampled_from([(), ("in.txt",), ("in.txt", "src/**"), ("out/**", "in.txt")]))
    in_tree = draw(st.booleans())
    operations = draw(st.lists(WRITTEN, min_size=1, max_size=6))
    if not in_tree:
        operations = [("write", "out/r", draw(TEXTS)), *(it for it in operations if it[1] in ("out/d/x", "out/d/y"))]
        operations = [it for it in operations if it[0] in ("write", "set_executable")]
    removes = draw(st.sampled_from([(), ("old",)]))
    operations += [("remove", path) for path in removes]
    return Program(reads, ("out/**",) if in_tree else ("out/r", "out/d/*"), removes, True, tuple(operations))


HARD = accepted_programs() | accepted_programs() | PROGRAMS.map(lambda program: replace(program, is_hard=True))

EDITS = st.lists(
    st.tuples(
        st.sampled_from(["write", "run", "link", "remove"]),
        st.sampled_from(
            ["out/r", "out/d/x", "out/d", "out/stale", "out", "other", "old", "in.txt", "src/a.py", "run.sh"]
        ),
        st.sampled_from(["", "1", "alpha\n"]),
    ),
    max_size=6,
)
"""What somebody does to a host between the recording and the replay."""


@asynccontextmanager
async def a_world(host: Host) -> AsyncGenerator[World]:
    folder = Path(tempfile.mkdtemp())
    try:
        async with open_world(host, folder / "root", limits=LIMITS) as world:
            world.link("ln", "in.txt")
            yield world
    finally:
        shutil.rmtree(folder)


def edit(world: World, what: str, path: str, text: str) -> None:
    """Do it if it can be done; no file of a test lies behind a link."""
    if any(world.link_target(above) is not None for above in ("out", "out/d") if path.startswith(f"{above}/")):
        return
    try:
        if what == "remove" or world.link_target(path) is not None:
            world.remove(path)
        elif what == "link":
            world.link(path, "nowhere")
        else:
            world.write(path, text, executable=what == "run")
    except (OSError, ValueError, KeyError):
        return  # as of a directory that is there


async def record_of(host: Host, program: Program) -> tuple[Outputs, dict[str, bytes]] | None:
    """The record of a step with the bytes of its artifacts, and None if the step is refused."""
    async with a_world(host) as world, await world.open_caching() as transaction:
        executed = await transaction.execute(
            program.boundary(), lambda it: [perform(it, operation) for operation in program.operations]
        )
        if isinstance(executed, Failure):
            return None
        recorded = (await transaction.record(executed.unwrap())).unwrap()
        read = read_outputs(outputs_json(recorded))
        assert read == recorded
        assert isinstance(read, Outputs)
        return read, {digest: (await world.artifacts.get(digest)).unwrap() for digest in needed(read)}


async def replay_on(host: Host, program: Program, edits: list[tuple[str, str, str]]) -> None:
    found = await record_of(host, program)
    if found is None:
        return event("the step was refused")
    outputs, blobs = found
    boundary = program.boundary()
    async with a_world(host) as world, await world.open_caching() as transaction:
        for data in blobs.values():
            _ = (await world.artifacts.put(data)).unwrap()
        for what, path, text in edits:
            edit(world, what, path, text)
        measured = await transaction.measure(boundary)
        if isinstance(measured, Failure):
            return event("the reads cannot be measured")
        before, untouched = nodes_of(world), world.snapshot()
        replayed = await transaction.replay(boundary, outputs, measured.unwrap())
        if isinstance(replayed, Failure):
            event("the replay was refused")
            assert world.snapshot() == untouched
            return None
        event("replayed" if replayed.unwrap().changes else "all was there")
        assert nodes_of(world) == model(before, outputs, declared(boundary).trees)
        assert all(world.is_dir(entry.path) for entry in outputs.entries if entry.node == DirNode())
        moved = {
            path for path in before.keys() | nodes_of(world).keys() if before.get(path) != nodes_of(world).get(path)
        }
        told = [it for it in replayed.unwrap().changes if not is_of_directories(it)]
        assert {it.path for it in told} == moved
        after = world.snapshot()
        again = (await transaction.measure(boundary)).unwrap()
        assert await transaction.replay(boundary, outputs, again) == Success(Materialized(()))
        assert world.snapshot() == after


def is_of_directories(change: FileChange) -> bool:
    """Whether it is only about an empty directory, which a host in memory shows otherwise than a folder."""
    return isinstance(change.before, DirNode | None) and isinstance(change.after, DirNode | None)


def declared(boundary: Boundary) -> Declaration:
    declaration = declare(boundary)
    assert isinstance(declaration, Declaration)
    return declaration


@pytest.mark.parametrize("host", ["memory", "folder"])
@settings(max_examples=120, deadline=None)
@given(program=HARD, edits=EDITS)
def test_a_replay_gives_what_was_recorded_and_changes_nothing_else(
    host: Host, program: Program, edits: list[tuple[str, str, str]]
) -> None:
    asyncio.run(replay_on(host, program, edits))


# --- records that no step made --------------------------------------------------

NAMES = st.sampled_from(
    [
        "a", "b", "..", ".", "", "out", "d", "con", "A", "\u00e9", "e\u0301", "x\\y", "x\0", "\udc80", "n" * 300,
        "in.txt", "secret", "src", "old", ".git", ".GIT", ".stepwell", "link",
    ]
)  # fmt: skip
ODD_PATHS = st.lists(NAMES, min_size=1, max_size=4).map("/".join) | st.builds("out/{}".format, NAMES)
DATA = st.sampled_from([b"", b"1", b"longer than five"])


@st.composite
def odd_outputs(draw: st.DrawFn) -> Output:
    path = draw(ODD_PATHS)
    match draw(st.sampled_from(["file", "wrong", "blob", "link", "directory"])):
        case "file":
            data = draw(DATA)
            return Output(path, FileNode(digest_of(data), len(data), draw(st.booleans())), data)
        case "wrong":
            digest = draw(st.sampled_from([digest_of(b"other"), "", "../x", "A" * 64]))
            return Output(path, FileNode(digest, draw(st.sampled_from([-1, 0, 1 << 60]))), draw(st.none() | DATA))
        case "blob":
            data = draw(DATA)
            return Output(path, FileNode(digest_of(data), len(data)))
        case "link":
            return Output(
                path, LinkNode(draw(ODD_PATHS | st.sampled_from(["/etc", "../..", "", "a/../../..", "\udc80"])))
            )
        case _:
            return Output(path, DirNode())


ODD_RECORDS = st.builds(
    Outputs, st.lists(odd_outputs(), max_size=4).map(tuple), st.lists(ODD_PATHS | st.just("old"), max_size=2).map(tuple)
)
BOUNDARIES = {
    Boundary(("in.txt",), ("out/**",)): ("out/a", "out/b", "out/d/x"),
    Boundary((), ("out/*", "a", "d/*/b")): ("out/a", "a", "d/x/b"),
    Boundary(("src/**",), ("out/a",), ("old",)): ("out/a",),
    Boundary((), ("**",)): ("out/b", "a", "src/new", "in.txt"),
    Boundary((), (".git/**", "src/**")): ("src/a.py", "src/new"),
}
"""What a step may declare, and some of what it may write then."""


@st.composite
def records(draw: st.DrawFn) -> tuple[Boundary, Outputs]:
    """Records that are right for a boundary, but perhaps for one entry; and some in which nothing is right."""
    boundary = draw(st.sampled_from(list(BOUNDARIES)))
    if draw(st.integers(0, 3)) == 0:
        return boundary, draw(ODD_RECORDS)
    data = draw(st.sampled_from([b"", b"1"]))
    nodes = st.just(FileNode(digest_of(data), len(data))) | st.just(LinkNode("b"))
    paths = draw(st.lists(st.sampled_from(BOUNDARIES[boundary]), min_size=1, unique=True))
    entries = [
        Output(path, draw(nodes))
        for path in dict.fromkeys((*paths, *boundary.writes))
        if not is_glob(path) or path in paths
    ]
    odd = draw(st.lists(odd_outputs(), max_size=1))
    return boundary, Outputs((*entries, *odd), tuple(boundary.removes))


async def replay_odd(host: Host, boundary: Boundary, outputs: Outputs) -> None:
    async with a_world(host) as world, await world.open_caching() as transaction:
        for data in (b"", b"1"):
            _ = (await world.artifacts.put(data)).unwrap()
        world.link("link", "../outside")
        world.write(".git/config", "of git")
        if isinstance(world, FolderWorld):
            (world.root.parent / "outside").mkdir()
            _ = (world.root.parent / "outside/kept").write_text("kept")
        before, snapshot = nodes_of(world), world.snapshot()
        declaration = declared(boundary)
        reads = await transaction.measure(boundary)
        measured = reads.unwrap() if isinstance(reads, Success) else MeasuredReads()
        replayed = await transaction.replay(boundary, outputs, measured)
        after = nodes_of(world)
        changed = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
        if isinstance(replayed, Failure):
            assert world.snapshot() == snapshot
        else:
            event("written" if changed else "nothing to write")
            assert after == model(before, outputs, declaration.trees)
        assert all(declaration.writes(path) or declaration.may_remove(path) for path in changed)
        assert not any(path.lower().startswith((".git", ".stepwell")) for path in changed)
        if isinstance(world, FolderWorld):
            around = world.root.parent
            assert sorted(each.name for each in around.iterdir()) == ["outside", world.root.name]
            assert [(each.name, each.read_text()) for each in (around / "outside").iterdir()] == [("kept", "kept")]


@pytest.mark.parametrize("host", ["memory", "folder"])
@settings(max_examples=200, deadline=None)
@given(record=records())
def test_b16_no_record_makes_a_replay_write_elsewhere(host: Host, record: tuple[Boundary, Outputs]) -> None:
    asyncio.run(replay_odd(host, *record))
