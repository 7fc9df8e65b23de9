"""The way up: a document that an earlier form of a type wrote, as one of today's form.

A form is a version, which the store's definition names, and the fingerprint of its schema. Within one version a type
may change as long as it accepts what was written; beyond that the definition names the next version, and an *upcaster*
makes the JSON value of a state of one version into that of the next. What was written before forms were kept is of
version 1. Nothing here writes: a document stays as it is until somebody changes the state.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

import msgspec
from pydantic_core import to_json

from .batch import Form
from .kind import is_dict
from .model import Issue
from .outcome import Failure, Outcome, Success
from .strict_json import check_json

__all__ = [
    "NO_UPCASTERS",
    "Upcaster",
    "Upcasters",
    "admit_upcasters",
    "admit_version",
    "brought_up",
    "refused",
    "version_of",
]

Upcaster: TypeAlias = Callable[..., object]
"""It takes a JSON value, which is its own to change, and gives one; whatever kind of value it says it takes."""

Upcasters: TypeAlias = Mapping[int, Upcaster]
"""By the version that each begins from."""

NO_UPCASTERS: Final[Upcasters] = MappingProxyType({})


# --- what a definition names -----------------------------------------------------------------


def admit_version(version: object) -> int:
    """The version of a type; a TypeError or a ValueError for what cannot be one."""
    if type(version) is not int:
        raise TypeError(f"version={version!r} is no whole number: the first form of a type is version 1")
    if version < 1:
        raise ValueError(f"version={version} is not positive: the first form of a type is version 1")
    return version


def admit_upcasters(version: int, upcasters: object) -> Upcasters:
    """The upcasters that lead to a version, by the version from which each leads; TypeError or ValueError otherwise."""
    if upcasters is None:
        return NO_UPCASTERS
    if not is_dict(upcasters):
        raise TypeError(f"upcasters={upcasters!r} is no dict: write upcasters={{1: function}}")
    admitted: dict[int, Upcaster] = {}
    for begin, upcaster in upcasters.items():
        if type(begin) is not int:
            raise TypeError(f"upcasters has the key {begin!r}: a key is the version that the function begins from")
        if not 1 <= begin < version:
            raise ValueError(
                f"upcasters has the key {begin}, and version is {version}: a key is at least 1 and below the version; "
                f"give version={max(begin, 1) + 1} or more, or leave the function out"
            )
        if not callable(upcaster):
            raise TypeError(f"upcasters[{begin}] is a function, not {upcaster!r}")
        if inspect.iscoroutinefunction(upcaster):
            raise TypeError(f"upcasters[{begin}] is async: it makes one JSON value of another, and waits for nothing")
        admitted[begin] = upcaster
    return MappingProxyType(admitted)


def version_of(form: Form | None) -> int:
    """The version of a form; what was written before forms were kept is of the first."""
    return 1 if form is None else form.version


# --- the way -----------------------------------------------------------------


def brought_up(json: bytes, form: Form | None, own: Form, upcasters: Upcasters) -> Outcome[bytes, tuple[Issue, ...]]:
    """The document in the version of `own`; or why there is no way, or where it broke off."""
    version = version_of(form)
    if version > own.version:
        return _failed(
            f"the state was written by a newer program, in version {version} of its type, and this one knows versions "
            f"up to {own.version}: run the newer program, which knows how to read it"
        )
    if version == own.version:
        return Success(json)
    value: object = msgspec.json.decode(json)
    for begin in range(version, own.version):
        upcaster = upcasters.get(begin)
        if upcaster is None:
            return _failed(
                f"the state was written in version {version} of its type, and nothing leads from version {begin} to "
                f"{begin + 1}: give define_store upcasters={{{begin}: ...}}, {_WHAT_IT_DOES}; if there is nothing to "
                f"change, give upcasters={{{begin}: lambda state: state}}"
            )
        try:
            value = _checked(upcaster(value), begin)
        except Exception as error:
            said = f": {error}" if str(error) else ""
            return _failed(
                f"the state was written in version {version} of its type, and upcasters[{begin}], which leads to "
                f"version {begin + 1}, raised {type(error).__name__}{said}; the stored state is as it was"
            )
    return Success(to_json(value))


def refused(form: Form | None, own: Form) -> Issue:
    """What to do about a document that the type does not accept, and that another form of the type has written."""
    version = version_of(form)
    if version < own.version:
        message = (
            f"the state was written in version {version} of its type, and what the upcasters made of it is no state of "
            f"version {own.version}, as the following issues say; the stored state is as it was"
        )
    else:
        written = "an unknown one" if form is None else form.fingerprint
        message = (
            f"the state was written by another form of its type (fingerprint {written}, and this one has "
            f"{own.fingerprint}): let define_store have version={own.version + 1} and "
            f"upcasters={{{own.version}: ...}}, {_WHAT_IT_DOES}"
        )
    return Issue((), message)


_WHAT_IT_DOES: Final = "a function that makes the JSON value of the old state into that of the new one"


def _failed(message: str) -> Failure[tuple[Issue, ...]]:
    return Failure((Issue((), message),))


def _checked(value: object, begin: int) -> object:
    """What an upcaster gave, if it is JSON."""
    if inspect.iscoroutine(value):
        value.close()  # it never began, and would complain
    check_json(value, f"what upcasters[{begin}] gave", 0)
    return value
