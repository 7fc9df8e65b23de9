"""Whose code something is: that of the program, which is looked into, or of an installed package, known by its version.

A module is the program's own unless it belongs to the standard library, lies among the installed packages, or is of
this library. So a folder of modules beside a script counts, and so does a package that is worked on where it lies.
"""

from __future__ import annotations

import dis
import sys
from types import ClassMethodDescriptorType, FunctionType, MethodDescriptorType, ModuleType, WrapperDescriptorType
from typing import Final

from .object_state import is_python

__all__ = [
    "class_name",
    "function_name",
    "home_of",
    "installed_name",
    "is_at_home",
    "is_class_found",
    "is_found",
    "is_installed",
    "is_own",
    "is_standard",
    "module_named",
]

_LIBRARY: Final = __name__.partition(".")[0]
_INSTALLED: Final = ("/site-packages/", "/dist-packages/")


_STANDARD: Final = dis.__file__.replace("\\", "/").rpartition("/")[0] + "/"


def is_standard(module: str) -> bool:
    """Whether a module is of the standard library, and not one of the program that has taken its name."""
    top = module.partition(".")[0]
    return top in sys.stdlib_module_names and not _is_covered(top)


def _is_covered(top: str) -> bool:
    """Whether what is loaded under a name of the standard library was written elsewhere."""
    file: object = getattr(sys.modules.get(top), "__file__", None)
    if not isinstance(file, str) or not file.endswith((".py", ".pyc")):
        return False
    place = file.replace("\\", "/")
    return not place.startswith(_STANDARD) or any(each in place for each in _INSTALLED)


def is_own(module: str, root: str) -> bool:
    """Whether the module of that name is the program's own, where `root` is the module of what is identified."""
    top = module.partition(".")[0]
    if top == _LIBRARY or is_standard(module):
        return False
    return top == root.partition(".")[0] or not is_installed(module)


def is_installed(name: str) -> bool:
    module = sys.modules.get(name)
    file: object = getattr(module, "__file__", None)
    return isinstance(file, str) and any(place in file.replace("\\", "/") for place in _INSTALLED)


def installed_name(value: object) -> str | None:
    """The name of a callable that is written in C and stands under it in a module of an installed package, as what is
    called in it stands there for everybody; None of anything else. Its package's version tells what it does.
    """
    name: object = getattr(value, "__name__", None)
    if not isinstance(name, str) or is_python(type(value)):
        return None
    for module in (getattr(value, "__module__", None), type(value).__module__):
        if isinstance(module, str) and is_installed(module):
            found: object = vars(sys.modules[module]).get(name)
            if found is value:
                return f"{module}.{name}"
    return None


def module_named(name: str) -> ModuleType | None:
    """The loaded module of that name."""
    module: object = sys.modules.get(name)
    return module if isinstance(module, ModuleType) else None


def home_of(function: FunctionType) -> str:
    """The module whose globals a function has, whatever its `__module__` was told to be."""
    name: object = function.__globals__.get("__name__")
    return name if isinstance(name, str) else ""


def is_at_home(function: FunctionType) -> bool:
    """Whether a function's globals are those of the loaded module whose name they have.

    What is loaded without being told to `sys.modules`, as plugins are, may have the name of anything.
    """
    return getattr(sys.modules.get(home_of(function)), "__dict__", None) is function.__globals__


def is_found(function: FunctionType) -> bool:
    """Whether a function is what stands in its module under its name, and not one that is made when it is needed."""
    found: object = sys.modules.get(function.__module__)
    for name in function.__qualname__.split("."):
        found = getattr(found, "__dict__", {}).get(name)
    return found is function


def is_class_found(class_: type[object]) -> bool:
    """Whether a class is what stands under its name in the module that it says, or is written in C, and cannot lie.

    What is made by a call often says the module of who was called; of what `exec` makes without a module, `builtins`.
    """
    found: object = sys.modules.get(class_.__module__)
    for name in class_.__qualname__.split("."):
        found = getattr(found, "__dict__", {}).get(name)
    return found is class_ or not is_python(class_) or any(_is_in_c(each, class_) for each in vars(class_).values())


def _is_in_c(entry: object, class_: type[object]) -> bool:
    """Whether an entry is a method that only a class written in C has of its own."""
    return isinstance(entry, _IN_C) and entry.__objclass__ is class_


_IN_C: Final = (MethodDescriptorType, WrapperDescriptorType, ClassMethodDescriptorType)


def function_name(function: FunctionType) -> str:
    """A function's name for people."""
    return f"{home_of(function)}.{function.__qualname__}"


def class_name(class_: type[object]) -> str:
    """A class's name, for people, and of one of another package."""
    return f"{class_.__module__}.{class_.__qualname__}"
