"""The environment as it is read: of this process, of folders of packages, and of the programs of commands."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import pytest

from stepwell import Failure, ManualClock, Success
from stepwell.core.environment import Package, environment_digest, packages_digest
from stepwell.core.node import digest_of
from stepwell.layers.environment import (
    ToolUnreadable,
    find_tool,
    installed_packages,
    read_environment,
    read_packages,
    tool_digest,
)
from stepwell.layers.workspace.calls import SystemCalls
from stepwell.layers.workspace.memo import DigestMemo

LATER_MS = 4_000_000_000_000
"""A time at which every file is old."""


def install(folder: Path, name: str, version: str, record: str = "") -> None:
    info = folder / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    if record:
        (info / "RECORD").write_text(record)


# --- this process -------------------------------------------------------------------


def test_the_environment_of_this_process_is_the_same_each_time() -> None:
    first, again = (read_environment() for _ in range(2))
    assert first == again
    assert first.python == platform.python_version()
    assert environment_digest(first) == environment_digest(again)
    names = {package.name for package in read_packages()}
    assert {"pydantic", "click", "typing-extensions"} <= names
    assert installed_packages() == packages_digest(read_packages())


def test_k_08_of_the_variables_those_count_that_are_named() -> None:
    named = read_environment(["PATH", "STEPWELL_NOT_SET"], {"model": "3"})
    assert named.variables == {"PATH": os.environ["PATH"], "STEPWELL_NOT_SET": None}
    assert named.extra == {"model": "3"}
    assert read_environment().variables == {}


# --- packages -----------------------------------------------------------------------


def test_k_10_another_version_of_a_package_is_another_environment(tmp_path: Path) -> None:
    for number, version in enumerate(("1.0", "1.1")):
        install(tmp_path / f"{number}", "Some_Package", version)
    first, second = (read_packages([str(tmp_path / name)]) for name in "01")
    assert first == (Package("some-package", "1.0"),)
    assert packages_digest(first) != packages_digest(second)


RECORD = """\
some/__init__.py,sha256={code},10
some/__pycache__/__init__.cpython-311.pyc,,
some-1.0.dist-info/RECORD,,
some-1.0.dist-info/INSTALLER,sha256={place},4
some-1.0.dist-info/direct_url.json,sha256={place},90
__editable__.some.pth,sha256={place},20
../../../bin/some,sha256={place},200
"some/with, comma.py",sha256=x,1
"""


def test_k_10_the_files_of_a_package_count_but_not_where_it_was_installed(tmp_path: Path) -> None:
    records = {"a": ("1", "1"), "moved": ("1", "2"), "patched": ("2", "1")}
    for name, (code, where) in records.items():
        install(tmp_path / name, "some", "1.0", RECORD.format(code=code, place=where))
    found = {name: packages_digest(read_packages([str(tmp_path / name)])) for name in records}
    assert found["a"] == found["moved"] != found["patched"]


def test_of_two_packages_of_one_name_the_first_counts_as_for_an_import(tmp_path: Path) -> None:
    for folder, version in (("first", "1.0"), ("second", "2.0")):
        install(tmp_path / folder, "some", version)
    paths = [str(tmp_path / folder) for folder in ("first", "second")]
    assert read_packages(paths) == (Package("some", "1.0"),)
    assert read_packages(paths[::-1]) == (Package("some", "2.0"),)


def test_a_damaged_package_is_passed_over(tmp_path: Path) -> None:
    install(tmp_path, "some", "1.0")
    damaged = tmp_path / "damaged-1.0.dist-info"
    damaged.mkdir()
    (damaged / "METADATA").write_text("Metadata-Version: 2.1\n")
    assert read_packages([str(tmp_path)]) == (Package("some", "1.0"),)


# --- programs -----------------------------------------------------------------------


@pytest.fixture
def memo() -> DigestMemo:
    return DigestMemo(SystemCalls(), lambda: LATER_MS)


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def test_k_10_another_executable_of_the_toolchain_has_another_digest(tmp_path: Path, memo: DigestMemo) -> None:
    tool = program(tmp_path / "bin/tool", "#!/bin/sh\necho 1\n")
    assert tool_digest(str(tool), memo.digest) == Success(digest_of(b"#!/bin/sh\necho 1\n"))
    program(tool, "#!/bin/sh\necho 2\n")
    assert tool_digest(str(tool), memo.digest) == Success(digest_of(b"#!/bin/sh\necho 2\n"))
    replacement = program(tmp_path / "bin/new", "#!/bin/sh\necho 3\n")
    replacement.replace(tool)
    assert tool_digest(str(tool), memo.digest) == Success(digest_of(b"#!/bin/sh\necho 3\n"))


def test_a_program_is_read_once_while_it_is_as_it_was(tmp_path: Path) -> None:
    tool = program(tmp_path / "tool", "text")
    read: list[str] = []
    calls = SystemCalls(lambda call, _: read.append(call))
    memo = DigestMemo(calls, lambda: LATER_MS)
    for _ in range(3):
        assert tool_digest(str(tool), memo.digest) == Success(digest_of(b"text"))
    assert read.count("read") == 2  # the text, and that there is no more


def test_a_young_program_is_read_each_time(tmp_path: Path) -> None:
    tool = program(tmp_path / "tool", "text")
    read: list[str] = []
    clock = ManualClock(0)
    memo = DigestMemo(SystemCalls(lambda call, _: read.append(call)), clock.now_ms)
    for _ in range(3):
        assert tool_digest(str(tool), memo.digest) == Success(digest_of(b"text"))
    assert read.count("read") == 6


def test_a_program_is_looked_for_as_a_shell_does(tmp_path: Path) -> None:
    first, second = (program(tmp_path / folder / "tool", folder) for folder in ("a", "b"))
    (tmp_path / "c").mkdir()
    (tmp_path / "c/link").symlink_to(second)
    path = os.pathsep.join(str(tmp_path / folder) for folder in "abc")
    assert find_tool("tool", path) == str(first)
    assert find_tool("link", path) == str(second)
    assert find_tool(str(second), path) == str(second)
    assert find_tool("none", path) is None


def test_what_cannot_be_read_is_no_known_program(tmp_path: Path, memo: DigestMemo) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name in ("none", "pipe", "."):
        match tool_digest(str(tmp_path / name), memo.digest):
            case Failure(ToolUnreadable(path, reason)):
                assert path == str(tmp_path / name)
                assert reason
            case other:
                raise AssertionError(other)
