"""The user's code: modules by name or by path, and the workflows and stores that are defined in them."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

from ....services.store import StoreDefinition
from ....services.workflow import AnyWorkflow, Workflow
from .problem import WRONG_USAGE, Problem

__all__ = ["find_definition", "find_workflow", "load_module", "workflows_in"]


def load_module(name: str) -> ModuleType:
    """Import a dotted module, from the current folder too, or a `.py` file, beside which it may import others."""
    _importable(os.getcwd())
    path = Path(name)
    if path.suffix == ".py":
        if not path.is_file():
            raise Problem("module_not_found", f"there is no file {name}")
        return _load_file(path.resolve(), name)
    if os.sep in name or not all(part.isidentifier() for part in name.split(".")):
        raise Problem(
            "module_not_found", f"{name!r} is neither a module, like shop.orders, nor a path that ends in .py"
        )
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise Problem("module_not_found", _no_module(name)) from None
        raise _broken(name, error) from error
    except (Exception, SystemExit) as error:
        raise _broken(name, error) from error


def _load_file(path: Path, given: str) -> ModuleType:
    _importable(str(path.parent))
    name = path.stem
    loaded = sys.modules.get(name)
    if loaded is not None:
        if getattr(loaded, "__file__", None) == str(path):
            return loaded
        name = f"{name}@{path}"  # another module has the name already; no import statement can mean this one
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise Problem("module_not_found", f"{given} cannot be loaded as a module")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise _broken(given, error) from error
    return module


def _importable(folder: str) -> None:
    if folder not in sys.path:
        sys.path.insert(0, folder)


def _no_module(name: str) -> str:
    file = Path(*name.split(".")).with_suffix(".py")
    return f"there is no module {name!r} here or among what is installed; for a file write its path, like ./{file}"


def _broken(name: str, error: Exception | SystemExit) -> Problem:
    """Importing runs the user's code: its error, and where it was raised there."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith("<frozen")]
    where = f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""
    if isinstance(error, SyntaxError) and error.filename is not None:
        where = f" ({error.filename}, line {error.lineno})"
    said = error.msg if isinstance(error, SyntaxError) else str(error)
    text = f"{type(error).__name__}: {said}"
    return Problem("module_broken", f"cannot import {name}: {text}{where}")


# --- workflows --------------------------------------------------------------


def workflows_in(module: ModuleType) -> dict[str, AnyWorkflow]:
    """The workflows that a module names, by the names of its variables."""
    return {name: value for name, value in vars(module).items() if isinstance(value, Workflow)}


def find_workflow(target: str) -> AnyWorkflow:
    """The workflow that MODULE:WORKFLOW means: by its own name, or by that of the variable that holds it."""
    module_name, colon, name = target.rpartition(":")
    if not colon or not module_name or not name:
        raise Problem("usage", f"{target!r} is not of the form MODULE:WORKFLOW", exit_code=WRONG_USAGE)
    found = workflows_in(load_module(module_name))
    meant = {variable: one for variable, one in found.items() if name in (variable, one.name)}
    if not meant:
        names = sorted({one.name for one in found.values()})
        has = f"its workflows are {_listed(names)}" if names else "it has no workflows"
        raise Problem(
            "unknown_workflow", f"{module_name} has no workflow {name!r}; {has}", details={"workflows": names}
        )
    first, *others = meant.values()
    if any(one is not first for one in others):
        text = f"{name!r} means several workflows of {module_name}: those in {_listed(meant)}; rename one of them"
        raise Problem("ambiguous_workflow", text)
    return first


def workflows_of(modules: Iterable[str]) -> tuple[AnyWorkflow, ...]:
    """The workflows of all modules together; each has at least one, and no two of them share a name."""
    found: dict[str, tuple[AnyWorkflow, str]] = {}
    for module_name in modules:
        here = workflows_in(load_module(module_name)).values()
        if not here:
            raise Problem("unknown_workflow", f"{module_name} has no workflows; decorate them with @stepwell.workflow")
        for one in here:
            other, other_module = found.setdefault(one.name, (one, module_name))
            if other is not one:
                text = f"two workflows are named {one.name!r}, in {other_module} and in {module_name}; rename one"
                raise Problem("ambiguous_workflow", text)
    return tuple(one for one, _ in found.values())


# --- stores -----------------------------------------------------------------


def find_definition(module_name: str, name: str) -> StoreDefinition[object]:
    """The definition of the stores called `name` in a module."""
    definitions = _definitions_in(load_module(module_name))
    if name not in definitions:
        has = f"it defines {_listed(sorted(definitions))}" if definitions else "it defines none"
        raise Problem("unknown_store", f"{module_name} defines no store {name!r}; {has}")
    return definitions[name]


def _definitions_in(module: ModuleType) -> dict[str, StoreDefinition[object]]:
    return {value.name: value for value in vars(module).values() if isinstance(value, StoreDefinition)}


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names))
