"""One process for one command: makes its file system, starts it, watches all that it does, and ends it.

The command is over when its first process ends, when it goes beyond a limit, or when nobody waits for it any more.
Then everything in its namespaces is killed; only when the last of it is gone does the keeper report.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final, final

from .calls import Machine, machine
from .child import Child, ChildRefused, start
from .frames import Gone, Json, Message, number_of, receive, send, texts_of
from .kernel import Listener, Notification, adopt_orphans, processor, timer
from .looks import Decoder, Places
from .pipes import Output
from .space import Space, SpaceRefused, make_space
from .tally import Tally
from .tasks import Tasks, bound_tasks

__all__ = ["keep"]

TICK_MS: Final = 10
"""How often it is looked at how many tasks there are."""

MEMORY_TICKS: Final = 5
"""At every how manieth tick memory is looked at."""

CROWD: Final = 64
"""Per so many tasks they are counted one tick later."""

GRACE_MS: Final = 5_000
"""How long the dead may take to be gone."""

CALM: Final = 16
"""Per so many processes, or milliseconds that it took, memory is looked at one tick later."""


def keep(parent: socket.socket, parent_process: int) -> None:
    """Serve one command over a socket, and return when nothing of it is alive."""
    with suppress(OSError):  # only root may, whose tasks the kernel does not bound
        os.sched_setscheduler(0, os.SCHED_RR | os.SCHED_RESET_ON_FORK, os.sched_param(1))
    try:
        asked, _ = receive(parent)
        here = machine()
        if here is None:
            raise SpaceRefused("machine", f"there are no tables of system calls for {os.uname().machine}")
        space = make_space(asked)
        send(parent, {"at": space.at}, [space.folders["ws"]])
        order, descriptors = receive(parent)
        Keeper(here, space, parent, parent_process, order).serve(descriptors[0])
    except Gone:
        return
    except (SpaceRefused, ChildRefused) as refused:
        probe, reason = refused.args
        _tell(parent, {"refused": probe, "reason": reason})
    except Exception as error:
        _tell(parent, {"lost": f"{type(error).__name__}: {error}"})
        raise


def _tell(parent: socket.socket, message: Message) -> None:
    try:
        send(parent, message)
    except Gone:
        return


@final
class Keeper:
    """Watches one command. The listener has a poll almost for itself, since looks are by far the most that happens."""

    def __init__(
        self, machine: Machine, space: Space, parent: socket.socket, parent_process: int, order: Message
    ) -> None:
        self._machine = machine
        self._space = space
        self._parent = parent
        self._parent_process = parent_process
        self._order = order
        self._poll = select.poll()
        self._others = select.epoll()
        self._poll.register(self._others, select.POLLIN)
        self._waits: dict[int, Callable[[int], None]] = {}
        seen = {"/stepwell/ws": "ws", "/stepwell/home": "home", "/tmp": "tmp", "/dev/shm": "shm"}
        places = Places(machine, {path: space.folders[name] for path, name in seen.items()})
        self._decoder = Decoder(machine, places)
        self._tally = Tally(texts_of(order, "shown"), texts_of(order, "hidden"), self._number("trace"))
        self._outputs = {name: Output(name, self._number("output_bytes")) for name in ("stdout", "stderr")}
        self._child: Child | None = None
        self._tasks: Tasks | None = None
        self._executions = 0
        self._setting_up: set[int] = set()
        self._exceeded: tuple[str, int, int] | None = None
        self._full = ""
        self._pause = 0
        self._calm = 0
        self._watched = True
        self._status = b""
        self._nobody_waits = False
        self._is_listening = True
        self._processors = os.sched_getaffinity(0)

    def serve(self, stdin: int) -> None:
        """Execute the command to its end, and report."""
        adopt_orphans()
        # While bubblewrap sets up, each of its calls is told of, which costs a third if nobody has to change processor.
        with suppress(OSError):
            os.sched_setaffinity(0, {processor()})
        argv = texts_of(self._order, "argv")
        standard = [stdin, *(output.writing for output in self._outputs.values())]
        child = start(self._machine, str(self._order["bwrap"]), argv, standard, self._number("file_bytes"))
        for descriptor in standard:
            os.close(descriptor)
        self._child = child
        self._listener = Listener(child.listener)
        self._wait_for(child.process, self._end)
        self._wait_for(child.status, self._read_status)
        self._wait_for(self._parent.fileno(), self._leave)
        self._wait_for(self._parent_process, self._leave)
        self._wait_for(timer(self._number("wall_ms")), self._run_out)
        self._tick = timer(TICK_MS, TICK_MS)
        self._wait_for(self._tick, self._look_round)
        for output in self._outputs.values():
            self._wait_for(output.reading, self._pump)
        try:
            self._watch()
        finally:
            self._kill()
            if self._watched:
                self._reap()
        if not self._nobody_waits:
            self._report()

    def _number(self, name: str) -> int:
        return number_of(self._order, name)

    # --- the loop -----------------------------------------------------------

    def _wait_for(self, descriptor: int, then: Callable[[int], None]) -> None:
        self._waits[descriptor] = then
        self._others.register(descriptor, select.EPOLLIN)

    def _forget(self, descriptor: int) -> None:
        if self._waits.pop(descriptor, None) is not None:
            self._others.unregister(descriptor)

    def _watch(self) -> None:
        """Until the listener has hung up, the first process was waited for, and nobody can print any more."""
        child = self._child
        assert child is not None
        needed = {child.process, child.status, *(it.reading for it in self._outputs.values())}
        self._poll.register(child.listener, select.POLLIN)
        while self._is_listening or needed & self._waits.keys():
            for descriptor, events in self._poll.poll():
                if descriptor == child.listener:
                    self._answer(events)
                else:
                    self._turn()

    def _turn(self) -> None:
        """Whatever has happened beside the calls that are told of."""
        for descriptor, events in self._others.poll(0):
            if (then := self._waits.get(descriptor)) is not None:
                then(events)

    def _answer(self, events: int) -> None:
        if not events & select.POLLIN:  # hung up: nobody is left whose calls it would tell of
            self._is_listening = False
            self._poll.unregister(self._listener.descriptor)
            return
        notification = self._listener.receive()
        if notification is None:
            return
        self._look(notification)

    def _end(self, events: int) -> None:
        """The first process has ended: whoever is left is killed, and has a while to be gone."""
        child = self._child
        assert child is not None
        self._forget(child.process)
        os.waitpid(child.pid, 0)
        self._kill_orphans()
        self._wait_for(timer(GRACE_MS), self._lose)

    def _lose(self, events: int) -> None:
        self._watched = False
        self._is_listening = False
        self._waits.clear()

    def _leave(self, events: int) -> None:
        """Nobody waits for the command any more."""
        self._nobody_waits = True
        self._forget(self._parent.fileno())
        self._forget(self._parent_process)
        self._kill()

    def _run_out(self, events: int) -> None:
        limit = self._number("wall_ms")
        self._exceed("wall", limit, limit)

    def _pump(self, events: int) -> None:
        for output in self._outputs.values():
            if output.is_open and not output.pump():
                output.is_open = False
                self._forget(output.reading)

    def _read_status(self, events: int) -> None:
        child = self._child
        assert child is not None
        piece = os.read(child.status, 1 << 12)
        self._status += piece
        if not piece:
            self._forget(child.status)

    # --- what the command does ----------------------------------------------

    def _look(self, notification: Notification) -> None:
        if self._machine.watched[notification.number].kind == "exec" and self._executions < 2:
            self._executions += 1
            if self._executions == 2:
                self._begin(notification.task)
        if self._executions < 2 or notification.task in self._setting_up:
            self._setting_up.add(notification.task)
            self._listener.go_on(notification)
            return
        try:
            looks = self._decoder.looks(notification)
        except OSError:  # its task was killed meanwhile, or is one that nobody may look into
            looks = None
        if not self._listener.go_on(notification):
            return
        if looks is None:
            self._tally.complete = False
        else:
            self._tally.note(looks)

    def _begin(self, task: int) -> None:
        """Bubblewrap has set up everything and executes the command: what went before was its own."""
        self._setting_up.discard(task)
        self._tasks = Tasks(task)
        bound_tasks(task, self._number("processes"))
        for each in (0, task):
            with suppress(OSError):  # its processors were taken away meanwhile, or it was killed
                os.sched_setaffinity(each, self._processors)

    def _look_round(self, events: int) -> None:
        os.read(self._tick, 8)
        self._look_at_space()
        if self._tasks is None:
            return
        self._look_at_tasks(self._tasks, self._number("processes"))
        self._pause -= 1
        if self._pause <= 0:
            self._look_at_memory(self._tasks, self._number("memory"))

    def _look_at_tasks(self, tasks: Tasks, limit: int) -> None:
        """More of them than the limit end the command. Where there are many but not nearly too many, not every time."""
        self._calm -= 1
        if self._calm > 0:
            return
        count = tasks.count()
        self._calm = 0 if count > limit // 2 else count // CROWD
        if count > limit:
            self._exceed("processes", limit + 1, limit)
            tasks.kill()

    def _look_at_memory(self, tasks: Tasks, limit: int) -> None:
        began = time.monotonic()
        used = tasks.memory_bytes(limit)
        took_ms = (time.monotonic() - began) * 1000
        self._pause = MEMORY_TICKS * (1 + max(tasks.processes, round(took_ms)) // CALM)
        if used > limit:
            self._exceed("memory", used, limit)

    def _look_at_space(self) -> None:
        space = os.fstatvfs(self._space.folders["ws"])
        if not space.f_bavail or not space.f_ffree:
            self._full = "nodes" if space.f_bavail else "produced_bytes"

    def _exceed(self, what: str, actual: int, limit: int) -> None:
        if self._exceeded is None:
            self._exceeded = (what, actual, limit)
        self._kill()

    # --- the end --------------------------------------------------------------

    def _kill(self) -> None:
        child = self._child
        if child is not None and child.process in self._waits:
            signal.pidfd_send_signal(child.process, signal.SIGKILL)

    def _kill_orphans(self) -> None:
        """Whoever outlived bubblewrap has become our own child."""
        own = os.getpid()
        try:
            with open(f"/proc/{own}/task/{own}/children") as file:
                children = file.read().split()
        except OSError:
            return
        for child in children:
            try:
                os.kill(int(child), signal.SIGKILL)
            except ProcessLookupError:
                continue

    def _reap(self) -> None:
        while True:
            self._kill_orphans()
            try:
                os.waitpid(-1, 0)
            except ChildProcessError:
                return

    def _report(self) -> None:
        if not self._watched:
            _tell(self._parent, {"lost": f"processes were still there {GRACE_MS} ms after they were killed"})
            return
        self._look_at_space()
        outputs = {name: output.dropped for name, output in self._outputs.items()}
        ended = _read(self._status)
        if "refused" in ended:
            _tell(self._parent, ended)
            return
        report: Message = {
            "exit_code": ended.get("exit-code"),
            "exceeded": self._exceeded,
            "full": self._full,
            "complete": self._tally.complete,
            "dropped": outputs,
        }
        files = [self._tally.written(), *(output.finished() for output in self._outputs.values())]
        try:
            send(self._parent, report, files)
        except Gone:
            return


def _read(status: bytes) -> Message:
    """What bubblewrap says of itself, or the child that could not become it, in one object."""
    told: dict[str, Json] = {}
    for line in status.splitlines():
        told.update(json.loads(line))
    return told
