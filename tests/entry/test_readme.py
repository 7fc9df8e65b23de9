"""What README.md and docs/ say is executed: their examples as a reader would, their commands, links and diagram."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from markdown_it import MarkdownIt

from stepwell.core.run import diagram

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
PAGES = [README, *sorted((ROOT / "docs").glob("*.md"))]


class Block(NamedTuple):
    """A fenced block: its language and its text."""

    language: str
    text: str


def blocks(page: Path) -> list[Block]:
    tokens = MarkdownIt("commonmark").parse(page.read_text(encoding="utf-8"))
    return [Block(token.info.strip(), token.content) for token in tokens if token.type == "fence"]


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A Python process in `folder`, as a reader has it; its output, both streams in one."""
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=100, check=False
    )


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the README's examples stand under the names that their first lines give."""
    folder = tmp_path_factory.mktemp("reader")
    for block in blocks(README):
        if block.language == "python":
            named = re.match(r"# (\w+\.py)\n", block.text)
            assert named is not None, f"the example has no name: {block.text[:60]!r}"
            (folder / named[1]).write_text(block.text, encoding="utf-8")
    (settings,) = [block.text for block in blocks(README) if block.language == "toml"]
    (folder / "pyproject.toml").write_text(settings, encoding="utf-8")
    return folder


def test_the_first_example_prints_what_the_readme_says_and_charges_once(reader: Path) -> None:
    assert_prints_and_does_nothing_twice(reader, "shop.py", 0)


def test_the_example_of_a_wait_prints_what_the_readme_says_and_charges_once(reader: Path) -> None:
    assert_prints_and_does_nothing_twice(reader, "ship.py", 1)


def test_the_example_of_a_sandbox_prints_what_the_readme_says_and_the_command_does_the_same(reader: Path) -> None:
    stated = [block.text for block in blocks(README) if block.language == "text"][2]
    ended = run(reader, "tally.py")
    assert (ended.returncode, ended.stdout) == (0, stated)
    command = next(block.text for block in blocks(README) if block.text.startswith("stepwell sandbox run"))
    if shutil.which("bwrap") is None:
        pytest.skip("bubblewrap is not installed")
    ended = run(reader, "-m", *shlex.split(command))
    assert ended.returncode == 0, ended.stdout
    assert (reader / "out/sorted.txt").read_text() == "and\ncoffee\ntea\ntea\n"


def test_the_example_of_cached_steps_prints_what_the_readme_says(reader: Path) -> None:
    stated = [block.text for block in blocks(README) if block.language == "text"][3]
    ended = run(reader, "index.py")
    assert (ended.returncode, ended.stdout) == (0, stated)


def assert_prints_and_does_nothing_twice(reader: Path, name: str, place: int) -> None:
    """The program prints what the text block at this place says, and another time its last line only."""
    stated = [block.text for block in blocks(README) if block.language == "text"][place]
    first = run(reader, name)
    assert (first.returncode, first.stdout) == (0, stated)
    again = run(reader, name)
    assert (again.returncode, again.stdout) == (0, stated.splitlines(keepends=True)[-1])


@pytest.mark.parametrize("name", ["test_shop.py", "test_checkout.py", "test_fold.py"])
def test_an_example_for_tests_passes(reader: Path, name: str) -> None:
    ended = run(reader, "-m", "pytest", "-q", "-p", "no:cacheprovider", name)
    assert ended.returncode == 0, ended.stdout
    assert " passed" in ended.stdout


def test_every_example_of_the_readme_is_executed(reader: Path) -> None:
    assert sorted(path.name for path in reader.glob("*.py")) == [
        "index.py",
        "ship.py",
        "shop.py",
        "tally.py",
        "test_checkout.py",
        "test_fold.py",
        "test_shop.py",
    ]


@pytest.mark.parametrize(
    "page",
    [
        "workflows.md",
        "stores.md",
        "revisions.md",
        "waiting.md",
        "artifacts.md",
        "sandbox.md",
        "cached-steps.md",
        "step-cache.md",
        "shared-cache.md",
        "journal.md",
    ],
)
def test_the_examples_of_a_page_continue_one_another(tmp_path: Path, page: str) -> None:
    examples = [block.text for block in blocks(ROOT / "docs" / page) if block.language == "python"]
    assert examples
    (tmp_path / "page.py").write_text("\n".join(examples), encoding="utf-8")
    ended = run(tmp_path, "page.py")
    assert (ended.returncode, ended.stdout) == (0, "")


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_that_a_page_names_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert set(re.findall(r"\bmake ([a-z]+)(?=[\n`(]| [A-Z]+=)", text)) <= make_targets()
    assert set(re.findall(r"`stepwell (?:--\w+ \S+ )*([a-z]+)", text)) <= commands()


def test_the_two_commands_of_the_readme_are_there() -> None:
    assert next(block.text for block in blocks(README) if block.language == "sh") == "make demo\nmake test\n"
    assert {"demo", "test"} <= make_targets()


def test_the_table_of_commands_is_the_command_line() -> None:
    table = re.findall(r"^\| (`stepwell .*`) \|", README.read_text(encoding="utf-8"), re.MULTILINE)
    assert {name for row in table for name in re.findall(r"stepwell ([a-z]+)", row)} == commands()


def commands() -> set[str]:
    """The commands that the command line itself lists."""
    listed = run(ROOT, "-m", "stepwell", "--help").stdout.partition("Commands:")[2]
    return set(re.findall(r"^  ([a-z]+) ", listed, re.MULTILINE))


def links(page: Path) -> Iterator[str]:
    for token in MarkdownIt("commonmark").enable("table").parse(page.read_text(encoding="utf-8")):
        for child in token.children or ():
            if child.type == "link_open":
                yield str(child.attrs["href"])


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md"], ids=lambda page: page.name)
def test_links_of_a_page_lead_somewhere(page: Path) -> None:
    relative = [link.partition("#")[0] for link in links(page) if "://" not in link]
    assert [link for link in relative if link and not (page.parent / link).exists()] == []


def test_the_diagram_of_a_run_is_the_one_that_the_code_draws() -> None:
    drawn = [block.text for block in blocks(ROOT / "docs" / "workflows.md") if block.language == "mermaid"]
    assert drawn == [diagram() + "\n"]
