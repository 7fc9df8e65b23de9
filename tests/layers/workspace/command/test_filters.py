"""The seccomp filters, executed here as the kernel would: on both machines, whichever this one is."""

from __future__ import annotations

import struct

import pytest

from stepwell.layers.workspace.command.launch.calls import MACHINES, Machine
from stepwell.layers.workspace.command.launch.filters import refusing, telling

ALLOW, TELL, KILL = "allow", "tell", "kill"
EPERM, ENOSYS, NO_FAMILY = "errno 1", "errno 38", "errno 97"

ACTIONS = {
    0x7FFF0000: ALLOW,
    0x7FC00000: TELL,
    0x80000000: KILL,
    0x00050001: EPERM,
    0x00050026: ENOSYS,
    0x00050061: NO_FAMILY,
}

LONGEST = 4096
"""Of what the kernel takes, in instructions."""

NEW_USER, NEW_NET, THREAD = 0x10000000, 0x40000000, 0x00010000

both = pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES.keys())


def decision(code: bytes, arch: int, number: int, first: int = 0) -> str:
    """What a filter says of a call."""
    data = struct.pack("=iIQ6Q", number, arch, 0, first, 0, 0, 0, 0, 0)
    instructions = list(struct.iter_unpack("=HBBI", code))
    assert len(instructions) <= LONGEST
    accumulator, at = 0, 0
    while True:
        operation, if_so, if_not, value = instructions[at]
        at += 1
        match operation:
            case 0x20:
                (accumulator,) = struct.unpack_from("=I", data, value)
            case 0x15:
                at += if_so if accumulator == value else if_not
            case 0x35:
                at += if_so if accumulator >= value else if_not
            case 0x45:
                at += if_so if accumulator & value else if_not
            case 0x06:
                return ACTIONS[value]
            case _:
                raise AssertionError(f"operation {operation:#x} is none that a filter of ours has")


@both
def test_look_ups_are_told_of_and_nothing_else(machine: Machine) -> None:
    told = {number for number in range(600) if decision(telling(machine), machine.arch, number) == TELL}
    assert told == machine.watched.keys()


@both
def test_what_leads_around_the_watch_is_refused_and_nothing_else(machine: Machine) -> None:
    answers = {number: decision(refusing(machine), machine.arch, number) for number in range(600)}
    assert {number for number, answer in answers.items() if answer == EPERM} == machine.refused
    assert {number for number, answer in answers.items() if answer == ENOSYS} == {machine.clone3}
    assert {number for number, answer in answers.items() if answer == NO_FAMILY} == {machine.socket}
    assert not machine.refused & machine.watched.keys()


@both
def test_b_19_sockets_are_of_families_that_a_network_namespace_holds(machine: Machine) -> None:
    """A virtual machine reaches its host by vsock, whatever network it is in."""
    decisions = {family: decision(refusing(machine), machine.arch, machine.socket, family) for family in range(256)}
    assert {family for family, answer in decisions.items() if answer == ALLOW} == {1, 2, 10, 16}
    assert {answer for answer in decisions.values() if answer != ALLOW} == {NO_FAMILY}


@both
@pytest.mark.parametrize(
    ("flags", "expected"),
    [(0, ALLOW), (THREAD, ALLOW), (17, ALLOW), (40, ALLOW), (NEW_USER, EPERM), (NEW_NET | 17, EPERM)],
)
def test_new_tasks_are_allowed_and_new_namespaces_are_not(machine: Machine, flags: int, expected: str) -> None:
    assert decision(refusing(machine), machine.arch, machine.clone, flags) == expected


@both
def test_b_13_who_calls_by_the_numbers_of_another_machine_is_killed(machine: Machine) -> None:
    for code in (telling(machine), refusing(machine)):
        for arch in {0x40000003, 0x40000028, *(it.arch for it in MACHINES.values())} - {machine.arch}:
            assert decision(code, arch, 5) == KILL


def test_b_13_the_numbers_of_x32_are_refused() -> None:
    machine = MACHINES["x86_64"]
    for code in (telling(machine), refusing(machine)):
        for number in (0x40000000, 0x40000002, 0x40000208, -1):
            assert decision(code, machine.arch, number) == EPERM
