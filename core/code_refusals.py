"""What code may not reach if it is to have an identity: names that lead to code or values which no name tells."""

from __future__ import annotations

from typing import Final

__all__ = ["Unknown", "refuse_dynamic", "refuse_handle", "refuse_names"]


class Unknown(Exception):
    """Ends the identification; the text is the part of a sentence that says what has no identity."""


_DYNAMIC: Final = frozenset(
    {
        *("builtins", "builtins.eval", "builtins.exec", "builtins.compile", "builtins.globals", "builtins.__import__"),
        *("importlib", "importlib.import_module", "importlib.reload", "importlib.__import__"),
        *("runpy", "runpy.run_module", "runpy.run_path", "pkgutil.resolve_name"),
        *("sys.modules", "sys._getframe", "inspect.currentframe", "inspect.stack"),
    }
)
_AROUND: Final = frozenset(
    {
        *("os.environ", "os.environb", "os.getenv", "os.getenvb", "posix.environ", "nt.environ"),
        *("os.path.expandvars", "posixpath.expandvars", "ntpath.expandvars", "os.getcwd", "os.getcwdb", "posix.getcwd"),
        *("inspect.getsource", "inspect.getsourcelines", "inspect.getcomments", "inspect.findsource"),
    }
)


_OF_RUN: Final = frozenset({"stepwell.services.step.current_step", "stepwell.current_step"})


def refuse_dynamic(*names: str) -> None:
    """Raise Unknown if one of these names leads to code or values that no name tells, or to what is outside."""
    for name in names:
        if name in _DYNAMIC:
            raise Unknown(f"it reaches `{name.removeprefix('builtins.')}`, by which it can run any code")
        if name in _OF_RUN:
            raise Unknown("it reaches `current_step`, which tells each run something else")
        if name in _AROUND:
            raise Unknown(f"it reaches `{name}`, which is not its own; hand in what it needs of that as an argument")


_ANYWHERE: Final = frozenset({"__subclasses__", "__globals__", "f_globals", "f_locals", "f_back", "f_builtins"})
"""Attributes that lead from anything to code or values that no name tells."""

_HANDLES: Final = frozenset({"os", "posix", "nt", "sys", "inspect", "runpy", "pkgutil"})
"""Modules with something in them that is refused: handed on, it would be found there by a name that nobody sees."""


def refuse_names(names: frozenset[str]) -> None:
    """Raise Unknown if code reads one of the attributes that lead anywhere."""
    for name in sorted(names & _ANYWHERE):
        raise Unknown(f"it reads `{name}`, by which it can reach any code")


def refuse_handle(module: str) -> None:
    """Raise Unknown if a module that code hands on holds what it must not reach."""
    if module in _HANDLES:
        raise Unknown(f"it hands on the module `{module}`; read what it needs of that as `{module}.name`")
