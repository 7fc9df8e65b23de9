"""Commands under bubblewrap: what a transaction calls.

A runner proves its isolation before the first command, by probes that try to get out, and executes each command in a
workspace of its own in memory. Nothing of the host is changed; what came out is read from the result.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from contextlib import suppress
from typing import Final, TypeAlias

from ....core.boundary import Declaration
from ....core.command import Command, CommandRefused
from ....core.outcome import Failure, Outcome, Success
from ....core.workspace_limits import WorkspaceLimits
from ..host import Seed
from ..threads import to_its_end
from .execution import BROKE_OFF, Execution, Order
from .launching import Launcher
from .policy import Policy
from .proof import DECLARATION, LIMITS, Bait, judge
from .refusals import no_bubblewrap, refusal
from .values import CommandLost, CommandResult, Produced, Proof, RunFailure, Unsupported

__all__ = ["CommandLost", "CommandResult", "CommandRunner", "Produced", "Proof", "RunFailure", "Unsupported"]

VERSION_TIMEOUT_S: Final = 5

_Identity: TypeAlias = tuple[str, int, int, int, int, int]
"""A program's path, and by what a change of it is noticed."""


class CommandRunner:
    """Executes commands, each in a workspace of its own; safe to be used by several tasks at once.

    `bwrap` is the path of bubblewrap, or None to look for it in `PATH`. `policy` says what commands see. `python` is
    the interpreter of the runner's own processes, which the self-test uses within the sandbox too.
    """

    def __init__(self, *, bwrap: str | None = None, policy: Policy | None = None, python: str = sys.executable) -> None:
        self._bwrap = bwrap
        self._policy = policy or Policy()
        self._python = python
        self._launcher = Launcher(python)
        self._proving = asyncio.Lock()
        self._proved: tuple[_Identity, Proof] | None = None
        self._running: set[Execution] = set()
        self._is_closed = False

    async def prove(self) -> Outcome[Proof, CommandRefused]:
        """Try to get out of a sandbox in every way that is known, and see that the declared works and all is seen.

        A proof is kept until bubblewrap is replaced. What failed is tried again when it is asked for again.
        """
        found = self._find()
        if found is None:
            return Failure(no_bubblewrap(self._bwrap or "bwrap in PATH"))
        async with self._proving:
            if self._proved is not None and self._proved[0] == found:
                return Success(self._proved[1])
            proof = await self._prove(found[0])
            if isinstance(proof, CommandRefused):
                return Failure(proof)
            self._proved = (found, proof)
            return Success(proof)

    async def run(
        self, seed: Seed, declaration: Declaration, command: Command, limits: WorkspaceLimits
    ) -> Outcome[CommandResult, RunFailure]:
        """Execute a command on the seed's files, and look at what it left. The result is the caller's to close.

        Any exit code is a result; whether it is one of `ok` is for the caller to say. If the caller is cancelled, every
        process of the command is dead before the cancellation goes on.
        """
        proof = await self.prove()
        if isinstance(proof, Failure):
            return proof
        assert self._proved is not None
        return await self._execute(Order(self._proved[0][0], self._policy, seed, declaration, command, limits))

    async def close(self) -> None:
        """End the processes of the runner. Commands that are being executed are lost."""
        self._is_closed = True
        for execution in self._running:
            execution.give_up()
        await to_its_end(asyncio.to_thread(self._launcher.close))

    @property
    def executing(self) -> int:
        """How many commands are being executed."""
        return len(self._running)

    def _find(self) -> _Identity | None:
        path = shutil.which(self._bwrap or "bwrap")
        if path is None:
            return None
        status = os.stat(path)
        return (
            os.path.abspath(path),
            status.st_dev,
            status.st_ino,
            status.st_size,
            status.st_mtime_ns,
            status.st_ctime_ns,
        )

    async def _prove(self, bwrap: str) -> Proof | CommandRefused:
        version = await to_its_end(asyncio.to_thread(_version, bwrap))
        if isinstance(version, CommandRefused):
            return version
        try:
            bait = await to_its_end(asyncio.to_thread(Bait))
            try:
                outcome = await self._execute(self._self_test(bwrap, bait))
                if isinstance(outcome, Success):
                    outcome.unwrap().close()
            finally:
                await to_its_end(asyncio.to_thread(bait.close))
        except OSError as error:
            return refusal("bait", str(error))
        if isinstance(outcome, Success):
            result = outcome.unwrap()
            return judge(result, bait.secret, version, self._policy.digest, self._policy.network)
        match outcome.failure():
            case CommandRefused() as refused:
                return refused
            case failure:
                return refusal("self-test", f"the self-test did not end: {failure}")

    def _self_test(self, bwrap: str, bait: Bait) -> Order:
        view = self._policy.view(Command((self._python,)))
        return Order(bwrap, self._policy, bait.seed(), DECLARATION, bait.command(self._python, view), LIMITS)

    async def _execute(self, order: Order) -> Outcome[CommandResult, RunFailure]:
        if self._is_closed:
            return Failure(BROKE_OFF)
        execution = Execution(self._launcher, order)
        self._running.add(execution)
        try:
            try:
                outcome = await _executed(execution)
            finally:
                await to_its_end(asyncio.to_thread(execution.end))
            if isinstance(outcome, Success):
                execution.hand_over()
            return outcome
        finally:
            self._running.discard(execution)
            execution.drop()


async def _executed(execution: Execution) -> Outcome[CommandResult, RunFailure]:
    preparing = asyncio.ensure_future(asyncio.to_thread(execution.prepare))
    try:
        prepared = await asyncio.shield(preparing)
        if isinstance(prepared, Failure):
            return prepared
        await prepared.unwrap().wait()
    except asyncio.CancelledError:
        execution.give_up()
        with suppress(Exception):
            _ = await to_its_end(preparing)
        raise
    return await to_its_end(asyncio.to_thread(execution.collect))


def _version(bwrap: str) -> str | CommandRefused:
    """What bubblewrap says that it is."""
    try:
        said = subprocess.run([bwrap, "--version"], capture_output=True, timeout=VERSION_TIMEOUT_S, check=False, env={})
    except (OSError, subprocess.TimeoutExpired) as error:
        return refusal("bubblewrap", str(error))
    name, _, version = said.stdout.decode(errors="replace").strip().partition(" ")
    if said.returncode or name != "bubblewrap":
        reason = said.stderr.decode(errors="replace").strip() or f"exit code {said.returncode}"
        return refusal("bubblewrap", f"{bwrap} --version: {reason}")
    return version
