"""What can be told of a selector from its code: its name for people, and the queue of those that ask for the same."""

from __future__ import annotations

import dis
import hashlib
import sys
import types
from collections.abc import Callable
from enum import Enum
from functools import lru_cache, partial
from pathlib import PurePath
from typing import Final, final

from pydantic import BaseModel

from .kind import is_dict, is_frozenset, is_list, is_set, is_tuple

__all__ = ["queue_of", "selector_name"]


def selector_name(selector: Callable[..., object]) -> str:
    """The function and where it is written, as in `is_approved (shop.py:41)`."""
    fn: object = selector
    while isinstance(fn, partial):
        fn = fn.func
    fn = getattr(fn, "__func__", fn)
    name = getattr(fn, "__qualname__", None) or type(fn).__qualname__
    short = name.rpartition("<locals>.")[2]
    code = getattr(fn, "__code__", None)
    if not isinstance(code, types.CodeType):
        return short
    return f"{short} ({PurePath(code.co_filename).name}:{code.co_firstlineno})"


def queue_of(selector: Callable[..., object]) -> str | None:
    """A name that two selectors share only if they find the same in the same state; None if that cannot be known.

    It is made of the code that is loaded and of where it is written, with its constants, its defaults, and what it
    captured and names of its module, as far as these are plain values, containers of such, functions, classes of data,
    or modules of the standard library. Anything else that could tell two selectors apart leaves them without a name.
    """
    digest = hashlib.sha256()
    try:
        _Naming(digest.update).add_callable(selector)
    except (_Unknown, RecursionError, ValueError):  # ValueError: a number of more digits than Python likes to write
        return None
    return digest.hexdigest()[:32]


class _Unknown(Exception):
    """Something that has no name."""


_PLAIN: Final = (type(None), bool, int, float, complex, str, bytes, types.EllipsisType)


@final
class _Naming:
    """Adds all that tells a value from another one; functions that it has seen, by their order only."""

    def __init__(self, add: Callable[[bytes], None]) -> None:
        self._add = add
        self._seen: dict[types.FunctionType, int] = {}

    def add_callable(self, selector: object) -> None:
        if isinstance(selector, types.FunctionType):
            self._add_function(selector)
        elif type(selector) is partial:
            self._write("partial")
            self.add_callable(selector.func)
            self.add(selector.args)
            self.add(tuple(sorted(selector.keywords.items())))
        else:
            raise _Unknown

    def add(self, value: object) -> None:
        if type(value) in _PLAIN:
            self._write(type(value).__name__, repr(value))
        elif isinstance(value, Enum):
            self._add_class(type(value))
            self.add(value.name)
            self.add(value.value)
        elif is_tuple(value) or is_frozenset(value):
            self._write(type(value).__name__, str(len(value)))
            for part in value if is_tuple(value) else sorted(value, key=repr):
                self.add(part)
        elif is_list(value):
            self._write("list", str(len(value)))
            for part in value:
                self.add(part)
        elif is_dict(value) or is_set(value):
            self._write(type(value).__name__, str(len(value)))
            for part in sorted(value.items() if is_dict(value) else value, key=repr):
                self.add(part)
        elif isinstance(value, types.CodeType):
            self._add_code(value)
        elif isinstance(value, types.ModuleType) and value.__name__.partition(".")[0] in sys.stdlib_module_names:
            self._write("module", value.__name__)
        elif isinstance(value, types.BuiltinFunctionType) and value.__module__ == "builtins":
            self._write("builtin", value.__qualname__)
        elif isinstance(value, type):
            self._add_class(value)
        else:
            self.add_callable(value)

    def _write(self, *words: str) -> None:
        for word in words:
            self._add(f"{len(word)}:{word};".encode("utf-8", "surrogatepass"))

    def _add_class(self, value: type[object]) -> None:
        """A class that is what its module says; of one that may hold settings of the program nobody knows."""
        is_data = hasattr(value, "__dataclass_fields__") or issubclass(value, BaseModel | Enum | BaseException)
        found = getattr(sys.modules.get(value.__module__), value.__qualname__, None)
        if found is not value or not (is_data or value.__module__ == "builtins"):
            raise _Unknown
        self._write("class", value.__module__, value.__qualname__)

    def _add_function(self, fn: types.FunctionType) -> None:
        if fn in self._seen:
            self._write("seen", str(self._seen[fn]))
            return
        self._seen[fn] = len(self._seen)
        if vars(fn):
            raise _Unknown
        self._write("function", fn.__module__)
        self.add(fn.__code__)
        self.add(fn.__defaults__)
        self.add(tuple(sorted((fn.__kwdefaults__ or {}).items())))
        for cell in fn.__closure__ or ():
            try:
                self.add(cell.cell_contents)
            except ValueError:  # it is empty: what it will hold is not known
                raise _Unknown from None
        for name in sorted(_names(fn.__code__)):
            if name in fn.__globals__:
                self._write("global", name)
                self.add(fn.__globals__[name])

    def _add_code(self, code: types.CodeType) -> None:
        self._write("code", code.co_filename, code.co_qualname)
        for number in (
            code.co_firstlineno,
            code.co_flags,
            code.co_argcount,
            code.co_posonlyargcount,
            code.co_kwonlyargcount,
        ):
            self._write(str(number))
        self.add((code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars))
        self.add((code.co_code, code.co_exceptiontable))
        self.add(code.co_consts)


@lru_cache(maxsize=256)
def _names(code: types.CodeType) -> frozenset[str]:
    """The names that the code looks up in its module, also in the functions within it."""
    own = [step.argval for step in dis.get_instructions(code) if step.opname in ("LOAD_GLOBAL", "LOAD_NAME")]
    inner = (constant for constant in code.co_consts if isinstance(constant, types.CodeType))
    return frozenset(own).union(*map(_names, inner))
