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

from .kind import is_frozenset, is_tuple
from .node import digest_of

__all__ = ["CodeFacts", "Form", "Import", "NoForm", "atom", "digest_of_form", "facts_of", "in_order"]

Form: TypeAlias = "str | int | float | bool | list[Form] | None"
"""What something is, as JSON. A list begins with a word that says what it stands for, so that no two forms meet."""

DECIMAL_BITS: Final = 2_048
"""Up to which size an integer is written in decimal digits: Python may be told to write no more than 640 of them."""


class NoForm(TypeError):
    """A constant of code that has no form."""


@final
@dataclass(frozen=True, slots=True)
class Import:
    """An import statement within a function: how many dots, the module's name, and the names taken from it."""

    level: int
    module: str
    names: tuple[str, ...]


@final
@dataclass(frozen=True, slots=True)
class CodeFacts:
    """`chains` are the global names that the code and what is defined in it read, each with the attributes after it."""

    digest: str
    chains: tuple[tuple[str, ...], ...]
    imports: tuple[Import, ...]


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


def digest_of_form(form: Form) -> str:
    """The digest of a form. Text that is not valid Unicode has one too, and that of no other text."""
    text = json.dumps(form, ensure_ascii=False, separators=(",", ":"))
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
    chains, imports = _reached(code)
    return CodeFacts(
        digest=digest_of_form(_form(code)),
        chains=tuple(sorted({*chains, *(chain for facts in inner for chain in facts.chains)})),
        imports=tuple(dict.fromkeys([*imports, *(each for facts in inner for each in facts.imports)])),
    )


def _form(code: CodeType) -> Form:
    return [
        "code",
        code.co_code.hex(),  # as it was compiled, without what the interpreter makes of it while it runs
        code.co_exceptiontable.hex(),
        code.co_name,
        [code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags],
        [*map(_constant, code.co_consts)],
        [*code.co_names],
        [*code.co_varnames],
        [*code.co_freevars],
        [*code.co_cellvars],
    ]


_NAMES: Final = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"})
_ATTRIBUTES: Final = frozenset({"LOAD_ATTR", "LOAD_METHOD"})


def _reached(code: CodeType) -> tuple[set[tuple[str, ...]], list[Import]]:
    chains: set[tuple[str, ...]] = set()
    imports: list[Import] = []
    chain: list[str] = []
    before: list[object] = [None, None]
    for each in dis.get_instructions(code):
        if each.opname == "EXTENDED_ARG":
            continue
        if chain and each.opname in _ATTRIBUTES:
            chain.append(str(each.argval))
            continue
        if chain:
            chains.add(tuple(chain))
        chain = [str(each.argval)] if each.opname in _NAMES else []
        if each.opname == "IMPORT_NAME":
            imports.append(_import(str(each.argval), *before))
        before = [before[1], each.argval]
    return chains, imports


def _import(module: str, level: object, names: object) -> Import:
    taken = tuple(map(str, names)) if is_tuple(names) else ()
    return Import(level if isinstance(level, int) else 0, module, taken)
