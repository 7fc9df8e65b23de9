"""Canonical JSON: one text for one value, of which identities and keys are made.

`canonical_json` is RFC 8785, for which a number is a double: it writes 1.0 as 1 and -0.0 as 0. `canonical_material` is
for keys, in which nothing may become equal by accident: it writes 1, 1.0, -0.0, True, a list, a tuple and a set each
in its own way, and every digit of an integer. Of text, truth values, None and integers of up to 2^53 - 1 in lists and
dicts both write the same bytes, unless a dict has a single member whose name begins with "$".
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from json.encoder import encode_basestring as quoted
from math import isfinite
from typing import Final, TypeAlias, TypeGuard, final

__all__ = ["DEPTH", "SAFE_INTEGER", "NotCanonical", "Tagged", "canonical_json", "canonical_material"]

DEPTH: Final = 128
"""How deeply lists and mappings may be nested."""

SAFE_INTEGER: Final = 2**53 - 1
"""The largest whole number of RFC 8785: up to here a double is one integer only."""

DECIMAL_BITS: Final = 2_048
"""Up to which size an integer is written in decimal digits: Python may be told to write no more than 640 of them."""

_TAG: Final = "$"
"""What the only member of an object begins with that stands for a value which JSON does not know."""


@final
@dataclass(frozen=True, slots=True)
class Tagged:
    """A value of another type, as material: `tag` names the type, in which `value` tells it from all others."""

    tag: str
    value: object


class NotCanonical(ValueError):
    """A value that has no canonical form. `place` says where in what was given, as in `[2]["name"]`; "" is the top."""

    def __init__(self, reason: str, place: str = "") -> None:
        super().__init__(reason, place)
        self.reason = reason
        self.place = place

    def __str__(self) -> str:
        return f"{self.reason} (at {self.place})" if self.place else self.reason


def canonical_json(value: object) -> bytes:
    """The RFC 8785 form of a JSON value: None, a bool, an int, a float, text, a list, or a dict with text keys.

    Raises NotCanonical for anything else, a subclass included, for NaN and infinities, an integer beyond 2^53 - 1,
    text with a lone surrogate, and what is nested more than 128 levels deep, as what holds itself is.
    """
    return _encoded(_json(value, 0))


def canonical_material(value: object) -> bytes:
    """The JSON of a value in a key: two values that differ in any way that Python can tell have two forms.

    Beside JSON it takes bytes, tuples, sets, `Tagged` and dicts with keys of any of these sorts. The order in a dict
    and in a set makes no difference. Raises NotCanonical as `canonical_json` does, but for large integers.
    """
    return _encoded(_material(value, 0))


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise NotCanonical("it holds text that is not valid Unicode (a lone surrogate)") from None


_Write: TypeAlias = Callable[[object, int], str]
"""Writes a value at a depth. Text is `quoted`, which escapes what RFC 8785 does: quotes, backslashes, controls."""


# --- RFC 8785 ---------------------------------------------------------------------


def _json(value: object, depth: int) -> str:
    if type(value) is str:
        return quoted(value)
    if value is None or value is True or value is False:
        return _CONSTANTS[value]
    if type(value) is int:
        if -SAFE_INTEGER <= value <= SAFE_INTEGER:
            return str(value)
        raise NotCanonical("it is an integer beyond 2^53 - 1, of which a double does not keep every digit")
    if type(value) is float:
        return _double(value)
    if _is_dict(value):
        return _members(value, depth, _json)
    if _is_list(value):
        return _array(value, depth, _json)
    raise NotCanonical(f"it is a {type(value).__name__}, which is not JSON")


def _double(number: float) -> str:
    """A number as ECMAScript writes it, from the same shortest digits that Python finds."""
    _check_finite(number)
    if number == 0:
        return "0"
    mantissa, _, exponent = repr(abs(number)).partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    point = len(whole) + int(exponent or 0) - (len(whole + fraction) - len(digits))
    digits = digits.rstrip("0")
    return ("-" if number < 0 else "") + _placed(digits, point)


def _placed(digits: str, point: int) -> str:
    """The number 0.digits times ten to the power of `point`."""
    if len(digits) <= point <= 21:
        return digits + "0" * (point - len(digits))
    if 0 < point <= 21:
        return f"{digits[:point]}.{digits[point:]}"
    if -6 < point <= 0:
        return f"0.{'0' * -point}{digits}"
    rest = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{digits[0]}{rest}e{point - 1:+d}"


# --- material ---------------------------------------------------------------------


def _material(value: object, depth: int) -> str:
    if type(value) is str:
        return quoted(value)
    if value is None or value is True or value is False:
        return _CONSTANTS[value]
    if type(value) is int:
        return _integer(value)
    if type(value) is float:
        _check_finite(value)
        return repr(value)  # has a point or an exponent, which no integer has
    if _is_dict(value):
        return _mapping(value, depth)
    if _is_list(value):
        return _array(value, depth, _material)
    if _is_tuple(value):
        return _tagged("tuple", _array(value, depth, _material))
    if _is_set(value):
        return _tagged(type(value).__name__, _set(value, depth))
    if type(value) is bytes:
        return _tagged("bytes", f'"{value.hex()}"')
    if type(value) is Tagged:
        _check_depth(depth)
        return f"{{{quoted(f'{_TAG}{value.tag}')}:{_material(value.value, depth + 1)}}}"
    raise NotCanonical(f"it is a {type(value).__name__}, which a key cannot hold")


def _integer(number: int) -> str:
    return str(number) if number.bit_length() <= DECIMAL_BITS else _tagged("int", f'"{number:x}"')


def _tagged(tag: str, text: str) -> str:
    return f'{{"{_TAG}{tag}":{text}}}'


def _mapping(value: dict[object, object], depth: int) -> str:
    """A dict as an object; as pairs, if its keys are not all text, or if it looks like what has a tag."""
    keys: Collection[object] = value.keys()
    if _are_texts(keys) and not (len(keys) == 1 and next(iter(keys)).startswith(_TAG)):
        return _members(value, depth, _material)
    _check_depth(depth)
    try:
        pairs = [f"[{_material(key, depth + 1)},{_material(item, depth + 1)}]" for key, item in value.items()]
    except NotCanonical as error:
        raise NotCanonical(error.reason, f"[...]{error.place}") from None
    return _tagged("dict", f"[{','.join(sorted(pairs))}]")


def _set(value: Collection[object], depth: int) -> str:
    _check_depth(depth)
    return f"[{','.join(sorted(_material(item, depth + 1) for item in value))}]"


# --- what both share --------------------------------------------------------------

_CONSTANTS: Final = {None: "null", True: "true", False: "false"}


def _members(value: dict[object, object], depth: int, write: _Write) -> str:
    keys: Collection[object] = value.keys()
    if not _are_texts(keys):
        raise NotCanonical("it has a key that is not text")
    _check_depth(depth)
    written: list[str] = []
    key = ""
    try:
        for key in _in_order(keys):
            item = value[key]
            text = quoted(item) if type(item) is str else write(item, depth + 1)
            written.append(f"{quoted(key)}:{text}")
    except NotCanonical as error:
        raise NotCanonical(error.reason, f"[{key!r}]{error.place}") from None
    return f"{{{','.join(written)}}}"


def _in_order(keys: Collection[str]) -> list[str]:
    """The keys, ordered by their UTF-16 code units, which is not the order of code points beyond the first plane."""
    ordered = sorted(keys)
    if not "".join(ordered).isascii():
        ordered.sort(key=lambda key: key.encode("utf-16-be", "surrogatepass"))
    return ordered


def _array(value: Collection[object], depth: int, write: _Write) -> str:
    _check_depth(depth)
    if _are_texts(value):
        return f"[{','.join(map(quoted, value))}]"
    written: list[str] = []
    try:
        for item in value:
            written.append(quoted(item) if type(item) is str else write(item, depth + 1))
    except NotCanonical as error:
        raise NotCanonical(error.reason, f"[{len(written)}]{error.place}") from None
    return f"[{','.join(written)}]"


def _check_depth(depth: int) -> None:
    if depth >= DEPTH:
        raise NotCanonical(f"it is nested more than {DEPTH} levels deep, or holds itself")


def _check_finite(number: float) -> None:
    if not isfinite(number):
        raise NotCanonical(f"it is {number}, which JSON cannot hold")


# --- exact types ------------------------------------------------------------------


def _is_dict(value: object) -> TypeGuard[dict[object, object]]:
    return type(value) is dict


def _is_list(value: object) -> TypeGuard[list[object]]:
    return type(value) is list


def _is_tuple(value: object) -> TypeGuard[tuple[object, ...]]:
    return type(value) is tuple


def _is_set(value: object) -> TypeGuard[set[object] | frozenset[object]]:
    return type(value) is set or type(value) is frozenset


def _are_texts(value: Collection[object]) -> TypeGuard[Collection[str]]:
    return set(map(type, value)) <= {str}
