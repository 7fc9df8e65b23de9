"""Redaction: secrets are taken out of what is told to a journal, before it is stored.

    by name    a member that is named like a secret loses its value, whatever that is: "apiKey", "set-cookie"
    by text    what looks like a secret within text goes: keys of vendors, bearer tokens, passwords in URLs

What is left has nothing more to take out: `redact(redact(x)) == redact(x)`. It takes time in proportion to the value,
whatever is in it: no rule looks at a stretch of text twice.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, TypeAlias, TypeGuard, final

import msgspec

__all__ = [
    "DEFAULT_RULES",
    "DEPTH",
    "REDACTED",
    "Redaction",
    "Redactor",
    "Rule",
    "TooDeep",
    "is_secret",
    "redact",
    "redact_json",
]

DEPTH: Final = 256
"""How deeply lists and mappings may be nested."""

REDACTED: Final = "[REDACTED]"
CIRCULAR: Final = "[Circular]"

Redactor: TypeAlias = Callable[[object], object]
"""Makes of a JSON value another one, without what is secret; it changes nothing of what it was given."""


class TooDeep(ValueError):
    """A value that is nested more than 256 levels deep."""


@dataclass(frozen=True, slots=True)
class Rule:
    """What of a text is replaced, and by what, as `re.sub` does it. A replacement is not to match its own pattern,
    unless it is replaced by itself."""

    pattern: re.Pattern[str]
    replacement: str


# --- by name ----------------------------------------------------------------------

_ENDINGS: Final = (
    "authorization",
    "cookie",
    "cookies",
    "credential",
    "credentials",
    "dsn",
    "passphrase",
    "passphrases",
    "passwd",
    "password",
    "passwords",
    "secret",
    "secrets",
    "token",
    "accesstokens",
    "apitokens",
    "authtokens",
    "refreshtokens",
    "sessiontokens",
)
"""How the names of secrets end, in small letters and without what is no letter or digit. Tokens are also counted
("inputTokens"), so that of their plural only some names are."""

_KEYS: Final = (
    *("access", "account", "api", "auth", "client", "decryption", "deploy", "encryption", "hmac", "host", "license"),
    *("master", "private", "secret", "service", "shared", "signing", "ssh", "storage", "subscription", "symmetric"),
    *("webhook",),
)
"""Which keys are secrets. Most that programs speak of are not: "key", "step_key", "idempotencyKey", "key_digest"."""

_SECRET_NAME: Final = re.compile(f"(?:{'|'.join(_ENDINGS)}|(?:{'|'.join(_KEYS)})keys?)$")
_NO_LETTER: Final = re.compile(r"[^a-z0-9]+")
_SHORT: Final = 256


def is_secret(name: str) -> bool:
    """Whether a member of this name holds a secret."""
    return _names_secret(name) if len(name) <= _SHORT else _ends_like_secret(name)


def _ends_like_secret(name: str) -> bool:
    return _SECRET_NAME.search(_NO_LETTER.sub("", name.lower())[-_SHORT:]) is not None


_names_secret: Final = lru_cache(4096)(_ends_like_secret)

# --- by text ----------------------------------------------------------------------

_TOKENS: Final = (
    r"gh[opsur]_[A-Za-z0-9]{20,}+",
    r"github_pat_[A-Za-z0-9_]{20,}+",
    r"glpat-[A-Za-z0-9_-]{16,}+",
    r"xox[abeoprs]-[A-Za-z0-9-]{10,}+",
    r"(?:AKIA|ASIA)[A-Z0-9]{16}(?![A-Za-z0-9])",
    r"AIza[A-Za-z0-9_-]{30,}+",
    r"npm_[A-Za-z0-9]{30,}+",
    r"hf_[A-Za-z0-9]{30,}+",
    r"pypi-[A-Za-z0-9_-]{30,}+",
    r"eyJ[A-Za-z0-9_-]{5,}+\.[A-Za-z0-9_-]{5,}+\.[A-Za-z0-9_-]*+",  # a JSON Web Token
)

_VALUE: Final = r"""(?:"(?:[^"\\\n]|\\.)*+"?|'(?:[^'\\\n]|\\.)*+'?|[^\s&;,"'<>])++"""
"""What is assigned: as a shell would read one word, up to a space or what separates assignments."""

