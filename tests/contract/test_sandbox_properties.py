"""The same operations give the same observations, changes and identities in memory and over a folder.

Whether the changes can come to the host is the same too; which refusal it is, where several things stand in the way, is
not compared.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from hypothesis import given, settings
from hypothesis import strategies as st

from stepwell import Success
from stepwell.core.boundary import Boundary
from stepwell.core.node import DirNode, Node
from stepwell.services.step_sandbox import Workspace, WorkspaceRefusal

from .sandbox_world import Host, World, open_world

Operation: TypeAlias = tuple[str, ...]
"""The name of a call of a workspace, and its arguments as text."""

PATHS = st.sampled_from(
    [
        "in.txt",
        "secret",
        "old",
        "run.sh",
        "src",
        "src/a.py",
        "src/d",
        "src/d/b.py",
        "nope",
        "out",
        "out/r",
        "out/d/x",
        ".",
        "ln",
    ]
)
TEXTS = st.sampled_from(["", "1", "alpha\n", "longer " * 40])
OPERATIONS = st.one_of(
    st.tuples(
        st.sampled_from(["read", "exists", "list", "remove", "make_dir", "is_dir", "executable", "read_link"]), PATHS
    ),
    st.tuples(st.just("write"), PATHS, TEXTS),
    st.tuples(st.just("append"), PATHS, TEXTS),
    st.tuples(st.just("rename"), PATHS, PATHS),
    st.tuples(st.just("set_executable"), PATHS),
    st.tuples(st.just("make_link"), PATHS, st.sampled_from(["r", "../in.txt", "/etc", "d/x", "nope"])),
    st.tuples(st.just("glob"), st.sampled_from(["**", "src/*", "out/**", "*.txt"])),
)

READS = st.lists(st.sampled_from(["in.txt", "src/**", "old", "run.sh", "gone", "*.txt", "ln"]), unique=True)
WRITES = st.lists(st.sampled_from(["out/r", "out/**", "out/d/*", "in.txt", "src/*.py", "run.sh"]), unique=True)


@dataclass(frozen=True)
class Program:
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    removes: tuple[str, ...]
    is_hard: bool
    operations: tuple[Operation, ...]

    def boundary(self) -> Boundary:
        return Boundary(self.reads, self.writes, self.removes, "hard" if self.is_hard else "expected")


PROGRAMS = st.builds(
    Program,
    READS.map(tuple),
    WRITES.map(tuple),
    st.sampled_from([(), ("old",)]),
    st.booleans(),
    st.lists(OPERATIONS, max_size=12).map(tuple),
)


def perform(workspace: Workspace, operation: Operation) -> object:
    """What an operation gives, or the code with which it is refused."""
    name, path, *rest = operation
    calls: dict[str, Callable[[], object]] = {
        "read": lambda: workspace.read_bytes(path),
        "exists": lambda: workspace.exists(path),
        "list": lambda: workspace.list_dir(path),
        "remove": lambda: workspace.remove(path),
        "make_dir": lambda: workspace.make_dir(path),
        "is_dir": lambda: workspace.is_dir(path),
        "executable": lambda: workspace.is_executable(path),
        "read_link": lambda: workspace.read_link(path),
        "write": lambda: workspace.write_text(path, rest[0]),
        "append": lambda: append(workspace, path, rest[0]),
        "rename": lambda: workspace.rename(path, rest[0]),
        "set_executable": lambda: workspace.set_executable(path, True),
        "make_link": lambda: workspace.make_link(path, rest[0]),
        "glob": lambda: workspace.glob(path),
    }
    try:
        return calls[name]()
    except WorkspaceRefusal as refusal:
        return refusal.code


def append(workspace: Workspace, path: str, text: str) -> None:
    with workspace.open_binary(path, "a") as handle:
        _ = handle.write(text.encode())


def nodes_of(world: World) -> dict[str, Node]:
    """Every file and link of a host, without what only a folder has."""
    return {path: node for path, node in world.nodes().items() if node != DirNode()}


async def outcome_of(host: Host, program: Program) -> list[object]:
    folder = Path(tempfile.mkdtemp())
    try:
        async with open_world(host, folder / "root") as world:
            world.link("ln", "in.txt")
            async with await world.open() as transaction:
                executed = await transaction.execute(
                    program.boundary(), lambda it: [perform(it, operation) for operation in program.operations]
                )
                if not isinstance(executed, Success):
                    return [repr(executed.failure()), nodes_of(world)]
                accepted = executed.unwrap()
                before = nodes_of(world)
                written = await transaction.materialize(accepted)
                seen = None if accepted.record is None else accepted.record.observed
                return [accepted, seen, isinstance(written, Success), before, nodes_of(world)]
    finally:
        shutil.rmtree(folder)


@settings(max_examples=150, deadline=None)
@given(PROGRAMS)
def test_q_01_both_hosts_answer_alike(program: Program) -> None:
    async def both() -> tuple[list[object], list[object]]:
        return await outcome_of("memory", program), await outcome_of("folder", program)

    memory, folder = asyncio.run(both())
    assert memory == folder
