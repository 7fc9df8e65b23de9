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
import weakref
from collections.abc import (
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    Mapping,
    MutableMapping,
    MutableSequence,
    MutableSet,
    Sequence,
    Set,
)
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Annotated, Any, Final, Literal, Protocol, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from pydantic import PlainSerializer, PlainValidator

from .annotation import subscripted
from .model import RecordedError
from .outcome import Failure, Success
from .strict_json import StrictJson, check_json
from .typed_codec import TypedCodec

__all__ = [
    "Codec",
    "codec_of",
    "elements",
    "error_json",
    "hints_of",
    "parameters_of",
    "read_error",
    "result_codec",
    "same_json",
    "unwrapped",
]


class Codec(Protocol):
    """JSON of one type. All calls raise a TypeError whose text begins with `what`, if the value does not fit."""

    def encode(self, value: object, what: str) -> bytes:
        """The JSON of a value that comes back as what it is; of any other it is refused."""
        ...

    def write(self, value: object, what: str) -> bytes:
        """The JSON of a part of a value that is looked at as a whole."""
        ...

    def decode(self, data: bytes, what: str) -> object: ...


# --- outcomes ---------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Outcome:
    """`Success[A] | Failure[E]`: one member, "success" or "failure".

    Which member of a union E a failure is, is told by the member's name, since their fields may agree. It is not told
    by its place: Python takes `A | B` and `B | A` for the same, and gives back whichever was made first. A record that
    has a place was written before that was seen.
    """

    success: Codec
    failures: tuple[tuple[object, Codec], ...]
    names: tuple[str, ...]

    def encode(self, value: object, what: str) -> bytes:
        return self._written(value, what, lambda codec: codec.encode)

    def write(self, value: object, what: str) -> bytes:
        return self._written(value, what, lambda codec: codec.write)

    def _written(self, value: object, what: str, by: Callable[[Codec], Callable[[object, str], bytes]]) -> bytes:
        if isinstance(value, Success):
            return b'{"success":' + by(self.success)(cast(Success[object], value).unwrap(), what) + b"}"
        if not isinstance(value, Failure):
            raise TypeError(f"{what} is a {type(value).__name__}, and its annotation says that it is an Outcome")
        held = cast(Failure[object], value).failure()
        exact = [at for at, (member, _) in enumerate(self.failures) if type(held) is (get_origin(member) or member)]
        fitting = exact or [at for at, (member, _) in enumerate(self.failures) if _is_a(held, member)]
        for at in sorted(fitting, key=self.names.__getitem__)[:1]:
            name = json.dumps(self.names[at]).encode()
            return b'{"failure":' + by(self.failures[at][1])(held, what) + b',"of":' + name + b"}"
        raise TypeError(f"{what} is a Failure of {type(held).__name__}, which its annotation does not list")

    def decode(self, data: bytes, what: str) -> object:
        raw = _load_object(data)
        if "success" in raw:
            return Success(self.success.decode(_dump(raw["success"]), what))
        of = raw.get("of")
        place = self.names.index(of) if isinstance(of, str) and of in self.names else of
        if type(place) is not int or not 0 <= place < len(self.failures):
            raise TypeError(f"{what} is a failure of a kind that its annotation does not list: {of!r}")
        _, codec = self.failures[place]
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
    return _Outcome(_codec(success), tuple((member, _codec(member)) for member in failures), _names(failures))


def _names(members: tuple[object, ...]) -> tuple[str, ...]:
    """What each member is called in a record: by its class alone, if no other one is called so."""
    short = [_name(member) for member in members]
    return tuple(
        name if short.count(name) == 1 else f"{getattr(member, '__module__', '')}.{member!r}"
        for name, member in zip(short, members, strict=True)
    )


def _name(member: object) -> str:
    return member.__qualname__ if isinstance(member, type) and get_origin(member) is None else repr(member)


# --- inside other types -------------------------------------------------------


