"""Whose code something is: that of the program, which is looked into, or of an installed package, known by its version.

A module is the program's own unless it belongs to the standard library, lies among the installed packages, or is of
this library. So a folder of modules beside a script counts, and so does a package that is worked on where it lies.
"""

from __future__ import annotations

import sys
from types import FunctionType, ModuleType
from typing import Final

__all__ = ["class_name", "function_name", "home_of", "is_found", "is_own", "is_standard", "module_named"]

_LIBRARY: Final = __name__.partition(".")[0]
_INSTALLED: Final = ("/site-packages/", "/dist-packages/")


def is_standard(module: str) -> bool:
    """Whether a module is of the standard library."""
    return module.partition(".")[0] in sys.stdlib_module_names


def is_own(module: str, root: str) -> bool:
    """Whether the module of that name is the program's own, where `root` is the module of what is identified."""
    top = module.partition(".")[0]
    if top in sys.stdlib_module_names or top == _LIBRARY:
        return False
    return top == root.partition(".")[0] or not _is_installed(module)


def _is_installed(name: str) -> bool:
    module = sys.modules.get(name)
    file: object = getattr(module, "__file__", None)
    return isinstance(file, str) and any(place in file.replace("\\", "/") for place in _INSTALLED)


def module_named(name: str) -> ModuleType | None:
    """The loaded module of that name."""
    module: object = sys.modules.get(name)
    return module if isinstance(module, ModuleType) else None


def home_of(function: FunctionType) -> str:
    """The module whose globals a function has, whatever its `__module__` was told to be."""
    name: object = function.__globals__.get("__name__")
    return name if isinstance(name, str) else ""


def is_found(function: FunctionType) -> bool:
    """Whether a function is what stands in its module under its name, and not one that is made when it is needed."""
    found: object = sys.modules.get(function.__module__)
    for name in function.__qualname__.split("."):
        found = getattr(found, "__dict__", {}).get(name)
    return found is function


def function_name(function: FunctionType) -> str:
    """A function's name for people."""
    return f"{home_of(function)}.{function.__qualname__}"


def class_name(class_: type[object]) -> str:
    """A class's name, for people, and of one of another package."""
    return f"{class_.__module__}.{class_.__qualname__}"
