"""The source as the tests of this folder read it: what each module imports, without importing it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = ("core", "services", "layers")
PACKAGE_ROOT = ROOT / "layers/entry/package"


@dataclass(frozen=True)
class Import:
    """One imported name: `name` is None where the module itself is imported."""

    module: str
    name: str | None
    relative: bool
    line: int


@dataclass(frozen=True)
class Source:
    """One module: `name` is how it is imported, `stepwell.core.model` for core/model.py."""

    path: Path
    name: str
    tree: ast.Module

    @property
    def folder(self) -> str:
        return self.name.split(".")[1]

    def imports(self) -> Iterator[Import]:
        package = self.name if self.path.name == "__init__.py" else self.name.rpartition(".")[0]
        for node in ast.walk(self.tree):
            match node:
                case ast.Import(names=names):
                    yield from (Import(each.name, None, False, node.lineno) for each in names)
                case ast.ImportFrom(module=module, names=names, level=level):
                    base = package.split(".")[: -(level - 1) or None] if level else []
                    absolute = ".".join([*base, *([module] if module else [])])
                    yield from (Import(absolute, each.name, level > 0, node.lineno) for each in names)
                case _:
                    pass

    def attributes_of(self, module: str) -> set[str]:
        """The names that are looked up in `module` where it is imported whole."""
        return {
            node.attr
            for node in ast.walk(self.tree)
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == module
        }


def sources() -> list[Source]:
    """All modules of core/, services/ and layers/, without what is laid over the package root."""
    found: list[Source] = []
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            if PACKAGE_ROOT not in path.parents:
                parts = path.relative_to(ROOT).with_suffix("").parts
                name = ".".join(("stepwell", *(parts[:-1] if parts[-1] == "__init__" else parts)))
                found.append(Source(path, name, ast.parse(path.read_text("utf-8"))))
    return found
