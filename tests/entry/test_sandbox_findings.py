"""What `doctor` says of sandboxes on this machine. Nothing of it is a fault: what cannot be done is refused."""

from __future__ import annotations

from pathlib import Path

from stepwell.layers.entry.cli.finding import Finding
from stepwell.layers.entry.cli.sandbox_findings import sandbox_findings

from ..layers.workspace.command.world import needs_bwrap
from .shell import SHOP, Shell

NAMES = ["bubblewrap", "sandbox_self_test", "sandbox_folder", "sandbox_evidence"]


async def found(bwrap: str | None = None, folder: str | None = None) -> dict[str, Finding]:
    findings = {finding.name: finding for finding in await sandbox_findings(bwrap, folder)}
    assert list(findings) == NAMES
    assert all(finding.wrong is None for finding in findings.values()) or folder is not None
    return findings


@needs_bwrap
async def test_commands_are_enforced_where_the_self_test_passes() -> None:
    findings = await found()
    assert all(finding.remark is None for finding in findings.values())
    assert str(findings["bubblewrap"].value)[0].isdigit()
    assert findings["sandbox_self_test"].value == "passed"
    assert findings["sandbox_evidence"].value == {"command": "enforced", "python": "tripwire"}


async def test_without_bubblewrap_commands_are_refused_and_it_says_what_to_install(tmp_path: Path) -> None:
    findings = await found(str(tmp_path / "bwrap"))
    bubblewrap, self_test, folder, evidence = findings.values()
    assert (bubblewrap.value, bubblewrap.shown) == (None, "not found")
    assert "install the package bubblewrap" in str(bubblewrap.remark)
    assert (self_test.value, self_test.remark) == (None, None)
    assert folder.value == "all or nothing"
    assert evidence.value == {"command": None, "python": "tripwire"}


async def test_b_06_a_bubblewrap_that_does_not_work_is_named_with_the_remedy(tmp_path: Path) -> None:
    broken = tmp_path / "bwrap"
    broken.write_text("#!/bin/sh\necho broken >&2\nexit 1\n")
    broken.chmod(0o755)
    findings = await found(str(broken))
    assert findings["bubblewrap"].value == str(broken)
    assert findings["sandbox_self_test"].value == "failed: bubblewrap"
    assert "broken" in str(findings["sandbox_self_test"].remark)
    assert "install the package bubblewrap" in str(findings["sandbox_self_test"].remark)
    assert str(findings["sandbox_evidence"].shown).startswith("commands refused")


async def test_a_folder_that_cannot_be_used_is_told_with_the_reason(tmp_path: Path) -> None:
    findings = await found(folder=str(tmp_path / "gone"))
    assert findings["sandbox_folder"].value is None
    assert "gone" in str(findings["sandbox_folder"].wrong)
    assert findings["sandbox_evidence"].value == {"command": None, "python": None}


def test_doctor_tells_it_and_leaves_nothing(shell: Shell) -> None:
    shell("run", f"{SHOP}:greet", "ann", "--id", "g")
    (shell.folder / "tmp").mkdir()
    said = shell.run("doctor", PATH="/nowhere", TMPDIR=str(shell.folder / "tmp"))
    assert (said.code, said.err) == (0, "")
    assert "not found  (commands are refused: there is no bwrap in PATH" in said.out
    assert list((shell.folder / "tmp").iterdir()) == []
    told = shell.run("doctor", "--json", PATH="/nowhere").json
    assert told["ok"] is True
    assert [each["name"] for each in told["findings"]][-4:] == NAMES


def test_doctor_tries_the_folder_that_it_is_given(shell: Shell) -> None:
    (shell.folder / "mine").mkdir()
    mine = shell.run("doctor", "--root", "mine", PATH="/nowhere")
    assert (mine.code, "written to all at once" in mine.out) == (0, True)
    assert (shell.folder / "mine/.stepwell").is_dir()
    gone = shell.run("doctor", "--root", "gone", PATH="/nowhere")
    assert (gone.code, "/gone cannot be used" in gone.out) == (1, True)
