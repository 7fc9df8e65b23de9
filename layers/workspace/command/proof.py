"""The self-test of a sandbox: what it tries to reach is set up on the host, and what it reached is judged."""

from __future__ import annotations

import json
import os
import select
import shutil
import socket
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from io import BytesIO
from pathlib import Path
from typing import BinaryIO, Final, Self, final

from ....core.boundary import Declaration
from ....core.command import Command, CommandRefused
from ....core.lookup import is_beneath
from ....core.node import FileNode, LinkNode, Node, digest_of
from ....core.workspace_limits import WorkspaceLimits
from ..host import Seed
from .launch.probes import ALLOWED, DECLARED
from .policy import ETC_FILES, PRIVATE, VARIABLES, WORKSPACE, View
from .values import CommandResult, Proof

__all__ = ["DECLARATION", "LIMITS", "Bait", "judge"]

SCRIPT: Final = (Path(__file__).parent / "launch" / "probes.py").read_bytes()
INPUT: Final = b"i"

NOWHERE: Final = "/no such home"

OVER_THE_NETWORK: Final = frozenset({"TCP to the host", "UDP to the host", "abstract Unix socket"})

SET_INSIDE: Final = frozenset({*VARIABLES, "PWD"})
"""The variables that every command has; bubblewrap itself sets the last one."""

DECLARATION: Final = Declaration(
    mode="hard", read_files=(), read_globs=(), outputs=("out.txt",), write_globs=(), trees=(), removals=()
)

LIMITS: Final = WorkspaceLimits(wall=30_000)


@final
class Bait:
    """Things of the host that no sandbox may reach. Made in a new folder, and gone with it."""

    def __init__(self) -> None:
        """An OSError says what is missing here; nothing is left then."""
        with ExitStack() as made:
            self._folder = os.path.realpath(tempfile.mkdtemp(prefix="stepwell-self-test-"))
            made.callback(shutil.rmtree, self._folder, ignore_errors=True)
            os.chmod(self._folder, 0o755)
            self.secret = f"{self._folder}/secret"
            self.escape = f"{self._folder}/escape"
            Path(self.secret).write_text("s")
            self._lay_sockets(made)
            self._made = made.pop_all()
        self._echo = threading.Thread(target=self._answer, daemon=True)
        self._echo.start()

    def _lay_sockets(self, made: ExitStack) -> None:
        self._tcp = made.enter_context(socket.create_server(("127.0.0.1", 0)))
        self._udp = made.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        self._udp.bind(("127.0.0.1", 0))
        abstract, unix = (made.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(2))
        self._name = os.path.basename(self._folder)
        abstract.bind("\0" + self._name)
        _bind_beneath(unix, self._folder, "unix")
        abstract.listen()
        unix.listen()
        self._end, self._ended = map(made.enter_context, socket.socketpair())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Take it all away."""
        self._end.close()
        self._echo.join()
        self._made.close()

    def _answer(self) -> None:
        poll = select.poll()  # select itself takes no descriptor above 1023
        for sock in (self._udp, self._ended):
            poll.register(sock, select.POLLIN)
        while self._ended.fileno() not in dict(poll.poll()):
            data, sender = self._udp.recvfrom(16)
            self._udp.sendto(data, sender)

    def was_reached(self) -> bool:
        """Whether something was written beside the secret."""
        return os.path.lexists(self.escape)

    def told(self, view: View) -> dict[str, str]:
        """What the probes have to know. `view` is what is no secret, but is not to be written to either."""
        with open("/proc/self/stat") as file:
            started = file.read().rpartition(")")[2].split()[19]
        return {
            "abstract": self._name,
            "escape": self.escape,
            "etc": _hidden_line(),
            "home": _hidden_at_home(view.shown),
            "process": str(os.getpid()),
            "secret": self.secret,
            "started": started,
            "system": ":".join(view.all_bound),
            "tcp": str(self._tcp.getsockname()[1]),
            "udp": str(self._udp.getsockname()[1]),
            "unix": f"{self._folder}/unix",
            "variable": next((name for name in os.environ if name not in SET_INSIDE), "STEPWELL_SELF_TEST"),
        }

    def command(self, python: str, view: View) -> Command:
        """The probes as a command."""
        return Command((python, "-I", "-S", "probes.py", json.dumps(self.told(view))), timeout=30)

    def seed(self) -> Seed:
        """The workspace of the probes: their program, a file to read, and a link that leads out."""
        files = {"in.txt": INPUT, "probes.py": SCRIPT}
        tree: dict[str, Node] = {path: FileNode(digest_of(data), len(data)) for path, data in files.items()}
        tree["evil"] = LinkNode(self.secret)
        return Seed(tree, _Files(files))


@final
class _Files:
    """Contents in memory."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self._files = files

    def open(self, path: str) -> BinaryIO:
        return BytesIO(self._files[path])

    def close(self) -> None:
        """Nothing is held."""


