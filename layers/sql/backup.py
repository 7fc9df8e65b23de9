"""A copy of a database, made while others go on using it, and checked."""

from __future__ import annotations

import os

from ...services.ledger import CannotOpen
from .connection import Connection, DatabaseError
from .opening import admit_file, cannot_open, connect_inspector
from .schema import SCHEMA_VERSION

__all__ = ["SCHEMA_VERSION", "check_database", "copy_database"]


def copy_database(path: str, target: str) -> int:
    """Copy all that is committed at one moment to a new file, and give the version of its schema. It blocks.

    Raises `CannotOpen`. What is left of a copy that failed is the caller's to remove.
    """
    if not os.path.exists(path):
        raise CannotOpen(path, "there is no such file", "Check the path; nothing was made.")
    connection = connect_inspector(path)
    try:
        version = admit_file(connection, path)
        if version == 0:
            raise CannotOpen(path, "there is nothing in it yet", "Check the path; nothing was copied.")
        connection.run("vacuum into ?", target)
    except DatabaseError as error:
        raise cannot_open(path, error) from error
    finally:
        connection.close()
    with open(target, "rb") as copy:
        os.fsync(copy.fileno())
    return version


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
