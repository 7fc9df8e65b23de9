"""What stands in the way of a backup or a restore, as it is raised on its thread and answered to the caller."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ...core.backup import BackupCode, BackupError
from ...core.outcome import Failure, Outcome, Success
from ...services.ledger import CannotOpen
from ..files.beside import Check, in_thread
from ..sql.backup import is_damaged, is_too_new

__all__ = ["Refused", "answered", "why_not_opened"]

_T = TypeVar("_T")


class Refused(Exception):
    def __init__(self, code: BackupCode, message: str) -> None:
        super().__init__(message)
        self.error = BackupError(code, message)


def why_not_opened(error: CannotOpen) -> BackupError:
    if is_damaged(error):
        return BackupError("database_damaged", str(error))
    return BackupError("schema_mismatch" if is_too_new(error) else "io", str(error))


async def answered(work: Callable[[Check], _T]) -> Outcome[_T, BackupError]:
    """What the work gives, or why it could not be done. A cancellation is raised when the work has ended."""
    try:
        return Success(await in_thread(work))
    except Refused as refused:
        return Failure(refused.error)
    except CannotOpen as error:
        return Failure(why_not_opened(error))
    except OSError as error:
        return Failure(BackupError("io", f"{error.filename or 'a file'}: {error.strerror or error}"))
