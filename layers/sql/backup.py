"""A copy of a database, made while others go on using it, and checked."""

from __future__ import annotations

import os
from collections.abc import Callable

from ...services.ledger import CannotOpen
from .connection import Connection, DatabaseError
from .opening import ADDRESS, admit_file, cannot_open, connect_inspector, is_writable, patiently
from .schema import SCHEMA_VERSION

__all__ = [
    "SCHEMA_VERSION",
    "admit_database",
    "check_database",
    "copy_database",
    "is_damaged",
    "is_too_new",
    "names_no_file",
]


def names_no_file(name: str) -> bool:
    """Whether opening refuses this as a path, or takes it for something else."""
    return not name or name == ":memory:" or name.startswith("~") or ADDRESS.match(name) is not None


def admit_database(path: str) -> None:
    """Raises `CannotOpen` if there is no database of ours with anything in it. It blocks."""
    if not os.path.exists(path):
        raise CannotOpen(path, "there is no such file", "Check the path; nothing was made.")
    connection = connect_inspector(path)
    try:
        if patiently(path, lambda: admit_file(connection, path)) == 0:
            raise CannotOpen(path, "there is nothing in it yet", "Check the path; nothing was copied.")
    finally:
        connection.close()


def copy_database(path: str, target: str, check: Callable[[], None]) -> None:
    """Copy all that is committed at one moment to a file that is new or empty. It blocks, until `check` raises.

    Raises `CannotOpen`. What is left of a copy that failed is the caller's to remove.
    """
    stopped: list[BaseException] = []

    def is_to_stop() -> bool:
        try:
            check()
        except BaseException as error:  # raised below, where SQLite has let go of the copy
            stopped.append(error)
        return bool(stopped)

    before = _state_of(path)
    connection = connect_inspector(path)
    try:
        connection.stop_when(is_to_stop)
        patiently(path, lambda: connection.run("vacuum into ?", target))
    except CannotOpen:
        if stopped:
            raise stopped[0] from None
        raise
    finally:
        connection.close()
    if not is_writable(path) and _state_of(path) != before:
        reason = "it was written to while it was copied, and this process may only read it"
        raise CannotOpen(path, reason, "Copy it as somebody who may write to it.")


def _state_of(path: str) -> tuple[int, int, int] | None:
    """What changes when somebody writes to the file itself."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def check_database(path: str) -> int:
    """The version of the schema of a whole database; a `CannotOpen` if it is damaged or not ours. It blocks."""
    try:
        connection = Connection(path, frozen=True)
        try:
            version = admit_file(connection, path)
            found = [str(problem) for (problem,) in connection.rows("pragma quick_check(1)")]
        finally:
            connection.close()
    except DatabaseError as error:
        raise cannot_open(path, error) from error
    if found != ["ok"]:
        raise CannotOpen(path, f"it is damaged: {found[0]}", "Take another backup; the file was left as it was.")
    return version


def is_damaged(error: CannotOpen) -> bool:
    """Whether the file is no whole database, as the functions here and in `opening.py` say it."""
    return error.reason.startswith(("it is damaged", "it is not an SQLite database"))


def is_too_new(error: CannotOpen) -> bool:
    return error.reason.startswith("its schema has version")
