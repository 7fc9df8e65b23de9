"""Steps that are recorded and replayed, and what is asked of a host about them."""

from __future__ import annotations

from collections.abc import Callable

from stepwell import Outcome
from stepwell.core.boundary import Boundary
from stepwell.core.measured import MeasuredReads
from stepwell.core.node import DirNode, FileNode, Node, digest_of
from stepwell.core.outputs import Output, Outputs, outputs_json, read_outputs
from stepwell.core.step_sandbox import Materialized
from stepwell.layers.artifacts import MemoryArtifacts
from stepwell.services.step_sandbox import Workspace

from .sandbox_world import World

LARGE = "large " * 5

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
    async with await world.open_caching() as transaction:
        accepted = (await transaction.execute(boundary, body)).unwrap()
        outputs = (await transaction.record(accepted)).unwrap()
        _ = (await transaction.materialize(accepted)).unwrap()
    read = read_outputs(outputs_json(outputs))
    assert read == outputs
    assert isinstance(read, Outputs)
    return read


async def measured(world: World, boundary: Boundary) -> MeasuredReads:
    async with await world.open_caching() as transaction:
        return (await transaction.measure(boundary)).unwrap()


async def replayed(
    world: World, boundary: Boundary, outputs: Outputs, reads: MeasuredReads | None = None
) -> Outcome[Materialized, object]:
    async with await world.open_caching() as transaction:
        if reads is None:
            reads = (await transaction.measure(boundary)).unwrap()
        return await transaction.replay(boundary, outputs, reads)


def blobs_of(world: World) -> MemoryArtifacts:
    assert isinstance(world.artifacts, MemoryArtifacts)
    return world.artifacts


def written(outcome: Outcome[Materialized, object]) -> list[str]:
    return [change.path for change in outcome.unwrap().changes]


def model(before: dict[str, Node], outputs: Outputs, boundary_trees: tuple[str, ...]) -> dict[str, Node]:
    """The files and links that a host has after a replay, by the words of the promise."""
    kept = {
        path: node
        for path, node in before.items()
        if path not in outputs.removed and not any(path.startswith(f"{tree}/") for tree in boundary_trees)
    }
    return {path: node for path, node in {**kept, **outputs.tree()}.items() if node != DirNode()}
