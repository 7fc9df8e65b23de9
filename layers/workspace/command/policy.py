"""What a command sees and may do: the arguments of bubblewrap, and the digest by which a policy is known."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from glob import glob
from typing import Final, final

from ....core.command import Command
from ....core.lookup import is_beneath
from ....core.node import digest_of
from .launch.calls import MACHINES
from .launch.filters import refusing, telling
from .toolchain import ALWAYS, DEFAULT_PATH, closure

__all__ = ["EPOCH", "HOME", "WORKSPACE", "Policy", "View"]

WORKSPACE: Final = "/stepwell/ws"
HOME: Final = "/stepwell/home"

EPOCH: Final = 315_532_800
"""1980-01-01: when every file was changed last, as far as a command can see. Older ones do not fit into archives."""

VARIABLES: Final = {
    "HOME": HOME,
    "LC_ALL": "C.UTF-8",
    "PATH": DEFAULT_PATH,
    "PYTHONDONTWRITEBYTECODE": "1",  # what a program imports of its own would be an undeclared write
    "PYTHONHASHSEED": "0",
    "SOURCE_DATE_EPOCH": str(EPOCH),
    "TMPDIR": "/tmp",
    "TZ": "UTC",
    "USER": "stepwell",
}

ETC_FILES: Final = {
    "passwd": "root:x:0:0:root:/root:/bin/sh\n"
    f"stepwell:x:1000:1000:stepwell:{HOME}:/bin/sh\n"
    "nobody:x:65534:65534:nobody:/:/bin/false\n",
    "group": "root:x:0:\nstepwell:x:1000:\nnogroup:x:65534:\n",
    "hosts": "127.0.0.1 localhost sandbox\n::1 localhost sandbox\n",
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\nservices: files\nprotocols: files\n",
    "hostname": "sandbox\n",
    "timezone": "Etc/UTC\n",
    **dict.fromkeys(
        (
            "bash.bashrc",
            "gai.conf",
            "host.conf",
            "inputrc",
            "login.defs",
            "networks",
            "profile",
            "resolv.conf",
            "shadow",
        ),
        "",
    ),
}
"""What programs look for and every machine has its own of: here they are the same everywhere, and hold nothing."""

ETC_LINKS: Final = {"localtime": "/usr/share/zoneinfo/UTC", "mtab": "/proc/self/mounts"}

ETC_OF_HOST: Final = (
    "alternatives",
    "crypto-policies",
    "debian_version",
    "fonts",
    "java*",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "lsb-release",
    "magic",
    "mime.types",
    "os-release",
    "pki/ca-trust/extracted",
    "pki/tls/certs",
    "protocols",
    "redhat-release",
    "services",
    "ssl/certs",
    "ssl/openssl.cnf",
    "terminfo",
)
"""What of the host's /etc belongs to its programs, and holds nothing of its own; `*` stands for any text."""

CACHES: Final = ("/var/cache/fontconfig",)
"""What the system has made of its own programs' files, for them."""

ETC_FOR_NETWORK: Final = ("resolv.conf",)

ISOLATED: Final = (
    "--unshare-user",
    "--unshare-ipc",
    "--unshare-pid",
    "--unshare-uts",
    "--unshare-cgroup-try",
    "--uid",
    "1000",
    "--gid",
    "1000",
    "--hostname",
    "sandbox",
    "--new-session",
    "--die-with-parent",
    "--cap-drop",
    "ALL",
    "--clearenv",
)

KERNEL: Final = ("/proc", "/sys", "/dev")
"""What the kernel shows, or would: no files of the host."""

PRIVATE: Final = ("/tmp", "/dev/shm", HOME)
"""What belongs to the command alone, besides its workspace."""

WRITABLE: Final = {"ws": WORKSPACE, "home": HOME, "tmp": "/tmp"}
"""The folders of a command's own file system that it may write to, and where it sees them; /dev/shm is one more."""


@final
@dataclass(frozen=True, slots=True)
class View:
    """What one command sees of the host: places that are bound, links beside them, and all that is shown so or made.

    `late` are places that lie in what belongs to the command, and are bound on top of it. `hidden` lie in what is
    bound, and are empty there but for `own`, places in them that the command needs.
    """

    bound: tuple[str, ...]
    late: tuple[str, ...]
    hidden: tuple[str, ...]
    own: tuple[str, ...]
    links: Mapping[str, str]
    shown: tuple[str, ...]

    @property
    def all_bound(self) -> tuple[str, ...]:
        return (*self.bound, *self.late, *self.own)


