"""The identity of the code that a call runs: equal only where the same would be executed.

It is taken from what is loaded, so that a file which was edited meanwhile makes no difference. It covers the function,
its defaults and closure, and what it reaches by global names, transitively, as far as that is the program's own: other
functions, classes, constants, modules. Own classes that its annotations name count too, since their methods run; the
annotations themselves do not. Values are looked at each time, and count as they are at that moment. Functions and
classes of installed packages and of the standard library count by name: their versions are of the environment.

Not covered is what is found by names that are made while it runs (`getattr` of something that is no module or class),
what is read from outside (files, clocks, chance), and what another package's code reads of its own. What cannot be told
is `Unidentified`, and never left out.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from types import FunctionType, MethodType, ModuleType
from typing import Final, final

from .annotation_reach import classes_in
from .class_form import class_form, known_form
from .code_facts import Form, NoForm, digest_of_form, facts_of
from .code_home import class_name, function_name, home_of, is_at_home, is_class_found, is_found, is_own, module_named
from .code_reads import Chain, Import
from .code_refusals import Unknown, refuse_dynamic, refuse_handle, refuse_names
from .code_value import type_form, value_form
from .kind import is_class, is_dict
from .object_state import attribute

__all__ = ["CodeIdentity", "Unidentified", "identify"]

OBJECTS: Final = 10_000
"""How many functions, classes and modules one function may reach."""


@final
@dataclass(frozen=True, slots=True)
class CodeIdentity:
    """`digest` is 64 hex digits; `parts` name what was looked at, for people, the function itself first."""

    digest: str
    parts: tuple[str, ...]


@final
@dataclass(frozen=True, slots=True)
class Unidentified:
    """The code has no identity: `reason` is a sentence that says what is in the way, where, and what helps."""

    reason: str


def identify(fn: Callable[..., object]) -> CodeIdentity | Unidentified:
    """The identity of the code of a callable, as it is now.

    It differs between versions of the interpreter whose bytecode does. Nothing of the program is executed.
    """
    walk = _Walk(_module_of(fn))
    try:
        digest = walk.digest(fn)
    except Unknown as unknown:
        return Unidentified(f"{walk.at} has no identity: {unknown}; {_PIN}")
    except NoForm as error:
        return Unidentified(f"{walk.at} has no identity: its code holds a {error}; {_PIN}")
    except RecursionError:
        return Unidentified(f"{walk.at} has no identity: what it reaches is nested too deeply; {_PIN}")
    return CodeIdentity(digest, tuple(walk.parts))


_PIN: Final = "give the step a `version=` of your own, and raise it when the code changes"
_ASKING: Final = frozenset(
    {"__annotations__", "get_annotations", "get_type_hints", "getfullargspec", "signature", "Signature"}
)
"""Names by which code asks for the annotations of functions."""

_BYTECODE: Final[list[Form]] = ["bytecode", str(sys.implementation.cache_tag), importlib.util.MAGIC_NUMBER.hex()]


_WITHIN: Final[dict[type[object], str]] = {
    partial: "func",
    MethodType: "__func__",
    staticmethod: "__func__",
    classmethod: "__func__",
}


def _module_of(fn: object) -> str:
    """The module of what is to be identified: of the function within, if it is wrapped."""
    while name := _WITHIN.get(type(fn)):
        fn = attribute(fn, name)
    if isinstance(fn, FunctionType):
        return home_of(fn)
    class_ = fn if is_class(fn) else type(fn)
    return class_.__module__


@final
class _Walk:
    """Goes through all that is reached. Functions, classes and modules stand for a number where they are met again."""

    def __init__(self, root: str) -> None:
        self.parts: dict[str, None] = {}
        self.at = f"a callable of {root}"
        """What is being looked at, for people."""
        self._root = root
        self._own: dict[str, bool] = {}
        self._numbers: dict[int, int] = {}
        self.within: dict[int, int] = {}
        self._met: list[FunctionType | type[object] | ModuleType] = []
        self._names: set[str] = set()
        """All names that the code of the program reads."""

    def digest(self, fn: object) -> str:
        forms: list[Form] = [_BYTECODE, value_form(fn, "it", self)]
        done = 0
        told = set[tuple[int, str]]()
        while done < len(self._met):
            forms.append(self._look_at(self._met[done]))
            done += 1
            if done == len(self._met):
                forms += self._told_by_functions(told)
        return digest_of_form(forms)

    def _told_by_functions(self, told: set[tuple[int, str]]) -> Iterator[Form]:
        """What functions are asked for by names that are read somewhere: their own attributes, and annotations."""
        asked = not _ASKING.isdisjoint(self._names)
        for number, met in enumerate(tuple(self._met)):
            if not isinstance(met, FunctionType) or not (met.__dict__ or asked):
                continue
            self.at = function_name(met)
            for name, value in sorted(met.__dict__.items()):
                if name in self._names and name != "__wrapped__" and (number, name) not in told:
                    told.add((number, name))
                    yield ["attribute", number, name, value_form(value, f"`{met.__name__}.{name}`", self)]
            if asked and (number, "") not in told:
                told.add((number, ""))
                for name, annotation in met.__annotations__.items():
                    yield ["annotation", number, name, type_form(annotation, f"the annotation of `{name}`", self)]

    def _is_own(self, module: str) -> bool:
        known = self._own.get(module)
        if known is None:
            known = self._own[module] = is_own(module, self._root)
        return known

    # --- what forms of values and classes ask for ---------------------------------

    def function(self, function: FunctionType) -> Form:
        home = home_of(function)
        if self._is_own(home) or not is_at_home(function):
            return self._number(function)
        name = f"{home}.{function.__code__.co_qualname}"
        refuse_dynamic(name)
        self.parts[name] = None
        known: list[Form] = ["function", name, facts_of(function.__code__).digest]
        if not self._is_own(function.__module__ or home) and is_found(function):
            return known
        return [*known, *self._closure(function), self._wrapped(function)]

    def class_(self, class_: type[object]) -> Form:
        if self.is_own(class_):
            return self._number(class_)
        name = class_name(class_)
        if class_.__module__ != "builtins":
            self.parts[name] = None
        return ["class", name]

    def module(self, module: ModuleType) -> Form:
        if self._is_own(module.__name__):
            return self._number(module)
        refuse_dynamic(module.__name__)
        self.parts[module.__name__] = None
        return ["module", module.__name__]

    def is_own(self, class_: type[object]) -> bool:
        return self._is_own(class_.__module__) or not is_class_found(class_)

    def known(self, value: object, label: str) -> Form:
        return known_form(value, label, self)

    def annotated(self, annotation: object, names: dict[str, object]) -> list[Form]:
        found = classes_in(annotation, names)
        return [self._number(each) for each in found if self.is_own(each)] if found else []

    # --- one after the other ------------------------------------------------------

    def _number(self, met: FunctionType | type[object] | ModuleType) -> Form:
        number = self._numbers.get(id(met))
        if number is None:
            if len(self._met) >= OBJECTS:
                raise Unknown(f"it reaches more than {OBJECTS:,} functions, classes and modules")
            number = self._numbers[id(met)] = len(self._met)
            self._met.append(met)
        return ["met", number]

    def _look_at(self, met: FunctionType | type[object] | ModuleType) -> Form:
        if isinstance(met, FunctionType):
            self.at = function_name(met)
            self.parts[self.at] = None
            return self._function(met)
        if isinstance(met, ModuleType):
            self.at = met.__name__
            self.parts[self.at] = None
            return ["module", *self._contents(met)]
        self.at = class_name(met)
        self.parts[self.at] = None
        return class_form(met, self)

    def _function(self, function: FunctionType) -> Form:
        facts = facts_of(function.__code__)
        form: list[Form] = ["function", function.__qualname__, function.__name__, facts.digest]
        if function.__defaults__:
            form.append(["defaults", *(value_form(each, "a default", self) for each in function.__defaults__)])
        if named := function.__kwdefaults__:
            form.append(["named", *([name, value_form(named[name], "a default", self)] for name in sorted(named))])
        form += self._closure(function)
        if "__wrapped__" in function.__dict__:
            form.append(self._wrapped(function))
        refuse_names(facts.names)
        self._names |= facts.names
        names = function.__globals__
        builtins = attribute(function, "__builtins__")
        assert is_dict(builtins)
        form += [self._chain(chain, names, builtins) for chain in facts.chains]
        form += [self._import(each, names) for each in facts.imports]
        for each, chain in facts.within:
            self._refuse_within(_absolute(each, names), chain)
        for chain in facts.free:
            self._refuse_free(function, chain)
        for annotation in function.__annotations__.values():
            if reached := self.annotated(annotation, names):
                form.append(["annotated", reached])
        return form

    def _closure(self, function: FunctionType) -> Iterator[Form]:
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            try:
                held: object = cell.cell_contents
            except ValueError:  # empty: what is meant to be there has not been assigned, or not any more
                yield ["cell", name]
            else:
                yield ["cell", name, value_form(held, f"`{name}` of its closure", self)]

    def _wrapped(self, function: FunctionType) -> Form:
        wrapped: object = function.__dict__.get("__wrapped__")
        return None if wrapped is None else ["wrapped", value_form(wrapped, "what it wraps", self)]

    # --- names --------------------------------------------------------------------

    def _chain(self, chain: tuple[str, ...], names: dict[str, object], builtins: dict[object, object]) -> Form:
        """What a global name with attributes stands for, as far as modules, and what is found there."""
        first = chain[0]
        if first not in names:
            found = builtins.get(first, _NOTHING)
            return [first, None] if found is _NOTHING else [first, value_form(found, f"`{first}`", self)]
        value = names[first]
        path = first
        module = str(names.get("__name__"))
        for name in chain[1:]:
            if isinstance(value, FunctionType):
                return [path, value_form(value, f"`{path}`", self), self._attribute(value, name)]
            if not isinstance(value, ModuleType):
                break
            refuse_dynamic(f"{value.__name__}.{name}")
            if self._is_lazy(value, name):
                return [path, value_form(value, f"`{path}`", self), name]
            if name not in vars(value):
                break
            module, value = value.__name__, vars(value)[name]
            path = f"{path}.{name}"
        if isinstance(value, ModuleType) and path.count(".") == len(chain) - 1:
            refuse_handle(value.__name__)
        if not isinstance(value, FunctionType | ModuleType) and not is_class(value):
            self.parts[f"{module}.{path.rpartition('.')[2]}"] = None
        return [path, value_form(value, f"`{path}`", self)]

    def _is_lazy(self, module: ModuleType, name: str) -> bool:
        """Whether a library's module finds by itself what is not there yet, as it may be once it was asked for."""
        if "__getattr__" not in vars(module) or self._is_own(module.__name__):
            return False
        return name not in vars(module) or self._is_only_a_name(vars(module)[name])

    def _is_only_a_name(self, value: object) -> bool:
        """Whether a value of a library's module counts by its name."""
        if isinstance(value, FunctionType):
            return not self._is_own(home_of(value)) and is_found(value)
        return is_class(value) and not self.is_own(value)

    def _refuse_within(self, module: str, chain: Chain) -> None:
        """What a function reads of a module that it imports; one of the program counts as a whole."""
        if self._is_own(module):
            return
        if len(chain) == 1:
            refuse_handle(module)
        for end in range(2, len(chain) + 1):
            refuse_dynamic(".".join((module, *chain[1:end])))

    def _refuse_free(self, function: FunctionType, chain: Chain) -> None:
        """The same for a variable of the function around it."""
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            if name == chain[0]:
                try:
                    held: object = cell.cell_contents
                except ValueError:
                    continue
                if isinstance(held, ModuleType):
                    self._refuse_within(held.__name__, chain)

    def _attribute(self, function: FunctionType, name: str) -> Form:
        """What stands under a name that was given to a function."""
        return (
            [name, value_form(vars(function)[name], f"`{function.__name__}.{name}`", self)]
            if name in vars(function)
            else None
        )

    def _contents(self, module: ModuleType) -> Iterator[Form]:
        for name, value in sorted(vars(module).items()):
            if name not in _OF_MODULE:
                yield [name, value_form(value, f"`{name}`", self)]

    def _import(self, each: Import, names: dict[str, object]) -> Form:
        """What an import within a function gives. An own module has to be loaded: it is not loaded by looking at it."""
        name = _absolute(each, names)
        refuse_dynamic(*((f"{name}.{taken}" for taken in each.names) if each.names else (name,)))
        module = module_named(name)
        if not self._is_own(name):  # alike, whether or not it is loaded by now
            return ["import", name, *(self._taken_elsewhere(name, module, taken) for taken in each.names)]
        if module is None:
            raise Unknown(f"it imports `{name}` when it runs, which is not loaded yet; import it at the module's top")
        if not each.names:
            top = name.partition(".")[0]
            return ["import", name, self.module(module), value_form(module_named(top), f"`{top}`", self)]
        return ["import", name, *(self._taken(module, taken) for taken in each.names)]

    def _taken_elsewhere(self, name: str, module: ModuleType | None, taken: str) -> Form:
        """What is taken of a library's module: its name; and what it is, where the program has put something there."""
        value: object = None if module is None else vars(module).get(taken)
        if value is None:
            return taken
        form = value_form(value, f"`{name}.{taken}`", self)
        is_code = isinstance(value, FunctionType) or is_class(value)
        return [taken, form] if name == "sys" or (is_code and not self._is_only_a_name(value)) else taken

    def _taken(self, module: ModuleType, name: str) -> Form:
        value: object = vars(module).get(name, _NOTHING)
        if value is not _NOTHING:
            return [name, value_form(value, f"`{module.__name__}.{name}`", self)]
        if "__getattr__" in vars(module) or not self._is_own(module.__name__):
            return [name, self.module(module)]
        raise Unknown(f"it imports `{module.__name__}.{name}` when it runs, which is not loaded yet")


_OF_MODULE: Final = frozenset(
    {
        *("__name__", "__doc__", "__package__", "__loader__", "__spec__", "__file__", "__cached__", "__path__"),
        *("__builtins__", "__annotations__", "__conditional_annotations__", "__warningregistry__"),
    }
)
"""What every module has, which tells where it was found."""

_NOTHING: Final = object()


def _absolute(each: Import, names: dict[str, object]) -> str:
    if not each.level:
        return each.module
    package: object = names.get("__package__")
    try:
        return importlib.util.resolve_name(
            "." * each.level + each.module, package if isinstance(package, str) else None
        )
    except ImportError as error:
        raise Unknown(f"it imports `{'.' * each.level}{each.module}`, which has no place ({error})") from None
