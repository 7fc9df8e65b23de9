"""The two seccomp filters as programs: one that tells of calls, one that refuses them."""

from __future__ import annotations

import struct
from typing import Final

from .calls import Machine

__all__ = ["refusing", "telling"]

LOAD: Final = 0x20
IF_EQUAL: Final = 0x15
IF_AT_LEAST: Final = 0x35
IF_ANY_BIT: Final = 0x45
RETURN: Final = 0x06

ALLOW: Final = 0x7FFF0000
TELL: Final = 0x7FC00000
KILL: Final = 0x80000000
ERRNO: Final = 0x00050000
EPERM: Final = 1
ENOSYS: Final = 38
EAFNOSUPPORT: Final = 97

NUMBER_AT: Final = 0
ARCH_AT: Final = 4
FIRST_ARGUMENT_AT: Final = 16

X32: Final = 0x40000000

SOCKETS: Final = (1, 2, 10, 16)
"""The families that a network namespace holds: Unix, IPv4, IPv6, netlink. By vsock a machine reaches its host."""

NEW_NAMESPACES: Final = 0x7E020000
"""The flags of clone that make namespaces of any kind."""


def telling(machine: Machine) -> bytes:
    """The filter that tells a listener of each look-up.

    New tasks are none: a call that is told of can be interrupted by a signal, which no shell expects of a fork.
    """
    code = _prologue(machine)
    for number in machine.watched:
        code += _when(IF_EQUAL, number, TELL)
    return b"".join([*code, _do(RETURN, ALLOW)])


def refusing(machine: Machine) -> bytes:
    """The filter that refuses what would lead around the telling one, or out of the namespaces."""
    code = _prologue(machine)
    for number in sorted(machine.refused):
        code += _when(IF_EQUAL, number, ERRNO | EPERM)
    # The flags of clone3 stand in memory, where no filter sees them: without it libraries use clone.
    code += _when(IF_EQUAL, machine.clone3, ERRNO | ENOSYS)
    families = [word for family in SOCKETS for word in _when(IF_EQUAL, family, ALLOW)]
    families = [_do(LOAD, FIRST_ARGUMENT_AT), *families, _do(RETURN, ERRNO | EAFNOSUPPORT)]
    code += [_do(IF_EQUAL, machine.socket, skip_if_not=len(families)), *families]
    code += [_do(IF_EQUAL, machine.clone, skip_if_not=3), _do(LOAD, FIRST_ARGUMENT_AT)]
    code += _when(IF_ANY_BIT, NEW_NAMESPACES, ERRNO | EPERM)
    return b"".join([*code, _do(RETURN, ALLOW)])


def _prologue(machine: Machine) -> list[bytes]:
    code = [_do(LOAD, ARCH_AT), _do(IF_EQUAL, machine.arch, skip=1), _do(RETURN, KILL), _do(LOAD, NUMBER_AT)]
    return code + (_when(IF_AT_LEAST, X32, ERRNO | EPERM) if machine.x32 else [])


def _when(condition: int, value: int, action: int) -> list[bytes]:
    return [_do(condition, value, skip_if_not=1), _do(RETURN, action)]


def _do(operation: int, value: int, *, skip: int = 0, skip_if_not: int = 0) -> bytes:
    return struct.pack("=HBBI", operation, skip, skip_if_not, value)
