"""Redaction takes secrets out, leaves what is none, and has nothing to do with what it has left."""

from __future__ import annotations

import re
from time import process_time

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stepwell.core.redaction import DEPTH, REDACTED, Redaction, Rule, TooDeep, is_secret, redact, redact_json

NAMES = ("apiKey", "token", "safe", "__proto__", "key", "set-cookie", "n")
FRAGMENTS = (
    *(
        "Bearer ",
        "bearer\t",
        "abcdefghijkl",
        "sk-",
        "pk-proj-",
        "sk_live_",
        "token=",
        "API_KEY = ",
        "password='",
        '"',
        "'",
    ),
    *(
        "https://",
        "user:",
        "p@ss@",
        "host/",
        "eyJhbGciOi",
        ".",
        "ghp_",
        "x" * 40,
        "AKIA",
        "Z" * 16,
        " ",
        "\n",
        "=",
        "\\",
    ),
    *(
        "-----BEGIN PRIVATE KEY-----",
        "-----END PRIVATE KEY-----",
        "-",
        REDACTED,
        "[REDACTED_TOKEN]",
        "Authorization: Basic ",
    ),
)

texts = st.one_of(st.text(), st.lists(st.sampled_from(FRAGMENTS) | st.text(max_size=3)).map("".join))
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts,
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(NAMES) | st.text(), inner),
    max_leaves=12,
)


# --- by name ----------------------------------------------------------------------


def test_r1_members_that_are_named_like_secrets() -> None:
    value = {"apiKey": "k", "nested": {"x-api-key": ["a", {"b": 1}], "safe": 7}}
    assert redact(value) == {"apiKey": REDACTED, "nested": {"x-api-key": REDACTED, "safe": 7}}
    assert value == {"apiKey": "k", "nested": {"x-api-key": ["a", {"b": 1}], "safe": 7}}


@pytest.mark.parametrize(
    "name",
    [
        *(
            "apiKey",
            "API_KEY",
            "private_key",
            "signing-key",
            "x-api-key",
            "awsSecretAccessKey",
            "encryptionKeys",
            "ssh key",
        ),
        *("Authorization", "proxy-authorization", "Set-Cookie", "cookies", "token", "refresh_token", "accessTokens"),
        *("password", "DB_PASSWORD", "client_secret", "secrets", "passphrase", "aws.credentials", "sentryDsn"),
    ],
)
@pytest.mark.parametrize("value", ["s", 7, None, True, ["s"], {"s": "s"}])
def test_r1_names_of_secrets(name: str, value: object) -> None:
    assert redact({name: value}) == {name: REDACTED}


@pytest.mark.parametrize(
    "name",
    [
        *(
            "tokenizer",
            "secretary",
            "monkey",
            "idempotencyKey",
            "inputTokens",
            "maxTokens",
            "key",
            "keys",
            "key_digest",
        ),
        *(
            "step_key",
            "cacheKey",
            "primary_key",
            "sortKey",
            "publicKey",
            "passwordless",
            "keyboard",
            "tokens",
            "turkey",
            "",
        ),
    ],
)
def test_r11_names_of_what_is_no_secret(name: str) -> None:
    assert not is_secret(name)
    assert redact({name: "v"}) == {name: "v"}


def test_r4_names_that_mean_something_to_a_language_are_names() -> None:
    value = {"__proto__": {"token": 1}, "__class__": "c"}
    assert redact(value) == {"__proto__": {"token": REDACTED}, "__class__": "c"}


def test_a_name_is_read_to_its_end() -> None:
    assert is_secret("a" * 100_000 + "_token")
    assert is_secret("api" + "_" * 100_000 + "key")
    assert not is_secret("token" + "a" * 100_000)


# --- by text ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("Authorization: Bearer abcdefghijkl", "Authorization: Bearer [REDACTED_TOKEN]"),
        ("use sk-proj-abcdefghij when calling", "use [REDACTED_API_KEY] when calling"),
        ("ANTHROPIC_API_KEY=shhh", "ANTHROPIC_API_KEY=[REDACTED]"),
        ("Authorization: Basic dXNlcjpwYXNz", "Authorization: Basic [REDACTED]"),
        ("sk_live_abcdefghijkl, pk_customer_account", "[REDACTED_API_KEY], pk_customer_account"),
        ("postgres://user:p@ss@db:5432/x?a=b", "postgres://user:[REDACTED]@db:5432/x?a=b"),
        ("http://db:5432/x@y", "http://db:5432/x@y"),
        ("login?token=abc&next=1", "login?token=[REDACTED]&next=1"),
        ("password='a b', user=c", "password=[REDACTED], user=c"),
        ('secret = "a\\" b" x', "secret = [REDACTED] x"),
        ("if token == other", "if token == other"),
        ("a token, a secret: and a password", "a token, a secret: and a password"),
        ("x eyJhbGciOiJI.eyJzdWIiOiIx.c2lnbmF0dXJl y", "x [REDACTED_TOKEN] y"),
        (f"ghp_{'a1' * 18}", "[REDACTED_TOKEN]"),
        ("key AKIAIOSFODNN7EXAMPLE.", "key [REDACTED_TOKEN]."),
        ("a bearer of news", "a bearer of news"),
        ("task-abcdefghijkl", "task-abcdefghijkl"),
        (
            "-----BEGIN RSA PRIVATE KEY-----\nDEK-Info: AES-128-CBC,00\n\nMIIE\n-----END RSA PRIVATE KEY-----\nafter",
            "[REDACTED_PRIVATE_KEY]\nafter",
        ),
        ("-----BEGIN PRIVATE KEY-----\nMIIE, and it was cut", "[REDACTED_PRIVATE_KEY]"),
        ("-----BEGIN PUBLIC KEY-----\nMIIE", "-----BEGIN PUBLIC KEY-----\nMIIE"),
    ],
)
def test_r2_secrets_within_text(text: str, left: str) -> None:
    assert redact(text) == left
    assert redact({"a": [text]}) == {"a": [left]}


