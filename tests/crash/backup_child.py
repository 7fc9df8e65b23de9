"""Processes that make a backup or restore one, and end themselves on the way, for `test_backup_crash.py`.

Started once, it has everything imported and forks a child for each line that it reads: a JSON object that says what to
do, and at which call to end. Calls are counted where the files of a backup are touched and where SQLite touches its
own. It answers with the child's exit status: 0 that it succeeded, 1 that it was answered a failure.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from typing import Final, Literal, TypedDict

import apsw

from stepwell.core.outcome import Failure
from stepwell.layers import backup as backups
from stepwell.services.clock import ManualClock

NOW_MS: Final = 1_700_000_000_000
REFUSED: Final = 1

BENEATH: Final = "unix"
"""What SQLite uses here; it is named, since the default is ours."""


class Order(TypedDict):
    """`last` is the number of the call that is not made; 0 for none."""

    what: Literal["backup", "restore"]
    db: str
    folder: str
    artifacts: str
    last: int


class Counted:
    """Calls, of which one ends the process."""

    def __init__(self, last: int) -> None:
        self._left = last

    def __call__(self, call: str, name: str) -> None:
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


class CountedFiles(apsw.VFS):
    """What SQLite does to its files, counted; it is what every connection uses by default."""

    def __init__(self, counted: Counted) -> None:
        self.counted = counted
        super().__init__("counted", BENEATH, makedefault=True)

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:
        self.counted("open", "sqlite")
        return _File(self, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:
        self.counted("unlink", filename)
        super().xDelete(filename, syncdir)


class _File(apsw.VFSFile):
    def __init__(self, files: CountedFiles, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        self._counted = files.counted
        super().__init__(BENEATH, name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:
        self._counted("write", "sqlite")
        super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:
        self._counted("sync", "sqlite")
        super().xSync(flags)

    def xTruncate(self, newsize: int) -> None:
        self._counted("truncate", "sqlite")
        super().xTruncate(newsize)


async def execute(order: Order) -> int:
    counted, clock = Counted(order["last"]), ManualClock(NOW_MS)
    files = CountedFiles(counted)
    db, folder, artifacts = order["db"], order["folder"], order["artifacts"]
    if order["what"] == "backup":
        failed = isinstance(await backups.backup(db, folder, clock, artifacts=artifacts, on_call=counted), Failure)
    else:
        failed = isinstance(await backups.restore(folder, db, clock, artifacts=artifacts, on_call=counted), Failure)
    del files  # SQLite knows it as long as it is referred to
    return REFUSED if failed else 0


def main() -> None:
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            os._exit(asyncio.run(execute(json.loads(line))))
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main()
