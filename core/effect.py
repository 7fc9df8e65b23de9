"""An effect that a step asks for outside: what is to be done, and the key by which it is done once."""

from __future__ import annotations

from dataclasses import dataclass

from .model import check_name
from .node import digest_of
from .strict_json import StrictJson

__all__ = ["Effect", "admit_effect", "as_effect", "within"]

UNKEYED = "sha256:"
"""How the key of an effect begins that was queued without one."""

_JSON = StrictJson("make it JSON, which is what is sent and recorded")


@dataclass(frozen=True, slots=True)
class Effect:
    """`payload` is JSON; two effects with one `key` are one effect, so that their payloads are the same too.

    Building it raises TypeError for a payload that is not JSON, ValueError for a key that is none.
    """

    key: str
    payload: object = None

    def __post_init__(self) -> None:
        check_name("the key of an effect", self.key)
        _ = self._json()

    @property
    def payload_digest(self) -> str:
        """The digest of the payload as JSON."""
        return digest_of(self._json())

    def _json(self) -> bytes:
        return _JSON.encode(self.payload, f"the payload of the effect {self.key!r}")


def admit_effect(effect: object) -> Effect:
    """`effect`; a TypeError for anything else that a caller without types may give."""
    if not isinstance(effect, Effect):
        raise TypeError(f"{effect!r} is no Effect: write Effect(key, payload)")
    return effect


def as_effect(value: object) -> Effect:
    """`value` itself, or, if it is JSON, the effect whose key is the digest of it: equal values are one effect."""
    if isinstance(value, Effect):
        return value
    return Effect(UNKEYED + digest_of(_JSON.encode(value, "a queued effect")), value)


def within(scope: str, effect: Effect) -> Effect:
    """The effect, if it has a key of its own; otherwise that of this scope: an equal one elsewhere is another."""
    if not effect.key.startswith(UNKEYED):
        return effect
    return Effect(UNKEYED + digest_of(f"{scope}\0{effect.key}".encode()), effect.payload)