def judge(result: CommandResult, secret: str, version: str, policy: str, network: bool) -> Proof | CommandRefused:
    """Whether nothing was reached that is not declared, everything that is was, and all of it was seen."""
    try:
        answers: dict[str, str] = json.loads(result.output.stdout)
    except ValueError:
        reason = result.output.stderr.decode(errors="replace").strip()[-300:]
        return CommandRefused("self-test", f"the self-test of the sandbox could not be executed: {reason}")
    denied = [name for name in DECLARED if answers.get(name) != ALLOWED]
    if denied:
        return CommandRefused(denied[0], f"the sandbox denies what is declared: {_with(answers, denied)}; {REPAIR}")
    expected = {*DECLARED, *(OVER_THE_NETWORK if network else ())}
    leaks = sorted(name for name, answer in answers.items() if answer == ALLOWED and name not in expected)
    if leaks:
        reason = f"the sandbox does not hold: it allows {', '.join(leaks)}"
        return CommandRefused(leaks[0], f"{reason}; {REPAIR}, and name no toolchain that holds more than programs")
    unseen = _unseen(result, secret)
    if unseen:
        return CommandRefused("trace", f"the sandbox holds, but its watch missed {', '.join(unseen)}; {REPAIR}")
    digest = digest_of(json.dumps([version, policy, answers], sort_keys=True).encode())
    return Proof("bubblewrap", version, policy, digest)


REPAIR: Final = "install the system's own package bubblewrap, 0.8 or later, and give its path"


def _with(answers: Mapping[str, str], names: Sequence[str]) -> str:
    return ", ".join(f"{name} ({answers.get(name, 'no answer')})" for name in names)


def _unseen(result: CommandResult, secret: str) -> list[str]:
    """Looks that the probes certainly made, and that are not in the record."""
    seen = {(lookup.kind, lookup.path, lookup.present) for lookup in result.lookups}
    expected = {("read", "in.txt", True), ("create", "out.txt", False), ("readlink", "evil", True)}
    expected |= {("read", secret, False), ("stat", secret, False)}
    return sorted(f"{kind} {path}" for kind, path, _ in expected - seen) + ([] if result.complete else ["some looks"])


def _hidden_line() -> str:
    """A line of the host's list of users that a sandbox's own does not have."""
    with open("/etc/passwd") as file:
        return next((line for line in file if line.strip() and line not in ETC_FILES["passwd"]), "no such line")


def _hidden_at_home(shown: Sequence[str]) -> str:
    """Something in the user's home that is not shown, and does not lead there or to what the command has anyway."""
    home = os.path.realpath(os.path.expanduser("~"))
    try:
        names = os.listdir(home)
    except OSError:
        names = []
    paths = (os.path.join(home, name) for name in names)
    return next((it for it in paths if not any(_meet(it, place) for place in (*shown, *PRIVATE, WORKSPACE))), NOWHERE)


def _meet(one: str, two: str) -> bool:
    return is_beneath(one, two) or is_beneath(two, one)


def _bind_beneath(sock: socket.socket, folder: str, name: str) -> None:
    """However long the folder's path is, which has to fit into an address otherwise."""
    opened = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    try:
        sock.bind(f"/proc/self/fd/{opened}/{name}")
    finally:
        os.close(opened)
