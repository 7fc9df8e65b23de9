"""What a code object says of itself: its digest, and the names by which it reaches what is outside of it.

All of it is read from the code that is loaded, never from a source. A code object cannot change, so each is looked at
once while it lives. The digest leaves out what tells only where the code was written: file, lines and columns.
"""

from __future__ import annotations

import dis
import json
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from types import CodeType
from typing import Final, TypeAlias, final

from .code_reads import Chain, Import, reads_of
from .kind import is_frozenset, is_tuple
from .node import digest_of

__all__ = ["CodeFacts", "Form", "NoForm", "atom", "digest_of_form", "facts_of", "in_order"]

Form: TypeAlias = "str | int | float | bool | list[Form] | None"
"""What something is, as JSON. A list begins with a word that says what it stands for, so that no two forms meet."""

DECIMAL_BITS: Final = 2_048
"""Up to which size an integer is written in decimal digits: Python may be told to write no more than 640 of them."""


class NoForm(TypeError):
    """A constant of code that has no form."""


@final
@dataclass(frozen=True, slots=True)
class CodeFacts:
    """`chains` are the global names that the code and what is defined in it read, each with the attributes after it.

    `within` are such chains that begin with a module which the code imports, `free` those that begin with a variable of
    the function around it. `names` are all names that it reads or writes, of globals and of attributes.
    """

    digest: str
    chains: tuple[Chain, ...]
    imports: tuple[Import, ...]
    within: tuple[tuple[Import, Chain], ...]
    free: tuple[Chain, ...]
    names: frozenset[str]


def facts_of(code: CodeType) -> CodeFacts:
    """The facts of a code object. Raises NoForm for a constant that no compiler makes."""
    known = _KNOWN.get(id(code))
    if known is not None and known[0]() is code:
        return known[1]
    facts = _read(code)
    key = id(code)

    def forget(gone: weakref.ref[CodeType]) -> None:
        if (kept := _KNOWN.get(key)) is not None and kept[0] is gone:
            del _KNOWN[key]

    _KNOWN[key] = (weakref.ref(code, forget), facts)
    return facts


_KNOWN: Final[dict[int, tuple[weakref.ref[CodeType], CodeFacts]]] = {}
"""By identity: code objects that are equal may be hashed alike only after all of them was read."""


# --- forms ------------------------------------------------------------------------


_encode: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def digest_of_form(form: Form) -> str:
    """The digest of a form. Text that is not valid Unicode has one too, and that of no other text."""
    text = _encode(form)
    return digest_of(text.encode("utf-8", "surrogatepass"))


def atom(value: object) -> Form:
    """The form of a value of a type that Python has constants of, or NoForm."""
    if value is None or type(value) is str or type(value) is bool or type(value) is float:
        return value
    if type(value) is int:
        return value if value.bit_length() <= DECIMAL_BITS else ["int", f"{value:x}"]
    if type(value) is bytes:
        return ["bytes", value.hex()]
    if type(value) is complex:
        return ["complex", value.real, value.imag]
    if value is Ellipsis or value is NotImplemented:
        return ["constant", repr(value)]
    raise NoForm(type(value).__name__)


def in_order(forms: Iterator[Form]) -> list[Form]:
    """The forms of what has no order, in one."""
    return sorted(forms, key=json.dumps)


def _constant(value: object) -> Form:
    if isinstance(value, CodeType):
        return ["code", facts_of(value).digest]
    if is_tuple(value):
        return ["tuple", *map(_constant, value)]
    if is_frozenset(value):
        return ["frozenset", *in_order(map(_constant, value))]
    return atom(value)


# --- reading ----------------------------------------------------------------------


def _read(code: CodeType) -> CodeFacts:
    inner = [facts_of(constant) for constant in code.co_consts if isinstance(constant, CodeType)]
    reads = reads_of(code)
    loose = {*reads.loose, *(chain for facts in inner for chain in facts.free)}
    within = {(reads.bound[chain[0]], chain) for chain in loose if chain[0] in reads.bound}
    return CodeFacts(
        digest=digest_of_form(_form(code)),
        chains=tuple(sorted({*reads.chains, *(chain for facts in inner for chain in facts.chains)})),
        imports=tuple(dict.fromkeys([*reads.imports, *(each for facts in inner for each in facts.imports)])),
        within=tuple(sorted({*within, *(each for facts in inner for each in facts.within)}, key=repr)),
        free=tuple(sorted(chain for chain in loose if chain[0] in code.co_freevars)),
        names=frozenset(code.co_names).union(*(facts.names for facts in inner)),
    )


def _form(code: CodeType) -> Form:
    return [
        "code",
        *_instructions(code),
        code.co_exceptiontable.hex(),
        code.co_name,
        [code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags],
        [*code.co_names],
        [*code.co_varnames],
        [*code.co_freevars],
        [*code.co_cellvars],
    ]


_OF_PLACE: Final = frozenset({"__firstlineno__", "__static_attributes__"})
"""What the body of a class keeps from Python 3.13 on: its line, and what its methods tell anyway, in any order."""


def _instructions(code: CodeType) -> list[Form]:
    """The bytecode as it was compiled, without what the interpreter makes of it while it runs, and its constants."""
    if _OF_PLACE.isdisjoint(code.co_names):
        return [code.co_code.hex(), [*map(_constant, code.co_consts)]]
    # Each constant where it is loaded: its number, and which constants there are, would tell the line.
    told: list[list[Form]] = []
    for each in dis.get_instructions(code):
        if each.opname == "STORE_NAME" and each.argval in _OF_PLACE:
            told[-1] = [told[-1][0], None]
        is_constant = each.opcode in dis.hasconst
        told.append([each.opcode, _constant(each.argval) if is_constant else each.arg])
    return [[*told]]
