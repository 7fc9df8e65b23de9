"""What a code object reads by the names in its bytecode: globals, imported modules, and what is found in them."""

from __future__ import annotations

import dis
from dataclasses import dataclass, field
from types import CodeType
from typing import Final, TypeAlias, final

from .kind import is_tuple

__all__ = ["Chain", "Import", "Reads", "reads_of"]

Chain: TypeAlias = tuple[str, ...]
"""A name with the attributes after it, as `("json", "decoder", "JSONDecoder")`."""


@final
@dataclass(frozen=True, slots=True)
class Import:
    """An import statement within a function: how many dots, the module's name, and the names taken from it."""

    level: int
    module: str
    names: tuple[str, ...]


@final
@dataclass(slots=True)
class Reads:
    """`chains` begin with global names. `loose` ones begin with variables, which `bound` may know as modules.

    Of a bound variable it is told which module it is; without "as" that is the topmost package.
    """

    chains: set[Chain] = field(default_factory=set[Chain])
    loose: set[Chain] = field(default_factory=set[Chain])
    imports: list[Import] = field(default_factory=list[Import])
    bound: dict[str, Import] = field(default_factory=dict[str, Import])


_GLOBALS: Final = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"})
_VARIABLES: Final = frozenset(
    {
        *("LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_FAST_LOAD_FAST", "STORE_FAST_LOAD_FAST"),
        *("LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF"),
    }
)
_ATTRIBUTES: Final = frozenset({"LOAD_ATTR", "LOAD_METHOD"})
_STORES: Final = frozenset({"STORE_FAST", "STORE_DEREF", "STORE_NAME", "STORE_FAST_LOAD_FAST", "STORE_FAST_STORE_FAST"})


def reads_of(code: CodeType) -> Reads:
    """The reads of a code object, without those of the code within it."""
    reads = Reads()
    chain: list[str] = []
    into = reads.chains
    before: list[object] = [None, None]
    imported: Import | None = None
    for each in dis.get_instructions(code):
        name = each.opname
        if name == "EXTENDED_ARG":
            continue
        if chain and name in _ATTRIBUTES:
            chain.append(str(each.argval))
            continue
        if chain:
            into.add(tuple(chain))
        chain = []
        if imported is not None and name in _STORES:
            reads.bound[_first(each.argval)] = imported
            imported = None
        if name in _GLOBALS:
            chain, into = [str(each.argval)], reads.chains
        elif name in _VARIABLES:
            chain, into = [_last(each.argval)], reads.loose
        elif name == "IMPORT_NAME":
            made = _import(str(each.argval), *before)
            reads.imports.append(made)
            imported = None if made.names else Import(made.level, made.module.partition(".")[0], ())
        elif name == "IMPORT_FROM" and imported is not None:  # `import a.b as c`
            imported = reads.imports[-1]
        before = [before[1], each.argval]
    return reads


def _import(module: str, level: object, names: object) -> Import:
    taken = tuple(map(str, names)) if is_tuple(names) else ()
    return Import(level if isinstance(level, int) else 0, module, taken)


def _first(argument: object) -> str:
    """The variable that is stored to first; some instructions are of two."""
    return str(argument[0] if is_tuple(argument) else argument)


def _last(argument: object) -> str:
    """The variable that is loaded last."""
    return str(argument[-1] if is_tuple(argument) else argument)
