"""Cached steps that are commands: their evidence is enforced, and what they print comes back too."""

from __future__ import annotations

from pathlib import Path

import stepwell
from stepwell import Boundary, Command, CommandOutput, Run, StepCache, StepFailed, get, workflow
from stepwell.core.step_cache import RecordedRef
from stepwell.services.journal_rows import CacheRows
from stepwell.services.ledger import Ledger

from ..layers.workspace.command.world import needs_bwrap

pytestmark = needs_bwrap

SORT = Boundary(reads=("src/*",), writes=("out/sorted",))


@workflow
async def sorting(run: Run, flag: str) -> CommandOutput:
    command = Command(("sh", "-c", f"sort {flag} src/a > out/sorted; echo said; exit 3"), ok=(3,))
    return await run.cached_step("sort", command, boundary=SORT)


@workflow
async def failing(run: Run) -> str:
    try:
        _ = await run.cached_step("fail", Command(("sh", "-c", "exit 1")), boundary=Boundary())
    except StepFailed as failed:
        return failed.kind
    return "passed"


async def test_a_command_is_served_by_its_words_and_its_files(tmp_path: Path) -> None:
    work = tmp_path / "work"
    (work / "src").mkdir(parents=True)
    _ = (work / "src/a").write_text("b\na\n")
    async with stepwell.open(tmp_path / "app.db", workflows=[sorting, failing], workspace=work) as app:
        said = CommandOutput(3, b"said\n", b"")
        for run_id, flag, sorted_text in (("r1", "", "a\nb\n"), ("r2", "", "a\nb\n"), ("r3", "-r", "b\na\n")):
            handle = (await app.start(sorting, flag, id=run_id)).unwrap()
            assert (await handle.result()).unwrap() == said
            assert (work / "out/sorted").read_text() == sorted_text
            (work / "out/sorted").unlink()
        assert app.cache_metrics.counts == {"miss": 2, "verified_hit": 1}
        ledger = get(app.env, Ledger)
        assert isinstance(ledger, CacheRows)
        refs: list[RecordedRef] = [head.ref for head in (await ledger.heads()).unwrap()]
        rows = [(await get(app.env, StepCache).get(ref.key_digest)).unwrap() for ref in refs]
        assert [row.meta["evidence"] for row in rows] == ["enforced", "enforced"]
        assert (await (await app.start(failing)).unwrap().result()).unwrap() == "error"
