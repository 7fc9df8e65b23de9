"""Which parts of the host a program needs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from stepwell.layers.workspace.command.toolchain import closure


def place(top: Path, files: Mapping[str, str]) -> Path:
    """Empty programs, and links by what they lead to."""
    for name, target in files.items():
        path = top / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if target:
            path.symlink_to(target)
        else:
            path.touch(mode=0o755)
    return top


@pytest.mark.parametrize("name", ["sh", "/bin/sh", "no-such-program", "/no/such/program", "./here", "here/tool"])
def test_programs_of_the_system_of_the_workspace_and_nowhere_need_nothing(name: str) -> None:
    assert closure((name,), {}) == ()


def test_an_installation_is_its_parts_and_not_what_lies_beside_them(tmp_path: Path) -> None:
    top = place(tmp_path, {"bin/tool": "", "lib/x": "", "share/y": "", ".ssh/key": ""})
    expected = (f"{top}/bin", f"{top}/lib")
    assert closure((f"{top}/bin/tool",), {}) == expected
    assert closure(("tool",), {"PATH": f"/usr/bin:{top}/bin"}) == expected


def test_a_program_that_lies_among_other_things_is_shown_alone(tmp_path: Path) -> None:
    top = place(tmp_path, {"bin/tool": "", "src/tool": "", "lib/x": "", "bare/bin/tool": ""})
    assert closure((f"{top}/src/tool",), {}) == (f"{top}/src/tool",)
    assert closure((f"{top}/bare/bin/tool",), {}) == (f"{top}/bare/bin/tool",)


def test_a_virtual_environment_needs_what_it_stands_on(tmp_path: Path) -> None:
    base = place(tmp_path / "base", {"bin/python3.11": "", "lib/x": "", "include/y": ""})
    venv = place(
        tmp_path / "venv",
        {
            "bin/python": "python3",
            "bin/python3": f"{base}/bin/python3.11",
            "bin/tool": "",
            "lib/x": "",
            "pyvenv.cfg": "",
        },
    )
    expected = {f"{base}/{part}" for part in ("bin", "include", "lib")}
    expected |= {f"{venv}/{part}" for part in ("bin", "lib", "pyvenv.cfg")}
    for program in ("python", "python3", "tool"):
        assert set(closure((f"{venv}/bin/{program}",), {})) == expected


def test_a_link_needs_what_it_leads_to(tmp_path: Path) -> None:
    top = place(tmp_path, {"opt/tool/bin/real": "", "opt/tool/lib/x": "", "links/tool": "../opt/tool/bin/real"})
    real = os.path.realpath(top)
    assert set(closure((f"{top}/links/tool",), {})) == {
        f"{top}/links/tool",
        f"{real}/opt/tool/bin",
        f"{real}/opt/tool/lib",
    }


def test_the_folder_of_the_declared_files_is_no_installation_though_it_has_bin_and_lib(tmp_path: Path) -> None:
    top = place(tmp_path / "project", {"bin/tool": "", "lib/x": "", "venv/bin/tool": "", "venv/lib/x": ""})
    alias = tmp_path / "alias"
    alias.symlink_to(top)
    for prefix in (top, alias):
        for hidden in (str(top), f"{top}/bin"):
            found = closure((f"{prefix}/bin/tool",), {}, (hidden,))
            assert set(found) == {f"{prefix}/bin/tool", f"{os.path.realpath(top)}/bin/tool"}
    assert closure((f"{top}/venv/bin/tool",), {}, hidden=(str(top),)) == (f"{top}/venv/bin", f"{top}/venv/lib")
