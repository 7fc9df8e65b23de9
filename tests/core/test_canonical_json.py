"""Canonical JSON against RFC 8785's own vectors, and the material of keys, where nothing becomes equal by accident."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwell.core.canonical_json import DEPTH, SAFE_INTEGER, NotCanonical, canonical_json, canonical_material
from stepwell.core.kind import is_dict, is_frozenset, is_list, is_set, is_tuple

# --- RFC 8785 ---------------------------------------------------------------------

NUMBERS = [
    ("0000000000000000", "0"),
    ("8000000000000000", "0"),
    ("0000000000000001", "5e-324"),
    ("8000000000000001", "-5e-324"),
    ("7fefffffffffffff", "1.7976931348623157e+308"),
    ("ffefffffffffffff", "-1.7976931348623157e+308"),
    ("4340000000000000", "9007199254740992"),
    ("c340000000000000", "-9007199254740992"),
    ("4430000000000000", "295147905179352830000"),
    ("44b52d02c7e14af5", "9.999999999999997e+22"),
    ("44b52d02c7e14af6", "1e+23"),
    ("44b52d02c7e14af7", "1.0000000000000001e+23"),
    ("444b1ae4d6e2ef4e", "999999999999999700000"),
    ("444b1ae4d6e2ef4f", "999999999999999900000"),
    ("444b1ae4d6e2ef50", "1e+21"),
    ("3eb0c6f7a0b5ed8c", "9.999999999999997e-7"),
    ("3eb0c6f7a0b5ed8d", "0.000001"),
    ("41b3de4355555553", "333333333.3333332"),
    ("41b3de4355555554", "333333333.33333325"),
    ("41b3de4355555555", "333333333.3333333"),
    ("41b3de4355555556", "333333333.3333334"),
    ("41b3de4355555557", "333333333.33333343"),
    ("becbf647612f3696", "-0.0000033333333333333333"),
    ("43143ff3c1cb0959", "1424953923781206.2"),
]
"""Appendix B: the bits of a double, and its text."""


@pytest.mark.parametrize(("bits", "text"), NUMBERS)
def test_numbers_are_written_as_appendix_b_says(bits: str, text: str) -> None:
    (number,) = struct.unpack(">d", bytes.fromhex(bits))
    assert canonical_json(number) == text.encode()


@pytest.mark.parametrize("bits", ["7fffffffffffffff", "7ff0000000000000", "fff0000000000000"])
@pytest.mark.parametrize("write", [canonical_json, canonical_material])
def test_numbers_that_are_not_finite_are_refused(bits: str, write: Callable[[object], bytes]) -> None:
    (number,) = struct.unpack(">d", bytes.fromhex(bits))
    with pytest.raises(NotCanonical, match="JSON cannot hold"):
        write([number])


def test_the_sample_of_section_3_2_2() -> None:
    given_text = r"""{
      "numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
      "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
      "literals": [null, true, false]
    }"""
    written = (
        '{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],'
        '"string":"€$\\u000f\\nA\'B\\"\\\\\\\\\\"/"}'
    )
    assert canonical_json(json.loads(given_text)) == written.encode()


def test_the_sample_of_section_3_2_3_orders_by_utf_16() -> None:
    given_text = r"""{
      "\u20ac": "Euro Sign", "\r": "Carriage Return", "\ufb33": "Hebrew Letter Dalet With Dagesh", "1": "One",
      "\ud83d\ude00": "Emoji: Grinning Face", "\u0080": "Control", "\u00f6": "Latin Small Letter O With Diaeresis"
    }"""
    value = json.loads(given_text)
    for write in (canonical_json, canonical_material):
        assert list(json.loads(write(value))) == ["\r", "1", "\x80", "ö", "€", "\U0001f600", "\ufb33"]
    assert list(value) != sorted(value) != list(json.loads(canonical_json(value)))  # code points say otherwise


def test_controls_are_escaped_as_ecmascript_does() -> None:
    assert (
        canonical_json('\b\t\n\f\r\0\x1f"\\/\x7f\u2028') == b'"\\b\\t\\n\\f\\r\\u0000\\u001f\\"\\\\/\x7f\xe2\x80\xa8"'
    )


class Text(str):
    __slots__ = ()


REFUSED: list[tuple[object, str]] = [
    (2**53, "integer"),
    (-(2**53), "integer"),
    ("\ud800", "surrogate"),
    ({"\udfff": 1}, "surrogate"),
    ((1, 2), "tuple"),
    (b"", "bytes"),
    ({1: 2}, "not text"),
    ({"a": 1, 2: 3}, "not text"),
    (Text("a"), "Text"),
    (object(), "object"),
    ({1, 2}, "set"),
]


@pytest.mark.parametrize(("value", "reason"), REFUSED)
def test_what_is_no_json_is_refused_with_its_place(value: object, reason: str) -> None:
    with pytest.raises(NotCanonical, match=reason) as raised:
        canonical_json({"x": [0, value]})
    assert raised.value.place in ("['x'][1]", "")  # bad text is found at the end only
    assert (raised.value.place == "") == (reason == "surrogate")


def test_the_largest_integers_of_a_double_are_written() -> None:
    assert canonical_json([SAFE_INTEGER, -SAFE_INTEGER]) == b"[9007199254740991,-9007199254740991]"


def nested(depth: int) -> object:
    value: object = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize("write", [canonical_json, canonical_material])
def test_depth_ends_at_its_limit_and_what_holds_itself_is_refused(write: Callable[[object], bytes]) -> None:
    assert write(nested(DEPTH)) == b"[" * DEPTH + b"1" + b"]" * DEPTH
    cycle: dict[str, object] = {}
    cycle["self"] = [cycle, cycle]
    for value in (nested(DEPTH + 1), cycle):
        with pytest.raises(NotCanonical, match="holds itself"):
            write(value)


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
SMALL = st.integers(-SAFE_INTEGER, SAFE_INTEGER)
JSON = st.recursive(
    st.none() | st.booleans() | SMALL | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda parts: st.lists(parts, max_size=4) | st.dictionaries(TEXTS, parts, max_size=4),
    max_leaves=20,
)


@given(JSON)
def test_canonical_json_reads_back_and_is_its_own_canonical_form(value: object) -> None:
    written = canonical_json(value)
    assert json.loads(written, parse_int=float) == value
    assert canonical_json(json.loads(written, parse_int=float)) == written


PLAIN = st.recursive(
    st.none() | st.booleans() | SMALL | TEXTS,
    lambda parts: st.lists(parts, max_size=4) | st.dictionaries(TEXTS.filter(lambda key: key[:1] != "$"), parts),
    max_leaves=20,
)


@given(PLAIN)
def test_of_plain_values_both_forms_are_the_same_bytes(value: object) -> None:
    assert canonical_material(value) == canonical_json(value)


# --- material ---------------------------------------------------------------------

ALIKE: list[object] = [
    *(1, 1.0, True, "1", b"1", [1], (1,), {1}, frozenset({1}), {1: 1}, {"1": 1}, {True: 1}, {1.0: 1}, {b"1": 1}),
    *(0, 0.0, -0.0, False, None, "", b"", [], (), set[int](), frozenset[int](), dict[str, int](), "null", "None"),
    *(2**53, 2**53 + 1, float(2**53), 10**400, 10**400 + 1, 2**5000, 2**5000 + 1, hex(2**5000)),
    *({"$tuple": [1]}, {"$dict": [["$tuple", [1]]]}, {"$bytes": "31"}, {"$set": [1]}, {"$int": "0x1"}, {"$": 1}),
    *([[1], 2], [1, [2]], [1, 2], [2, 1], ["1,2"], ["1", "2"], ([1],), [(1,)], {"a": [1]}, {"a": (1,)}),
    *({(1, 2): 1}, {(2, 1): 1}, {(1, (2,)): 1}, {"$a": 1, "b": 1}, {"a": 1, "b": 2}, {"a": 2, "b": 1}, 1e21, 10**21),
]
"""Values of which many equal another one, or are the form of another one."""


def test_nothing_becomes_equal_by_accident() -> None:
    forms = [canonical_material(value) for value in ALIKE]
    assert len(set(forms)) == len(ALIKE)
    for form in forms:
        json.loads(form)  # and all of them are JSON


def strictly(value: object) -> object:
    """What two values have to share to be the same: types, the signs of zeros, the order of sequences."""
    if is_dict(value):
        return "dict", frozenset((strictly(key), strictly(item)) for key, item in value.items())
    if is_list(value) or is_tuple(value):
        return type(value).__name__, tuple(map(strictly, value))
    if is_set(value) or is_frozenset(value):
        return type(value).__name__, frozenset(map(strictly, value))
    return type(value).__name__, repr(value)


LEAVES = (
    st.sampled_from([0, 1, 0.0, -0.0, 1.0, True, False, None, "", "1", b"", b"1", "$set", "$tuple", "$dict"])
    | st.integers()
    | TEXTS
)
KEYS = LEAVES | st.tuples(LEAVES) | st.tuples(LEAVES, LEAVES) | st.frozensets(LEAVES, max_size=2)
VALUES = st.recursive(
    KEYS,
    lambda parts: (
        st.lists(parts, max_size=3)
        | st.tuples(parts, parts)
        | st.sets(KEYS, max_size=3)
        | st.dictionaries(KEYS, parts, max_size=3)
    ),
    max_leaves=8,
)


@given(VALUES, VALUES)
def test_two_values_have_one_form_only_if_they_are_the_same(one: object, two: object) -> None:
    assert (canonical_material(one) == canonical_material(two)) == (strictly(one) == strictly(two))


@given(st.dictionaries(KEYS, LEAVES, max_size=5))
def test_the_order_of_a_dict_makes_no_difference(value: dict[object, object]) -> None:
    assert canonical_material(dict(reversed(value.items()))) == canonical_material(value)


def test_of_material_too_what_it_cannot_hold_is_refused_with_its_place() -> None:
    with pytest.raises(NotCanonical, match=r"a object, which a key cannot hold \(at \[1\]\['a'\]\)"):
        canonical_material((0, {"a": object()}))
