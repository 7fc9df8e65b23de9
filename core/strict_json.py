"""Values that are JSON already: None, a bool, an int, a float, text, a list, or a dict with text keys, and no others.

What has no annotation is kept as such. A tuple, a datetime or a model would come back as something else.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from math import isfinite
from typing import cast

__all__ = ["DEPTH", "StrictJson", "check_json"]

_ANNOTATE = "annotate the function with the type, so that it comes back as it was"


@dataclass(frozen=True, slots=True)
class StrictJson:
    """Values that are JSON already; `hint` tells what to do about another."""

    hint: str = _ANNOTATE

    def encode(self, value: object, what: str) -> bytes:
        try:
            check_json(value, what, 0)
        except TypeError as error:
            raise TypeError(f"{error}: {self.hint}") from None
        try:
            return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
        except ValueError as error:  # a whole number with more digits than Python writes
            raise TypeError(f"{what}: {error}") from None

    def write(self, value: object, what: str) -> bytes:
        return self.encode(value, what)

    def decode(self, data: bytes, what: str) -> object:
        return json.loads(data)


DEPTH = 200
"""How deeply a value without an annotation may be nested."""


def check_json(value: object, what: str, depth: int) -> None:
    if depth > DEPTH:
        raise TypeError(f"{what} is nested more than {DEPTH} levels deep, or holds itself")
    kind = type(value)
    if value is None or kind is bool or kind is int:
        return
    if kind is str:
        _check_text(cast(str, value), what)
    elif kind is float:
        if not isfinite(cast(float, value)):
            raise TypeError(f"{what} is {value}, which JSON cannot hold")
    elif kind is list:
        for at, item in enumerate(cast(list[object], value)):
            check_json(item, f"{what}[{at}]", depth + 1)
    elif kind is dict:
        for key, item in cast(dict[object, object], value).items():
            if type(key) is not str:
                raise TypeError(f"{what} has the key {key!r}, a {type(key).__name__}, and keys are text")
            _check_text(key, what)
            check_json(item, f"{what}[{key!r}]", depth + 1)
    else:
        raise TypeError(f"{what} is a {kind.__name__}, which is not JSON")


def _check_text(text: str, what: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise TypeError(f"{what} holds text that is not valid Unicode (a lone surrogate)") from None
