"""Lays the import package `stepwell` over the repository's top-level folders.

In a wheel, `sources` in pyproject.toml puts core/, services/ and layers/ below `stepwell/`, and this hook adds what is
in layers/entry/package. For an editable install it makes a real folder, .dev, of links to the same places: unlike an
import hook, a folder is something that mypy, pyright and editors can follow.

`python .ci/link_tree.py` makes the folder without installing. What is right already is left alone, so that installing
for a second Python takes nothing from under a program that runs.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ImportError:  # run by hand
    BuildHookInterface = object

FOLDERS = ("core", "services", "layers")
ROOT_FILES = "layers/entry/package"


def lay(root: Path) -> None:
    """Make .dev hold the links that `wanted` names, and no other."""
    links = wanted(root)
    for folder in {target.parent for target in links if target.parent.is_dir()}:
        for found in folder.iterdir():
            if found.is_symlink() and found not in links:
                found.unlink()
    for target, source in links.items():
        if not (target.exists() and target.samefile(source)):
            target.unlink(missing_ok=True)
            link(source, target)


def wanted(root: Path) -> dict[Path, Path]:
    """From each place in .dev to what it stands for."""
    tree = root / ".dev"
    links = {tree / "stepwell" / name: root / name for name in FOLDERS}
    files = root / ROOT_FILES
    for source in sorted(files.rglob("*")):
        if source.is_file() and source.suffix != ".pyc":
            links[tree / source.relative_to(files)] = source
    return links


def link(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        target.symlink_to(os.path.relpath(source, target.parent), target_is_directory=source.is_dir())
    except OSError:  # Windows without the right to make symlinks: junctions and hard links need none
        if source.is_dir():
            import _winapi

            _winapi.CreateJunction(str(source), str(target))
        else:
            os.link(source, target)


class LinkTree(BuildHookInterface):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            lay(Path(self.root))
        else:
            build_data["force_include"][ROOT_FILES] = "/"


if __name__ == "__main__":
    lay(Path(__file__).resolve().parent.parent)
