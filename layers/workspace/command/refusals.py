"""Why commands cannot be isolated here, in words that say what to do."""

from __future__ import annotations

from typing import Final

from ....core.command import CommandRefused

__all__ = ["no_bubblewrap", "refusal"]

INSTALL: Final = "install the package bubblewrap (0.8 or later), or give its path"

SWITCHES: Final = (
    ("/proc/sys/user/max_user_namespaces", "0", "sysctl -w user.max_user_namespaces=10000"),
    ("/proc/sys/kernel/unprivileged_userns_clone", "0", "sysctl -w kernel.unprivileged_userns_clone=1"),
    (
        "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
        "1",
        "give this Python and bwrap an AppArmor profile with `userns,`, or"
        " sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
    ),
)
"""Each switch of the kernel that forbids user namespaces, the value that does, and the remedy."""

IN_CONTAINER: Final = "in a container, allow it to make user namespaces (e.g. --security-opt seccomp=unconfined)"

IN_NAMESPACES: Final = ("user_namespaces", "private_tmpfs")
"""What a user namespace is needed for; some kernels let one be made and then allow nothing in it."""

REMEDIES: Final = {
    "arguments": "give what is long by a declared file or by stdin",
    "bubblewrap": INSTALL,
    "machine": "there are tables for x86_64 and aarch64 only",
    "seccomp": "a Linux kernel of 5.5 or later with seccomp filters and their listeners is needed",
    "bait": "have TMPDIR name a folder for temporary files that can be written to",
    "toolchain": "name absolute folders that exist, and hold programs and nothing else",
    "launcher": "give a Python interpreter that this user may execute",
}


def no_bubblewrap(looked_for: str) -> CommandRefused:
    """There is no bubblewrap."""
    return CommandRefused("bubblewrap", f"there is no {looked_for}: {INSTALL}")


def refusal(probe: str, reason: str) -> CommandRefused:
    """A probe that failed, with the remedy for this host."""
    what = f"commands cannot be isolated here, the probe {probe} failed ({reason.strip()})"
    return CommandRefused(probe, f"{what}: {_remedy(probe)}")


def _remedy(probe: str) -> str:
    if probe not in IN_NAMESPACES:
        return REMEDIES.get(probe, INSTALL)
    remedies = [remedy for path, value, remedy in SWITCHES if _read(path) == value]
    return " and ".join(remedies) if remedies else IN_CONTAINER


def _read(path: str) -> str | None:
    try:
        with open(path) as file:
            return file.read().strip()
    except OSError:
        return None
