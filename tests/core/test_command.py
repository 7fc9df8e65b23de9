"""A command says what is wrong with it when it is made."""

from __future__ import annotations

from datetime import timedelta

import pytest

from stepwell.core.command import Command


def test_a_command_keeps_what_it_was_given() -> None:
    argv, env = ["cc", "-o", "out/r"], {"MODE": "a"}
    command = Command(argv, env=env, timeout=timedelta(seconds=2), stdin=b"x", ok=(0, 1))
    argv.append("more")
    env["MODE"] = "b"
    assert (command.argv, command.env, command.timeout_s) == (("cc", "-o", "out/r"), {"MODE": "a"}, 2.0)
    assert Command(("true",)).timeout_s is None
    assert Command(("true",), timeout=0.5).timeout_s == 0.5
    assert Command(("true",)) == Command(["true"])


@pytest.mark.parametrize(
    ("argv", "error"),
    [
        ("true", TypeError),
        (b"true", TypeError),
        (None, TypeError),
        (("cc", 1), TypeError),
        ((), ValueError),
        (("",), ValueError),
        (("cc", "a\0b"), ValueError),
        (("cc", "\udc80"), ValueError),
    ],
)
def test_an_argv_is_a_sequence_of_text_that_names_a_program(argv: tuple[str, ...], error: type[Exception]) -> None:
    with pytest.raises(error):
        Command(argv)


@pytest.mark.parametrize(
    ("env", "error"),
    [
        ([("A", "b")], TypeError),
        ({"A": 1}, TypeError),
        ({1: "a"}, TypeError),
        ({"": "a"}, ValueError),
        ({"A=B": "a"}, ValueError),
        ({"A": "a\0"}, ValueError),
    ],
)
def test_variables_are_text_by_names_that_can_be_told_apart(env: dict[str, str], error: type[Exception]) -> None:
    with pytest.raises(error):
        Command(("true",), env=env)


@pytest.mark.parametrize("timeout", [0, -1, float("inf"), float("nan"), timedelta(0)])
def test_a_timeout_is_more_than_nothing_and_ends(timeout: float) -> None:
    with pytest.raises(ValueError, match="timeout"):
        Command(("true",), timeout=timeout)


@pytest.mark.parametrize("ok", [(), (256,), (-1,), (0, "1"), (True,)])
def test_exit_codes_are_those_of_the_system(ok: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="exit codes"):
        Command(("true",), ok=ok)
