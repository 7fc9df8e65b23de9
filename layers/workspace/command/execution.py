"""One execution of one command, from its workspace to what it left."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import Final, final

from ....core.boundary import Declaration
from ....core.command import Command, CommandOutput, CommandRefused
from ....core.lookup import Lookup
from ....core.node import FileNode
from ....core.outcome import Failure, Outcome, Success
from ....core.step_sandbox import LimitExceeded, WorkspaceError
from ....core.workspace_limits import WorkspaceLimits
from ..host import Seed
from .launch.frames import Gone, Message, number_of, pairs_of
from .launching import Launcher, NoLauncher, Talk
from .policy import ETC_FILES, PRIVATE, WORKSPACE, Policy, View
from .refusals import refusal
from .remains import Remains, Workspace, look_through
from .seeding import Stopped, fill, folders
from .values import CommandLost, CommandResult, RunFailure

__all__ = ["Execution", "Order"]

PAGE: Final = 4096
OWN_BYTES: Final = 4 << 20
"""Room for what the sandbox itself keeps in the memory of a command, so that the limit is the command's alone."""

OWN_NODES: Final = 4096

NOT_FOUND: Final = 127
NOT_EXECUTABLE: Final = 126
"""What a shell gives for a program that is not there, and for one that cannot be executed."""

BROKE_OFF: Final = CommandLost("the process that watched the command has ended before it could say what was done")


