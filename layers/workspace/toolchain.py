"""The interpreter with its library and its packages, and how it looks for code: what no body is asked about.

Both are covered by the identity of the environment that a step is executed in, and depend on what was imported before.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import linecache
import os
import site
import sys
import sysconfig
import tokenize
from collections.abc import Iterable
from types import FrameType
from typing import Final

from .audit_events import Act

__all__ = ["is_below", "looks_for_code", "toolchain"]


def toolchain() -> frozenset[str]:
    """The directories of the interpreter, its library and its packages, as they are spelled and where links lead."""
    named = {sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix, *sysconfig.get_paths().values()}
    named |= {path for path in (sys.pycache_prefix, site.USER_SITE if site.ENABLE_USER_SITE else None) if path}
    return frozenset({*map(os.path.abspath, named), *map(os.path.realpath, named)})


def is_below(path: str, roots: Iterable[str], others: Iterable[str]) -> bool:
    """Whether of all these directories one of `roots` is the nearest above a path, or is that path."""
    return _nearest(path, roots) > _nearest(path, others)


def _nearest(path: str, roots: Iterable[str]) -> int:
    return max((len(root) for root in roots if path == root or path.startswith(root + os.sep)), default=0)


_FINDERS: Final = ("<frozen importlib", "<frozen zipimport", os.path.dirname(importlib.__file__) + os.sep)
_CODE: Final = (*importlib.machinery.all_suffixes(), ".pyz", ".zip")


def looks_for_code(caller: FrameType | None, event: str, act: Act) -> bool:
    """Whether the interpreter does this to find, load or keep compiled code, or to quote it in a traceback.

    Data that is read by the same ways, by `pkgutil.get_data` or `linecache.getline`, is told apart by its name.
    """
    if caller is None:
        return False
    if caller.f_code is tokenize.open.__code__ and caller.f_back is not None:
        return caller.f_back.f_code is linecache.updatecache.__code__ and act.detail.endswith(_CODE)
    if not caller.f_code.co_filename.startswith(_FINDERS):
        return False
    return act.kind == "ambient_write" or event != "open" or act.detail.endswith(_CODE)