def test_other_rules_replace_the_default_ones() -> None:
    redaction = Redaction((Rule(re.compile("[0-9]+"), "<n>"),))
    assert redaction({"text": "sk-proj-abcdefghij 12", "token": "12"}) == {
        "text": "sk-proj-abcdefghij <n>",
        "token": REDACTED,
    }
    assert Redaction(())({"text": "password=abc", "token": "12"}) == {"text": "password=abc", "token": REDACTED}


def test_a_text_that_does_not_come_to_rest_goes() -> None:
    assert Redaction((Rule(re.compile("a"), "aa"),))("banana") == REDACTED


# --- values -----------------------------------------------------------------------


def test_r3_what_contains_itself() -> None:
    looped: dict[str, object] = {"n": 1, "t": True, "f": 2.5, "none": None}
    looped["self"] = [looped]
    assert redact(looped) == {"n": 1, "t": True, "f": 2.5, "none": None, "self": ["[Circular]"]}
    shared = ["s"]
    assert redact([shared, shared]) == [["s"], ["s"]]


@given(values)
@example("token='a'b\"c\"d x")
@example("https://token=a:b@c")
def test_r5_what_is_left_has_nothing_to_take_out(value: object) -> None:
    left = redact(value)
    assert redact(left) == left


@given(values)
def test_what_was_given_is_not_changed(value: object) -> None:
    before = msgspec.json.encode(value) if _is_json(value) else None
    _ = redact(value)
    if before is not None:
        assert msgspec.json.encode(value) == before


def test_without_secrets_it_is_the_same_value() -> None:
    value = {"a": [1, {"b": "text"}], "c": None}
    assert redact(value) is value


def test_r11_a_value_that_is_nested_too_deeply() -> None:
    value: object = "v"
    for _ in range(DEPTH):
        value = [value]
    assert redact(value) is value
    with pytest.raises(TooDeep, match="256"):
        _ = redact([value])


def test_r10_a_text_of_json() -> None:
    assert redact_json("{ not json") == "{ not json"
    assert redact_json('{"token":"raw"}') == '{"token":"[REDACTED]"}'
    assert redact_json('{"a":1}', lambda _: object()) == '"[REDACTED]"'
    assert redact_json("[" * 300 + "]" * 300) == '"[REDACTED]"'


# --- time -------------------------------------------------------------------------

HOSTILE = (
    *(
        "-----BEGIN PRIVATE KEY-----",
        "-----BEGIN RSA ",
        "-",
        "eyJ",
        "eyJaaaaa.",
        "eyJaaaaa.bbbbb.",
        "token=",
        "token   ",
    ),
    *(
        'token="',
        "token='\\",
        "password=\\'\"",
        "://a:",
        "://a:@",
        "://",
        "bearer ",
        "Bearer\t",
        "Authorization: Basic ",
    ),
    *("sk-", "ghp_", "xoxb-", "AKIA", "api_key", "api-key =  ", "github_pat_", " ", "a"),
)


@pytest.mark.parametrize("piece", HOSTILE)
@pytest.mark.parametrize("before", ["", "://a:b"])
def test_long_hostile_text_takes_time_in_proportion(piece: str, before: str) -> None:
    """Where it took the square of it, the longer text would take 64 times as long, and far more than a second."""
    taken = [_seconds(before + piece * (length // len(piece))) for length in (16_000, 128_000)]
    assert taken[1] < max(0.5, 24 * taken[0]), taken


def _seconds(text: str) -> float:
    begun = process_time()
    _ = redact(text)
    return process_time() - begun


def _is_json(value: object) -> bool:
    try:
        _ = msgspec.json.encode(value)
    except (UnicodeEncodeError, ValueError):
        return False
    return True
