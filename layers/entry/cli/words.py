"""Words of a command line as values: a workflow's arguments, and the changes of `--set`."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NoReturn

from ....core.codec import Codec, parameters_of
from ....core.kind import is_dict, is_list
from ....core.model import Path
from ....services.workflow import AnyWorkflow
from .numbers import read_digits
from .paths import path_text, read_path
from .problem import WRONG_USAGE, Problem

__all__ = ["Assignment", "UnknownPath", "assign", "look", "read_arguments", "read_assignment"]

# --- arguments --------------------------------------------------------------


def read_arguments(workflow: AnyWorkflow, words: Sequence[str]) -> tuple[object, ...]:
    """The words as arguments of the workflow: each is JSON or, where that does not fit the parameter, text.

    So `42` is a number for an int, and the text "42" for a str. What fits in neither way, and too many or too few
    words, are wrong usage.
    """
    parameters = parameters_of(workflow.function)
    if len(words) > len(parameters) and not (parameters and _is_rest(parameters[-1][0])):
        raise _misfit(f"{workflow.name} takes {_count(len(parameters), 'argument')}, and {len(words)} were given")
    missing = [p.name for p, _ in parameters[len(words) :] if p.default is p.empty and not _is_rest(p)]
    if missing:
        raise _misfit(f"{workflow.name} also needs {_listed(missing)}")
    arguments: list[object] = []
    for at, word in enumerate(words):
        parameter, codec = parameters[min(at, len(parameters) - 1)]
        arguments.append(_read_argument(word, codec, f"{workflow.name}: argument {parameter.name!r}"))
    return tuple(arguments)


def _read_argument(word: str, codec: Codec, what: str) -> object:
    text = json.dumps(word).encode()
    try:
        parse_json(word)
    except ValueError:
        forms = [text]
    else:
        forms = [word.encode(), text]
    problem = ""
    for form in forms:
        try:
            return codec.decode(form, what)
        except TypeError as error:
            problem = problem or str(error)
    raise _misfit(f"{problem} (given: {word})")


def _is_rest(parameter: inspect.Parameter) -> bool:
    return parameter.kind is parameter.VAR_POSITIONAL


def _misfit(text: str) -> Problem:
    return Problem("invalid_argument", text, exit_code=WRONG_USAGE)


def _count(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def parse_json(text: str) -> object:
    """Strict JSON; a ValueError says where it is none."""
    try:
        return json.loads(text, parse_constant=_no_number)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


# --- assignments ------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Assignment:
    """One `--set`: where in a state, and the JSON value that is to stand there. The empty path is the whole state."""

    path: Path
    value: object


def read_assignment(word: str) -> Assignment:
    """`items[0].status="new"`, or `items.0.status="new"`; a key of any text is written `["a.b"]`."""
    path, rest = read_path(word)
    if rest[:1] != "=":
        raise _bad_set(word, f"the path cannot be read at {rest!r}" if rest else "there is no =")
    try:
        return Assignment(path, parse_json(rest[1:]))
    except ValueError as error:
        hint = f'; for text write {word.removesuffix(rest)}="..." with the quotes' if rest[1:] else ""
        raise Problem("invalid_json", f"--set {word}: what follows = is no JSON: {error}{hint}") from None


def _bad_set(word: str, why: str) -> Problem:
    return Problem("usage", f"--set {word}: {why}; write PATH=JSON, like items[0].status=1", exit_code=WRONG_USAGE)


class UnknownPath(Exception):
    """There is nothing in a state at this path, and nothing can be put there."""


def assign(document: object, assignments: Iterable[Assignment]) -> object:
    """The JSON document, changed: the values are in their places. `UnknownPath` names what is not there.

    A new member of an object is let in here: whether it may have one is for the state's type to say.
    """
    for assignment in assignments:
        if not assignment.path:
            document = assignment.value
            continue
        _put(look(document, assignment.path[:-1]), assignment)
    return document


def look(document: object, path: Path) -> object:
    """What the document has at the path. `UnknownPath` names what is not there."""
    for at, segment in enumerate(path):
        document = _member(document, segment, path[:at])
    return document


def _put(inner: object, assignment: Assignment) -> None:
    *_, last = assignment.path
    where = assignment.path[:-1]
    if is_dict(inner):
        inner[str(last)] = assignment.value
    elif is_list(inner):
        inner[_index(inner, last, where)] = assignment.value
    else:
        raise UnknownPath(f"{path_text(where)} is {_shown(inner)} and has nothing inside it")


def _member(inner: object, segment: str | int, where: Path) -> object:
    if is_dict(inner):
        if str(segment) in inner:
            return inner[str(segment)]
        raise UnknownPath(f"{path_text(where)} has no {str(segment)!r}; it has {_listed(inner)}")
    if is_list(inner):
        return inner[_index(inner, segment, where)]
    raise UnknownPath(f"{path_text(where)} is {_shown(inner)} and has nothing inside it")


def _index(inner: list[object], segment: str | int, where: Path) -> int:
    index = read_digits(str(segment))
    if index is not None and index < len(inner):
        return index
    raise UnknownPath(
        f"{path_text(where)} has no {segment!r}; it is a list of {_count(len(inner), 'element')}, from 0 on"
    )


def _shown(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _listed(names: Iterable[object]) -> str:
    return ", ".join(repr(name) for name in names) or "nothing"
