"""Who may import what: core's purity, relative imports, the direction inside layers, and who may know which library."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from .source import ROOT, Import, Source, sources

IMPURE = frozenset(
    {"asyncio", "logging", "os", "pathlib", "random", "secrets", "socket", "sqlite3", "subprocess", "threading"}
    | {"time", "uuid"}
)
AS_TYPES = {
    "pathlib": {"Path", "PosixPath", "PurePath", "PurePosixPath", "PureWindowsPath", "WindowsPath"},
    "uuid": {"UUID"},
}
"""What core may name of impure modules, to tell a value's type."""

TOUCHES_FILES = frozenset({"Path", "PosixPath", "WindowsPath"})
"""Those of them that core may not make a value of."""

READS_THE_PRESENT = frozenset({"now", "today", "utcnow"})

KNOWS = {
    "apsw": ("layers/sql/",),
    "click": ("layers/entry/",),
    "msgspec": ("core/", "layers/"),
    "punq": ("layers/layer.py",),
    "pydantic": ("core/",),
    "pydantic_core": ("core/",),
    "rich": ("layers/entry/",),
    "sqlite3": (),
}
"""Each library, and the only places that may know it."""

APART = "layers/workspace/command/launch/"
"""Programs of processes of their own, which have no services."""

TIME_AND_CHANCE = {"random": (), "secrets": (), "time": ("layers/clock.py", "layers/ids.py", APART), "uuid": ("core/",)}
"""Where time and randomness come from: everybody else asks the services `Clock` and `Ids`."""

SOURCES = sources()


def place(source: Source) -> str:
    return source.path.relative_to(ROOT).as_posix()


def imports(*folders: str) -> Iterator[tuple[Source, Import]]:
    for source in SOURCES:
        if source.folder in folders:
            for each in source.imports():
                yield source, each


def test_the_source_was_found() -> None:
    names = {source.name for source in SOURCES}
    assert {"stepwell.core.model", "stepwell.services.store", "stepwell.layers.layer", "stepwell.layers.entry"} <= names


def test_core_names_impure_modules_as_types_only() -> None:
    wrong: list[str] = []
    for source, each in imports("core"):
        top = each.module.partition(".")[0]
        if top in IMPURE:
            used = {each.name} if each.name else source.attributes_of(top)
            if not used <= AS_TYPES.get(top, set()):
                wrong.append(f"{place(source)}:{each.line} {each.module} {each.name or sorted(used)}")
    assert wrong == []


def test_core_reads_no_clock_and_no_file() -> None:
    wrong: list[str] = []
    for source in SOURCES:
        for node in ast.walk(source.tree) if source.folder == "core" else ():
            match node:
                case ast.Call(func=ast.Attribute(attr=attr)) if attr in READS_THE_PRESENT:
                    wrong.append(f"{place(source)}:{node.lineno} .{attr}()")
                case ast.Call(func=ast.Name(id=name)) if name in {"open", "print", "input", *TOUCHES_FILES}:
                    wrong.append(f"{place(source)}:{node.lineno} {name}()")
                case ast.Call(func=ast.Attribute(attr=attr)) if attr in TOUCHES_FILES:
                    wrong.append(f"{place(source)}:{node.lineno} .{attr}()")
                case ast.AsyncFunctionDef(name=name):
                    wrong.append(f"{place(source)}:{node.lineno} async def {name}")
                case _:
                    pass
    assert wrong == []


def test_our_own_modules_are_imported_relatively() -> None:
    """An absolute import would make each class twice over for a type checker that reads the folders themselves."""
    ours = ("stepwell", "core", "services", "layers")
    wrong = [
        f"{place(source)}:{each.line}"
        for source, each in imports("core", "services", "layers")
        if not each.relative and each.module.partition(".")[0] in ours
    ]
    assert wrong == []


def test_core_and_services_know_nothing_outside_themselves() -> None:
    allowed = {"core": ("stepwell.core",), "services": ("stepwell.core", "stepwell.services")}
    wrong = [
        f"{place(source)}:{each.line} {each.module}"
        for source, each in imports("core", "services")
        if each.relative and not each.module.startswith(allowed[source.folder])
    ]
    assert wrong == []


def test_the_entry_is_outermost_and_only_it_knows_whole_applications() -> None:
    wrong: list[str] = []
    for source, each in imports("layers"):
        target = f"{each.module}.{each.name}" if each.relative else ""
        if not source.name.startswith("stepwell.layers.entry"):
            if f"{target}.".startswith("stepwell.layers.entry."):
                wrong.append(f"{place(source)}:{each.line} {target}")
            if source.name != "stepwell.layers.app" and f"{target}.".startswith("stepwell.layers.app."):
                wrong.append(f"{place(source)}:{each.line} {target}")
    assert wrong == []


@pytest.mark.parametrize("library", [*KNOWS, *TIME_AND_CHANCE])
def test_a_library_is_known_in_its_own_places_only(library: str) -> None:
    places = {**KNOWS, **TIME_AND_CHANCE}[library]
    wrong = [
        f"{place(source)}:{each.line}"
        for source, each in imports("core", "services", "layers")
        if each.module.partition(".")[0] == library
        and not place(source).startswith(places)
        and source.attributes_of(library) != {"sleep"}  # a thread's pause reads no clock
    ]
    assert wrong == []
