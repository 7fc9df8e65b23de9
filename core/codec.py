"""Values as JSON, by the type that the code gives them: arguments, results, recorded errors.

A function's annotation decides. Without one, or with `Any`, `object` or a type variable, a value must be JSON already:
None, a bool, an int, a float, text, a list, or a dict with text keys, and nothing else. A tuple, a datetime or a model
is a TypeError that names the place, because it would come back as another type.

A value is encoded and decoded again before the first run sees it, so the first run and every replay get the same.
"""

from __future__ import annotations

import inspect
import json
import types
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from functools import lru_cache, partial
from math import isfinite
from typing import Annotated, Any, Literal, Protocol, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from pydantic import ConfigDict, PlainSerializer, PlainValidator, PydanticUserError, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError

from .annotation import subscripted
from .model import RecordedError
from .outcome import Failure, Success
from .typed_dict import portable

__all__ = [
    "Codec",
    "codec_of",
    "elements",
    "error_json",
    "parameters_of",
    "read_error",
    "result_codec",
    "same_json",
    "unwrapped",
]


class Codec(Protocol):
    """JSON of one type. Both calls raise a TypeError whose text begins with `what`, if the value does not fit."""

    def encode(self, value: object, what: str) -> bytes: ...

    def decode(self, data: bytes, what: str) -> object: ...


# --- without an annotation --------------------------------------------------


_ANNOTATE = "annotate the function with the type, so that it comes back as it was"


@dataclass(frozen=True, slots=True)
class _Json:
    """Values that are JSON already; `hint` tells what to do about another."""

    hint: str = _ANNOTATE

    def encode(self, value: object, what: str) -> bytes:
        try:
            _check_json(value, what, 0)
        except TypeError as error:
            raise TypeError(f"{error}: {self.hint}") from None
        try:
            return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
        except ValueError as error:  # a whole number with more digits than Python writes
            raise TypeError(f"{what}: {error}") from None

    def decode(self, data: bytes, what: str) -> object:
        return json.loads(data)


DEPTH = 200
"""How deeply a value without an annotation may be nested."""


def _check_json(value: object, what: str, depth: int) -> None:
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
            _check_json(item, f"{what}[{at}]", depth + 1)
    elif kind is dict:
        for key, item in cast(dict[object, object], value).items():
            if type(key) is not str:
                raise TypeError(f"{what} has the key {key!r}, a {type(key).__name__}, and keys are text")
            _check_text(key, what)
            _check_json(item, f"{what}[{key!r}]", depth + 1)
    else:
        raise TypeError(f"{what} is a {kind.__name__}, which is not JSON")


