"""A workflow whose step uses the sandbox of the application that drives it. Loaded by its path."""

from __future__ import annotations

from stepwell import Artifacts, Boundary, Run, StepSandbox, Workspace, get, workflow
from stepwell.layers.entry.open import current_app
from stepwell.layers.step_sandbox import settle


def shout(workspace: Workspace) -> str:
    text = workspace.read_text("in.txt").upper()
    workspace.write_text("out.txt", text)
    return text


async def file_it() -> str:
    sandbox = get(current_app().env, StepSandbox)
    settled = await settle(sandbox, Boundary(("in.txt",), ("out.txt",)), shout)
    return settled.unwrap().accepted.output


async def keep_it() -> str:
    return (await get(current_app().env, Artifacts).put(b"kept")).unwrap()


@workflow
async def filing(run: Run) -> str:
    return await run.step("file it", file_it)


@workflow
async def keeping(run: Run) -> str:
    return await run.step("keep it", keep_it)
