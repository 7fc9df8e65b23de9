"""What can be told of a selector from its code: its name for people, and the queue of those that ask for the same."""

from __future__ import annotations

import hashlib
import types
from collections.abc import Callable
from enum import Enum
from functools import partial
from pathlib import PurePath
from typing import Final

from .kind import is_frozenset, is_tuple

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

    It is made of the code that is loaded, with its constants, defaults and what it captured; captured values that are
    not plain have no name. What a selector reads of its module is taken to be the same for all.
    """
    digest = hashlib.sha256()
    try:
        _add(digest.update, selector)
    except (_Unknown, RecursionError):  # it may have captured itself
        return None
    return digest.hexdigest()[:32]


class _Unknown(Exception):
    """Something that has no name."""


_Add = Callable[[bytes], None]

_PLAIN: Final = (type(None), bool, int, float, complex, str, bytes, types.EllipsisType)


def _add(add: _Add, value: object) -> None:
    """Add all that tells the value from another one."""
    if isinstance(value, _PLAIN) and type(value) in _PLAIN:
        add(f"{type(value).__name__}:{value!r};".encode())
    elif isinstance(value, Enum):
        add(f"enum:{type(value).__module__}.{type(value).__qualname__}.{value.name};".encode())
    elif is_tuple(value) or is_frozenset(value):
        add(f"{type(value).__name__}:{len(value)};".encode())
        for part in value if is_tuple(value) else sorted(value, key=repr):
            _add(add, part)
    elif isinstance(value, types.CodeType):
        add(f"code:{value.co_qualname}:{value.co_names}:{value.co_varnames}:{value.co_freevars};".encode())
        add(value.co_code)
        _add(add, value.co_consts)
    elif isinstance(value, types.FunctionType):
        _add_function(add, value)
    elif isinstance(value, partial):
        add(b"partial;")
        _add(add, value.func)
        _add(add, value.args)
        _add(add, tuple(sorted(value.keywords.items())))
    elif isinstance(value, type):
        add(f"type:{value.__module__}.{value.__qualname__};".encode())
    else:
        raise _Unknown


def _add_function(add: _Add, fn: types.FunctionType) -> None:
    add(f"function:{fn.__module__};".encode())
    _add(add, fn.__code__)
    _add(add, fn.__defaults__)
    _add(add, tuple(sorted((fn.__kwdefaults__ or {}).items())))
    for cell in fn.__closure__ or ():
        try:
            _add(add, cell.cell_contents)
        except ValueError:  # it is empty: what it will hold is not known
            raise _Unknown from None
