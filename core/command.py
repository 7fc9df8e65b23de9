"""A command as the body of a step, and what it leaves: its exit code and what it printed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from math import isfinite
from types import MappingProxyType
from typing import Final, final

from typing_extensions import TypeIs

__all__ = ["Command", "CommandFailure", "CommandOutput", "CommandRefused"]

EXIT_CODES: Final = range(256)


@final
@dataclass(frozen=True, slots=True)
class Command:
    """A program to execute in a workspace, with everything that it is given.

    `argv` is the program and its arguments; a program without a slash is looked for in the sandbox's `PATH`. `env` is
    added to the few fixed variables that every command has, and may replace them; nothing else of the environment is
    visible. `timeout` is in seconds or a timedelta, and shortens the limit of the sandbox. `stdin` is read to its end
    or not, as the program likes. `ok` are the exit codes that mean success.
    """

    argv: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    timeout: timedelta | float | None = None
    stdin: bytes = b""
    ok: tuple[int, ...] = (0,)

    def __post_init__(self) -> None:
        object.__setattr__(self, "argv", _checked_argv(self.argv))
        object.__setattr__(self, "env", MappingProxyType(_checked_env(self.env)))
        object.__setattr__(self, "ok", _checked_ok(self.ok))
        _check_stdin(self.stdin)
        _check_timeout(self.timeout)

    @property
    def timeout_s(self) -> float | None:
        """The timeout in seconds."""
        return self.timeout.total_seconds() if isinstance(self.timeout, timedelta) else self.timeout


@final
@dataclass(frozen=True, slots=True)
class CommandOutput:
    """What an accepted command gives as `output`: its exit code, which is one of `ok`, and what it printed."""

    exit_code: int
    stdout: bytes
    stderr: bytes


@final
@dataclass(frozen=True, slots=True)
class CommandFailure:
    """How a command failed: its exit code, which is none of `ok`, and the end of what it printed, as text.

    `missed` are paths that it only looked for, and that the folder has and the step does not declare; `read_only` are
    declared reads that it opened for writing. Either may be why it failed, and of either the first few are named.
    """

    exit_code: int
    stdout: str
    stderr: str
    missed: tuple[str, ...] = ()
    read_only: tuple[str, ...] = ()


@final
@dataclass(frozen=True, slots=True)
class CommandRefused:
    """No command is executed here, and why: the probe that failed, and what to do. Nothing was executed."""

    probe: str
    message: str


def _checked_argv(argv: object) -> tuple[str, ...]:
    if not _is_sequence(argv):
        raise TypeError(f"the argv of a command is a sequence of text, not {type(argv).__name__}: (program, ...)")
    words = tuple(_text("an argument of a command", word) for word in argv)
    if not words or not words[0]:
        raise ValueError("the argv of a command begins with the program to execute")
    return words


def _checked_env(env: object) -> dict[str, str]:
    if not _is_mapping(env):
        raise TypeError(f"the env of a command is a mapping of text, not {type(env).__name__}")
    checked = {_text("a variable's name", name): _text("a variable's value", value) for name, value in env.items()}
    for name in checked:
        if not name or "=" in name:
            raise ValueError(f"{name!r} cannot be the name of a variable of a command")
    return checked


def _checked_ok(ok: object) -> tuple[int, ...]:
    if not _is_tuple(ok):
        raise TypeError(f"the ok of a command is a tuple of exit codes, not {type(ok).__name__}")
    codes = tuple(code for code in ok if isinstance(code, int) and not isinstance(code, bool) and code in EXIT_CODES)
    if not codes or len(codes) != len(ok):
        raise ValueError(f"the ok of a command holds exit codes from 0 to 255, at least one, not {ok!r}")
    return codes


def _is_sequence(value: object) -> TypeIs[Sequence[object]]:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _is_mapping(value: object) -> TypeIs[Mapping[object, object]]:
    return isinstance(value, Mapping)


def _is_tuple(value: object) -> TypeIs[tuple[object, ...]]:
    return isinstance(value, tuple)


def _check_stdin(stdin: object) -> None:
    if not isinstance(stdin, bytes):
        raise TypeError(f"the stdin of a command is bytes, not {type(stdin).__name__}")


def _check_timeout(timeout: object) -> None:
    if timeout is None:
        return
    if isinstance(timeout, bool) or not isinstance(timeout, timedelta | int | float):
        raise TypeError(f"the timeout of a command is a number of seconds or a timedelta, not {timeout!r}")
    seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
    if not isfinite(seconds) or seconds <= 0:
        raise ValueError(f"the timeout of a command is more than nothing, and has an end, not {timeout!r}")


def _text(what: str, text: object) -> str:
    if not isinstance(text, str):
        raise TypeError(f"{what} is text, not {type(text).__name__}")
    if "\0" in text:
        raise ValueError(f"{what} cannot hold a NUL character: {text!r}")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{what} is not valid Unicode: {text!r}") from None
    return text