def _check_text(text: str, what: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise TypeError(f"{what} holds text that is not valid Unicode (a lone surrogate)") from None


# --- with an annotation -----------------------------------------------------


_CONFIG = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64", ser_json_inf_nan="constants")
"""Any bytes, and any float: as null, one that is not finite would come back as None where the type admits that."""


def _adapter(annotation: Any) -> TypeAdapter[object]:  # any annotation at all: no checker can know what it holds
    try:
        return TypeAdapter(annotation, config=_CONFIG)
    except PydanticUserError:  # a type with a configuration of its own refuses another
        return TypeAdapter(annotation)


class _Typed:
    """Values of an annotated type, by pydantic; fields go by their names, not by their aliases."""

    def __init__(self, annotation: object) -> None:
        self._adapter = _adapter(portable(_embedded(annotation)))
        self._is_union = len(_members(annotation)) > 1

    def encode(self, value: object, what: str) -> bytes:
        try:
            data = self._adapter.dump_json(value, by_alias=False, warnings="error")
        except (PydanticSerializationError, ValueError) as error:
            raise TypeError(f"{what}: {error}") from None
        if self._is_union and not _is_kept(value, back := self.decode(data, what)):
            raise TypeError(
                f"{what} is a {type(value).__name__} and would come back as a {type(back).__name__}: "
                "give the members of the union a field that tells them apart"
            )
        return data

    def decode(self, data: bytes, what: str) -> object:
        try:
            return self._adapter.validate_json(data, by_alias=False, by_name=True)
        except ValidationError as error:
            issues = "; ".join(f"{'.'.join(map(str, e['loc'])) or 'value'}: {e['msg']}" for e in error.errors())
            raise TypeError(f"{what} does not fit its type: {issues}") from None


def _is_kept(value: object, back: object) -> bool:
    """Whether what came back is of the same class; a whole number may stand for a float."""
    return type(back) is type(value) or (type(value) is int and type(back) is float)


# --- outcomes ---------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Outcome:
    """`Success[A] | Failure[E]`: one member, "success" or "failure".

    Where E is a union, the failure's class is told by its place among the members, since their fields may agree.
    """

    success: Codec
    failures: tuple[tuple[object, Codec], ...]

    def encode(self, value: object, what: str) -> bytes:
        if isinstance(value, Success):
            return b'{"success":' + self.success.encode(cast(Success[object], value).unwrap(), what) + b"}"
        if not isinstance(value, Failure):
            raise TypeError(f"{what} is a {type(value).__name__}, and its annotation says that it is an Outcome")
        held = cast(Failure[object], value).failure()
        exact = [at for at, (member, _) in enumerate(self.failures) if type(held) is (get_origin(member) or member)]
        fitting = exact or [at for at, (member, _) in enumerate(self.failures) if _is_a(held, member)]
        for at in fitting[:1]:
            return b'{"failure":' + self.failures[at][1].encode(held, what) + b',"of":%d}' % at
        raise TypeError(f"{what} is a Failure of {type(held).__name__}, which its annotation does not list")

    def decode(self, data: bytes, what: str) -> object:
        raw = _load_object(data)
        if "success" in raw:
            return Success(self.success.decode(_dump(raw["success"]), what))
        of = raw.get("of")
        if not isinstance(of, int) or of >= len(self.failures):
            raise TypeError(f"{what} is a failure of a kind that its annotation does not list")
        _, codec = self.failures[of]
        return Failure(codec.decode(_dump(raw["failure"]), what))


def _dump(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _load_object(data: bytes) -> dict[str, object]:
    """A JSON object that was written here."""
    return cast("dict[str, object]", json.loads(data))


def _is_a(value: object, member: object) -> bool:
    if member in _ANYTHING:
        return True
    if member is None:
        return value is None
    origin = get_origin(member) or member
    if origin is Annotated:
        return _is_a(value, get_args(member)[0])
    return isinstance(value, origin) if isinstance(origin, type) else True


def _members(annotation: object) -> tuple[object, ...]:
    return get_args(annotation) if get_origin(annotation) in (Union, types.UnionType) else (annotation,)


def _outcome(annotation: object) -> _Outcome | None:
    members = _members(annotation)
    if not all(get_origin(member) in (Success, Failure) for member in members):
        return None
    held = {get_origin(member): get_args(member)[0] for member in members}
    failures = _members(held[Failure]) if Failure in held else ()
    success = held.get(Success)
    return _Outcome(_codec(success), tuple((member, _codec(member)) for member in failures))


# --- inside other types -------------------------------------------------------


def _embedded(annotation: object) -> object:
    """The same type, in which what pydantic cannot keep as it is goes by the codecs of this module.

    That is what has no annotation of its own, as the values of `dict[str, Any]` and of `list`, and outcomes.
    """
    annotation = _BARE.get(annotation, annotation) if isinstance(annotation, type) else annotation
    origin, args = get_origin(annotation), get_args(annotation)
    if not args or origin is Literal or any(isinstance(arg, list) for arg in args):
        return annotation
    if origin is Annotated:
        return subscripted(Annotated, (_part(args[0]), *args[1:]))
    parts = tuple(_part(arg) for arg in args)
    if parts == args:
        return annotation
    return subscripted(Union if origin is types.UnionType else origin, parts)


_BARE: dict[object, object] = {list: list[Any], dict: dict[str, Any]}


def _part(annotation: object) -> object:
    if annotation in _ANYTHING:
        return Annotated[Any, PlainSerializer(_checked), PlainValidator(_as_it_is)]
    if (outcome := _outcome(annotation)) is not None:
        what = "an outcome in it"

        def encode(value: object) -> object:
            return _load_object(outcome.encode(value, what))

        def decode(raw: object) -> object:
            return outcome.decode(_dump(raw), what)

        return Annotated[Any, PlainSerializer(encode), PlainValidator(decode)]
    return _embedded(annotation)


def _checked(value: object) -> object:
    _check_json(value, "a value in it", 0)
    return value


def _as_it_is(value: object) -> object:
    return value


# --- which codec ------------------------------------------------------------

_JSON = _Json()

_ANYTHING: tuple[object, ...] = (Any, object, inspect.Parameter.empty)
"""Annotations that say nothing."""


@lru_cache(maxsize=4096)
def _cached(annotation: object) -> Codec:
    return _made(annotation)


def _made(annotation: object) -> Codec:
    if annotation in _ANYTHING or isinstance(annotation, TypeVar):
        return _JSON
    return _outcome(annotation) or _Typed(annotation)


def _codec(annotation: object) -> Codec:
    try:
        return _cached(annotation)
    except TypeError:  # an annotation that cannot be hashed
        return _made(annotation)


def codec_of(annotation: object) -> Codec:
    """The codec of an annotation; a TypeError if its type cannot be kept as JSON."""
    try:
        return _codec(annotation)
    except PydanticUserError as error:
        raise TypeError(f"{annotation!r} cannot be kept as JSON: {error.message}") from None


def unwrapped(fn: Callable[..., object]) -> Callable[..., object]:
    """The function that a chain of partials calls in the end."""
    while isinstance(fn, partial):
        fn = cast("partial[object]", fn).func
    return fn


def _hints(fn: Callable[..., object]) -> tuple[dict[str, object], Codec]:
    """The annotations of what a call runs, and the codec of what has none.

    Annotations that cannot be resolved count as none, and the codec's refusals say so.
    """
    function: object = unwrapped(fn)
    named = function if isinstance(function, types.FunctionType | types.MethodType) else type(function).__call__
    try:
        return get_type_hints(named, include_extras=True), _JSON
    except NameError as error:
        return {}, _Json(f"its annotations cannot be read ({error}); define the types that they name in the module")
    except (TypeError, AttributeError):  # not written in Python: it has none
        return {}, _JSON


def result_codec(fn: Callable[..., object]) -> Codec:
    """The codec of what `fn` returns, or, if it is async, of what awaiting it gives."""
    if isinstance(fn, type):
        return codec_of(fn)
    hints, plain = _hints(fn)
    if "return" not in hints:
        return plain
    hint = hints["return"]
    if get_origin(hint) in (Awaitable, Coroutine):
        hint = get_args(hint)[-1]
    return codec_of(hint)


def parameters_of(fn: Callable[..., object]) -> tuple[tuple[inspect.Parameter, Codec], ...]:
    """The positional parameters of a workflow's function after the first, with their codecs."""
    hints, plain = _hints(fn)
    parameters = list(inspect.signature(fn).parameters.values())[1:]
    return tuple((p, codec_of(hints[p.name]) if p.name in hints else plain) for p in parameters)


def elements(array: bytes) -> tuple[bytes, ...]:
    """The elements of a JSON array, one JSON text each."""
    return tuple(_dump(element) for element in json.loads(array))


def same_json(a: bytes, b: bytes) -> bool:
    """Whether two JSON texts say the same; the order of an object's members says nothing."""
    return a == b or _ordered(a) == _ordered(b)


def _ordered(data: bytes) -> str:
    return json.dumps(json.loads(data), sort_keys=True)


# --- recorded errors --------------------------------------------------------


def error_json(error: RecordedError, kind: str) -> bytes:
    """A recorded error and the kind of its failure, as they are stored."""
    record = {"kind": kind, "type": error.type, "message": error.message, "traceback": error.traceback}
    return json.dumps(record).encode()  # escaped: a message may hold any text


def read_error(data: bytes) -> tuple[RecordedError, str]:
    """What `error_json` stored."""
    raw = json.loads(data)
    return RecordedError(raw["type"], raw["message"], raw["traceback"]), raw["kind"]