# Each begins where no other match can have begun before it in the same stretch, and gives nothing back (`++`), so that
# text made to be slow is not. All are of ASCII: a letter of another script is none that a secret has.
DEFAULT_RULES: Final = (
    Rule(
        re.compile(
            r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----(?:[^-]|-(?!----))*+"
            r"(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----)?"
        ),
        "[REDACTED_PRIVATE_KEY]",
    ),
    Rule(re.compile(rf"(?<![A-Za-z0-9_-])(?:{'|'.join(_TOKENS)})", re.ASCII), "[REDACTED_TOKEN]"),
    Rule(
        re.compile(r"(?<![A-Za-z0-9_-])(?:[sp]k-|[spr]k_(?:live|test)_)[A-Za-z0-9_-]{8,}+", re.ASCII),
        "[REDACTED_API_KEY]",
    ),
    Rule(
        re.compile(r"(?<![A-Za-z0-9])(Bearer)[ \t]++[A-Za-z0-9._~+/=-]{8,}+", re.ASCII | re.IGNORECASE),
        r"\1 [REDACTED_TOKEN]",
    ),
    Rule(
        re.compile(
            r"(?<![A-Za-z0-9])(Authorization[ \t]*+[:=][ \t]*+Basic)[ \t]++[A-Za-z0-9+/=_-]++", re.ASCII | re.IGNORECASE
        ),
        r"\1 [REDACTED]",
    ),
    Rule(re.compile(r"""(?<=://)([^\s/?#:@"'<>]*+):[^\s/?#"'<>]*@""", re.ASCII), r"\1:[REDACTED]@"),
    Rule(
        re.compile(
            rf"(api[_-]?key|token|secret|password|passwd|passphrase)([ \t]*+=)(?!=)([ \t]*+){_VALUE}",
            re.ASCII | re.IGNORECASE,
        ),
        r"\1\2\3[REDACTED]",
    ),
)
"""The rules for text, unless others are given."""

_ROUNDS: Final = 8
"""How often the rules are applied to a text until they find nothing more; one that has still not come to rest goes."""


@final
@dataclass(frozen=True, slots=True)
class Redaction:
    """A redactor by names and by rules for text. Other rules replace the default ones; none at all leaves the names.

    What contains itself becomes "[Circular]" there. It raises `TooDeep` for what is nested more than 256 levels deep.
    """

    rules: Sequence[Rule] = DEFAULT_RULES

    def __call__(self, value: object) -> object:
        return self._walk(value, set())

    def text(self, text: str) -> str:
        """A text without what the rules find in it."""
        for _ in range(_ROUNDS):
            redacted = text
            for rule in self.rules:
                redacted = rule.pattern.sub(rule.replacement, redacted)
            if redacted == text:
                return text
            text = redacted
        return REDACTED

    def _walk(self, value: object, above: set[int]) -> object:
        """What is left of a value; the value itself if that is all of it. `above` are the ids of what holds it."""
        if isinstance(value, str):
            return self.text(value)
        if not (_is_dict(value) or _is_list(value)):
            return value
        if id(value) in above:
            return CIRCULAR
        if len(above) >= DEPTH:
            raise TooDeep(f"it is nested more than {DEPTH} levels deep")
        above.add(id(value))
        try:
            if _is_dict(value):
                return self._members(value, above)
            return self._items(value, above) if _is_list(value) else value
        finally:
            above.discard(id(value))

    def _members(self, value: dict[object, object], above: set[int]) -> object:
        left = {
            name: REDACTED if isinstance(name, str) and is_secret(name) else self._walk(member, above)
            for name, member in value.items()
        }
        return value if all(left[name] is member for name, member in value.items()) else left

    def _items(self, value: list[object], above: set[int]) -> object:
        left = [self._walk(item, above) for item in value]
        return value if all(map(_is_same, left, value)) else left


_default: Final = Redaction()


def redact(value: object, rules: Sequence[Rule] = DEFAULT_RULES) -> object:
    """A JSON value without its secrets; the same object if there are none."""
    return (_default if rules is DEFAULT_RULES else Redaction(rules))(value)


def redact_json(text: str, redactor: Redactor = _default) -> str:
    """A JSON text without the secrets of its value. A text that is no JSON comes back as it is.

    One that was read and cannot be redacted, or not be written again, goes whole.
    """
    try:
        value: object = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return text
    try:
        return msgspec.json.encode(redactor(value)).decode()
    except Exception:
        return msgspec.json.encode(REDACTED).decode()


def _is_dict(value: object) -> TypeGuard[dict[object, object]]:
    return isinstance(value, dict)


def _is_list(value: object) -> TypeGuard[list[object]]:
    return isinstance(value, list)


def _is_same(one: object, other: object) -> bool:
    return one is other