@final
@dataclass(frozen=True, slots=True)
class Policy:
    """How commands are isolated; all of it, and nothing else, decides its digest.

    `roots` are places of the host that are shown to every command, and `hidden` those that are shown to none, though
    they may lie in what is shown: the folder whose files are declared, above all. Where that is differs from machine to
    machine, so it is no part of the digest.
    """

    roots: tuple[str, ...] = ()
    network: bool = False
    hidden: tuple[str, ...] = ()
    leaks: tuple[str, ...] = ()
    """Arguments of bubblewrap that open what should be closed: by these a test sees that the proof notices."""

    @property
    def digest(self) -> str:
        filters = {name: [telling(it).hex(), refusing(it).hex()] for name, it in MACHINES.items()}
        form = {
            "etc": [ETC_FILES, ETC_LINKS, ETC_OF_HOST, CACHES],
            "filters": filters,
            "isolated": ISOLATED,
            "leaks": self.leaks,
            "network": self.network,
            "roots": sorted(self.roots),
            "variables": VARIABLES,
        }
        return digest_of(json.dumps(form, sort_keys=True).encode())

    def view(self, command: Command) -> View:
        """What a command sees. This looks at the host."""
        system = [place for place in ALWAYS if os.path.lexists(place)]
        links = {place: os.readlink(place) for place in system if os.path.islink(place)}
        names = (*ETC_OF_HOST, *(ETC_FOR_NETWORK if self.network else ()))
        found = [*(path for name in names for path in sorted(glob(f"/etc/{name}"))), *CACHES]
        etc = [place for place in found if os.path.exists(place)]
        roots = [place for place in dict.fromkeys(self.roots) if not _is_within(place, system)]
        needed = [place for place in closure(command.argv, command.env, self.hidden) if place not in roots]
        shown = [*system, *etc, *roots, *needed]
        hidden = tuple(it for it in dict.fromkeys(self.hidden) if _is_within(it, shown) and os.path.isdir(it))
        on_top = [place for place in needed if _is_within(place, hidden)]
        at_once = [place for place in (*roots, *needed) if place not in on_top]
        return View(
            bound=(
                *(it for it in system if it not in links),
                *etc,
                *(it for it in at_once if not _is_within(it, PRIVATE)),
            ),
            late=tuple(place for place in at_once if _is_within(place, PRIVATE)),
            hidden=hidden,
            own=tuple(on_top),
            links={**links, **{f"/etc/{name}": target for name, target in ETC_LINKS.items()}},
            shown=(*system, *etc, *roots, *needed, *(f"/etc/{name}" for name in (*ETC_FILES, *ETC_LINKS)), *KERNEL),
        )

    def argv(self, command: Command, view: View, at: str) -> list[str]:
        """The arguments of bubblewrap. `at` is where the command's own file system is mounted meanwhile."""
        words = [*ISOLATED, *([] if self.network else ["--unshare-net"])]
        for name, value in {**VARIABLES, **command.env}.items():
            words += ["--setenv", name, value]
        words += ["--ro-bind", f"{at}/root", "/", "--dev-bind", f"{at}/dev", "/dev"]
        # Root's own commands are no root, but own the kernel's settings all the same: they are to be read only.
        words += ["--proc", "/proc", "--remount-ro", "/proc"]
        for folder, place in WRITABLE.items():
            words += ["--bind", f"{at}/{folder}", place]
        words += _bound(view.late)
        words += [word for place in view.hidden for word in ("--tmpfs", place)]
        words += _bound(view.own)
        words += [word for place in view.hidden for word in ("--remount-ro", place)]
        return [*words, *self.leaks, "--chdir", WORKSPACE, "--", *command.argv]


def _bound(places: Sequence[str]) -> list[str]:
    return [word for place in places for word in ("--ro-bind", place, place)]


def _is_within(place: str, places: Sequence[str]) -> bool:
    return any(is_beneath(place, it) for it in places)