@final
@dataclass(frozen=True, slots=True)
class Order:
    """What is to be executed, and how."""

    bwrap: str
    policy: Policy
    seed: Seed
    declaration: Declaration
    command: Command
    limits: WorkspaceLimits

    @property
    def wall_ms(self) -> int:
        own = self.command.timeout_s
        return max(1, self.limits.wall if own is None else min(self.limits.wall, round(own * 1000)))

    @property
    def bytes(self) -> int:
        """How much memory the command's files may take."""
        sizes = (node.size for node in self.seed.tree.values() if isinstance(node, FileNode))
        return sum(-(-size // PAGE) * PAGE for size in sizes) + self.limits.produced_bytes + OWN_BYTES

    @property
    def nodes(self) -> int:
        """How many files, links and directories there may be."""
        return 2 * len(self.seed.tree) + self.limits.nodes + OWN_NODES


@final
class Execution:
    """Blocking work: `prepare`, then, as soon as there is something to hear, `collect`, and `end`.

    Whoever takes the result says so by `hand_over`, with nothing in between at which it may be cancelled.
    """

    def __init__(self, launcher: Launcher, order: Order) -> None:
        self._launcher = launcher
        self._order = order
        self._is_wanted = True
        self._view = View((), (), (), (), {}, ())
        self._workspace: Workspace | None = None
        self.talk: Talk | None = None

    def prepare(self) -> Outcome[Talk, RunFailure]:
        """Have a workspace made, fill it, and let the command begin."""
        try:
            return self._prepare()
        except OSError as error:
            return Failure(WorkspaceError("host_unavailable", f"the command could not be begun: {error}"))

    def _prepare(self) -> Outcome[Talk, RunFailure]:
        order = self._order
        self._view = order.policy.view(order.command)
        asked: Message = {
            "bound": self._view.bound,
            "avoided": self._view.all_bound,
            "bytes": order.bytes,
            "etc": ETC_FILES,
            "inodes": order.nodes,
            "links": self._view.links,
        }
        try:
            answer, descriptors = self._ask(asked)
        except NoLauncher as error:
            return Failure(refusal("launcher", str(error)) if self._is_wanted else BROKE_OFF)
        except Gone:
            return Failure(refusal("launcher", "the process that is to watch the command ended at once"))
        if not descriptors:
            return Failure(_refused(answer))
        self._workspace = Workspace(descriptors[0])
        assert self.talk is not None
        return self._begin(self.talk, str(answer["at"]), self._workspace)

    def _ask(self, asked: Message) -> tuple[Message, list[int]]:
        """Of a launcher that ends just then, with nothing executed yet, another one is started; but once only."""
        try:
            return self._begin_to_talk(asked)
        except Gone:
            if not self._is_wanted:
                raise
            if self.talk is not None:
                self.talk.close()
            return self._begin_to_talk(asked)

    def _begin_to_talk(self, asked: Message) -> tuple[Message, list[int]]:
        self.talk = self._launcher.talk()
        self.talk.say(asked)
        return self.talk.hear()

    def _begin(self, talk: Talk, at: str, workspace: Workspace) -> Outcome[Talk, RunFailure]:
        order, limits = self._order, self._order.limits
        try:
            fill(workspace.directory, order.seed, order.declaration, lambda: self._is_wanted)
        except Stopped:
            return Failure(BROKE_OFF)
        if not self._is_wanted:  # from here on it is the talk's end that tells the keeper
            return Failure(BROKE_OFF)
        said: Message = {
            "argv": order.policy.argv(order.command, self._view, at),
            "bwrap": order.bwrap,
            "file_bytes": limits.file_bytes,
            "memory": limits.memory,
            "output_bytes": limits.output_bytes,
            "processes": limits.processes,
            "hidden": self._view.hidden,
            "shown": self._view.shown,
            "trace": limits.trace,
            "wall_ms": order.wall_ms,
        }
        stdin = _file_of(order.command.stdin)
        try:
            talk.say(said, [stdin])
        except Gone:
            return Failure(BROKE_OFF)
        finally:
            os.close(stdin)
        return Success(talk)

    def collect(self) -> Outcome[CommandResult, RunFailure]:
        """What the command left, when nothing of it is alive."""
        try:
            return self._collect()
        except OSError as error:
            return Failure(WorkspaceError("host_unavailable", f"what the command left cannot be read: {error}"))

    def _collect(self) -> Outcome[CommandResult, RunFailure]:
        assert self.talk is not None
        try:
            report, descriptors = self.talk.hear()
        except Gone:
            return Failure(BROKE_OFF)
        try:
            if not descriptors:
                return Failure(_refused(report))
            return self._result(report, descriptors)
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def _result(self, report: Message, files: list[int]) -> Outcome[CommandResult, RunFailure]:
        workspace, order = self._workspace, self._order
        assert workspace is not None
        stdout, stderr = _whole(files[1]), _whole(files[2])
        if (exceeded := _exceeded(report, order)) is not None:
            return Failure(exceeded)
        code = _exit_code(report, stderr)
        if isinstance(code, CommandRefused):
            return Failure(code)
        remains = look_through(workspace, order.seed.tree, folders(order.seed, order.declaration), order.limits)
        if not isinstance(remains, Remains):
            return Failure(remains)
        dropped = pairs_of(report, "dropped")
        stdout_cut, stderr_cut = number_of(dropped, "stdout"), number_of(dropped, "stderr")
        return Success(
            CommandResult(
                output=CommandOutput(code, _marked(stdout, stdout_cut), _marked(stderr, stderr_cut)),
                tree=remains.tree,
                contents=workspace,
                unsupported=tuple(remains.unsupported),
                lookups=_lookups(files[0]),
                complete=report["complete"] is True,
                shown=self._view.shown,
                hidden=self._view.hidden,
                private=PRIVATE,
                stdout_cut=bool(stdout_cut),
                stderr_cut=bool(stderr_cut),
            )
        )

    def give_up(self) -> None:
        """Nobody wants it any more: everything of it is to be killed. Does not block."""
        self._is_wanted = False
        if self.talk is not None:
            self.talk.give_up()

    def end(self) -> None:
        """Wait until nothing of it is alive. Blocks; a second call does nothing."""
        if self.talk is not None:
            self.talk.give_up()
            self.talk.wait_for_end()
            self.talk.close()
            self.talk = None

    def hand_over(self) -> None:
        """The workspace is the result's from here on."""
        self._workspace = None

    def drop(self) -> None:
        """Free the workspace, unless it was handed over."""
        if self._workspace is not None:
            self._workspace.close()


def _refused(answer: Message) -> RunFailure:
    if "lost" in answer:
        return CommandLost(str(answer["lost"]))
    return refusal(str(answer["refused"]), str(answer["reason"]))


def _exceeded(report: Message, order: Order) -> LimitExceeded | None:
    exceeded = report["exceeded"]
    if isinstance(exceeded, list):
        what, actual, limit = exceeded
        assert isinstance(what, str)
        assert isinstance(actual, int)
        assert isinstance(limit, int)
        return LimitExceeded(what, actual, limit)
    match report["full"]:
        case "nodes":
            return LimitExceeded("nodes", order.limits.nodes + 1, order.limits.nodes)
        case "produced_bytes":
            return LimitExceeded("produced_bytes", order.limits.produced_bytes + 1, order.limits.produced_bytes)
        case _:
            return None


def _exit_code(report: Message, stderr: bytes) -> int | CommandRefused:
    """How the command ended. One that could not be executed ends as in a shell; it is bubblewrap that says so."""
    code = report["exit_code"]
    if isinstance(code, int):
        return code
    reason = stderr.decode(errors="replace")
    if not reason.startswith("bwrap: execvp "):
        return refusal("bubblewrap", reason or "it ended and said nothing")
    return NOT_FOUND if reason.rstrip().endswith("No such file or directory") else NOT_EXECUTABLE


def _lookups(descriptor: int) -> tuple[Lookup, ...]:
    found: list[Lookup] = []
    with os.fdopen(os.dup(descriptor)) as lines:
        for line in lines:
            kind, path, present, count = json.loads(line)
            if path == WORKSPACE:
                path = ""
            found.append(Lookup(kind, path.removeprefix(f"{WORKSPACE}/"), present, count))
    return tuple(found)


def _marked(output: bytes, dropped: int) -> bytes:
    return output + f"\n[{dropped} more bytes were cut off]\n".encode() if dropped else output


def _whole(descriptor: int) -> bytes:
    with os.fdopen(os.dup(descriptor), "rb") as file:
        return file.read()


def _file_of(data: bytes) -> int:
    """A file in memory that can only be read."""
    made = os.memfd_create("stdin", os.MFD_CLOEXEC)
    try:
        with os.fdopen(os.dup(made), "wb") as file:
            file.write(data)
        return os.open(f"/proc/self/fd/{made}", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(made)