def _embedded(annotation: object) -> object:
    """The same type, in which what pydantic cannot keep as it is goes by the codecs of this module.

    That is what has no annotation of its own, as the values of `dict[str, Any]` and of `list`, and outcomes.
    """
    annotation = _BARE.get(get_origin(annotation) or annotation, annotation) if _is_bare(annotation) else annotation
    origin, args = get_origin(annotation), get_args(annotation)
    if not args or origin is Literal or any(isinstance(arg, list) for arg in args):
        return annotation
    if origin is Annotated:
        return subscripted(Annotated, (_part(args[0]), *args[1:]))
    parts = tuple(_part(arg) for arg in args)
    if parts == args:
        return annotation
    return subscripted(Union if origin is types.UnionType else origin, parts)


def _is_bare(annotation: object) -> bool:
    return not get_args(annotation) and isinstance(get_origin(annotation) or annotation, type)


_BARE: dict[object, object] = {
    **{form: subscripted(form, Any) for form in (list, set, frozenset)},
    **{form: subscripted(form, Any) for form in (Collection, Sequence, MutableSequence, Set, MutableSet)},
    **{form: subscripted(form, (str, Any)) for form in (dict, Mapping, MutableMapping)},
    tuple: tuple[Any, ...],
}
"""What containers hold whose annotation does not say of what."""


def _part(annotation: object) -> object:
    if annotation in _ANYTHING:
        return Annotated[Any, PlainValidator(_finite)]
    if (outcome := _outcome(annotation)) is not None:
        what = "an outcome in it"

        def encode(value: object) -> object:
            return _load_object(outcome.write(value, what))

        def decode(raw: object) -> object:
            return outcome.decode(_dump(raw), what)

        return Annotated[Any, PlainSerializer(encode), PlainValidator(decode)]
    return _embedded(annotation)


def _finite(value: object) -> object:
    """JSON that was read, if that is what it was written as: numbers that are not finite are no JSON."""
    try:
        check_json(value, "a value in it", 0)
    except TypeError as error:
        raise ValueError(str(error)) from None
    return value


_WRITE_A_DEF = "a lambda cannot be annotated: write a def with the type, so that it comes back as it was"

# --- which codec ------------------------------------------------------------

_JSON = StrictJson()

_ANYTHING: tuple[object, ...] = (Any, object, inspect.Parameter.empty)
"""Annotations that say nothing."""


@lru_cache(maxsize=4096)
def _cached(annotation: object) -> Codec:
    return _made(annotation)


def _made(annotation: object) -> Codec:
    if annotation in _ANYTHING or isinstance(annotation, TypeVar):
        return _JSON
    is_union = len(_members(annotation)) > 1
    return _outcome(annotation) or TypedCodec(annotation, _embedded(annotation), is_union=is_union)


def _codec(annotation: object) -> Codec:
    try:
        return _cached(annotation)
    except TypeError:  # an annotation that cannot be hashed
        return _made(annotation)


def codec_of(annotation: object) -> Codec:
    """The codec of an annotation; a TypeError if its type cannot be kept as JSON."""
    return _codec(annotation)


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
        return {}, StrictJson(
            f"its annotations cannot be read ({error}); define the types that they name in the module"
        )
    except (TypeError, AttributeError):  # not written in Python: it has none
        return {}, _JSON


def hints_of(fn: Callable[..., object]) -> dict[str, object]:
    """The annotations of a function by the names of its parameters; none if they cannot be read, or not yet."""
    return _hints(fn)[0]


def result_codec(fn: Callable[..., object]) -> Codec:
    """The codec of what `fn` returns, or, if it is async, of what awaiting it gives."""
    if isinstance(fn, type):
        return codec_of(fn)
    if not isinstance(fn, types.FunctionType):
        return _find_result_codec(fn)
    if (found := _RESULT_CODECS.get(fn)) is None:
        found = _RESULT_CODECS[fn] = _find_result_codec(fn)
    return found


_RESULT_CODECS: Final[weakref.WeakKeyDictionary[types.FunctionType, Codec]] = weakref.WeakKeyDictionary()


def _find_result_codec(fn: Callable[..., object]) -> Codec:
    hints, plain = _hints(fn)
    if "return" not in hints:
        return StrictJson(_WRITE_A_DEF) if getattr(unwrapped(fn), "__name__", "") == "<lambda>" else plain
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
