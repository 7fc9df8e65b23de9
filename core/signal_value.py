"""The value of a signal as JSON: refused where the type is known that the run reads and the value does not fit it.

Whoever sends a signal gives a value of that type, or what its JSON is, as a client does that does not know the type.
Where no type is known, a model or a dataclass is written by its own, and everything else must be JSON already.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Final

from pydantic import BaseModel

from .codec import Codec, codec_of
from .outcome import Failure, Outcome, Success
from .strict_json import StrictJson

__all__ = ["encode_signal"]

_JSON: Final = StrictJson("send a model, a dataclass, or what its JSON is")


def encode_signal(name: str, value: object, known: Sequence[Codec]) -> Outcome[bytes, str]:
    """The JSON of a value, or why it fits none of the `known` types. Without any, a TypeError says what is no JSON."""
    what = f"the value of the signal {name!r}"
    if not known:
        return Success(_encode_own(value, what))
    problems = [problem for codec in known if (problem := _misfit(value, codec, what)) is not None]
    if len(problems) == len(known):
        return Failure("; ".join(dict.fromkeys(problems)))
    fitting = next(codec for codec in known if _misfit(value, codec, what) is None)
    return Success(_encode_as(value, fitting, what))


def _misfit(value: object, codec: Codec, what: str) -> str | None:
    """Why the value does not fit."""
    try:
        _ = _encode_as(value, codec, what)
    except Exception as error:  # a validator may raise anything
        return str(error) or type(error).__name__
    return None


def _encode_as(value: object, codec: Codec, what: str) -> bytes:
    """The JSON of a value that comes back as the type, which it is of, or is the JSON of."""
    try:
        return codec.encode(value, what)
    except TypeError as error:
        try:
            data = _JSON.encode(value, what)
            _ = codec.decode(data, what)
        except TypeError:
            raise error from None
        return data


def _encode_own(value: object, what: str) -> bytes:
    is_dataclass = dataclasses.is_dataclass(value) and not isinstance(value, type)
    codec = codec_of(type(value)) if isinstance(value, BaseModel) or is_dataclass else _JSON
    return codec.encode(value, what)
