"""The system calls that are watched and refused, by machine, and where each of them holds its path."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

__all__ = ["AT_EMPTY_PATH", "AT_FDCWD", "AT_SYMLINK_NOFOLLOW", "MACHINES", "Call", "Kind", "Machine", "machine"]

Kind: TypeAlias = Literal["read", "create", "append", "update", "truncate", "list", "readlink", "exec", "stat"]

AT_FDCWD: Final = -100
AT_EMPTY_PATH: Final = 0x1000
AT_SYMLINK_NOFOLLOW: Final = 0x100


@dataclass(frozen=True, slots=True)
class Call:
    """A watched call: its kind, and the places of its arguments. -1 is none; `at` is the descriptor of a directory."""

    kind: Kind
    path: int
    at: int = -1
    flags: int = -1
    opens: bool = False
    is_how: bool = False  # the flags stand in memory, in a struct open_how
    keeps_link: bool = False  # the path's last link is not followed


@dataclass(frozen=True, slots=True)
class Machine:
    """What differs between machines."""

    arch: int
    """The word by which the kernel tells which numbers are meant."""

    seccomp: int
    openat2: int
    watched: dict[int, Call]
    clone: int
    clone3: int
    socket: int
    refused: frozenset[int]
    x32: bool
    o_directory: int
    o_nofollow: int


_OPENAT: Final = Call("read", 1, at=0, flags=2, opens=True)
_OPENAT2: Final = Call("read", 1, at=0, flags=2, opens=True, is_how=True)
_STATAT: Final = Call("stat", 1, at=0, flags=3)
_STATX: Final = Call("stat", 1, at=0, flags=2)
_ACCESSAT: Final = Call("stat", 1, at=0)
_ACCESSAT2: Final = Call("stat", 1, at=0, flags=3)
_READLINKAT: Final = Call("readlink", 1, at=0, keeps_link=True)
_EXEC: Final = Call("exec", 0)
_EXECAT: Final = Call("exec", 1, at=0, flags=4)
_TAKE: Final = Call("read", 0, keeps_link=True)
_TAKEAT: Final = Call("read", 1, at=0, keeps_link=True)
_LIST: Final = Call("list", -1, at=0)
_CUT: Final = Call("truncate", -1, at=0)

NEW_REFUSED: Final = frozenset(
    {
        425,  # io_uring_setup
        426,  # io_uring_enter
        427,  # io_uring_register
        428,  # open_tree
        429,  # move_mount
        430,  # fsopen
        431,  # fsconfig
        432,  # fsmount
        433,  # fspick
        438,  # pidfd_getfd
        440,  # process_madvise
        442,  # mount_setattr
        443,  # quotactl_fd
        467,  # open_tree_attr
    }
)
"""Calls that have the same number on all machines."""

X86_64: Final = Machine(
    arch=0xC000003E,
    seccomp=317,
    openat2=437,
    watched={
        2: Call("read", 0, flags=1, opens=True),  # open
        85: Call("create", 0),  # creat
        257: _OPENAT,
        437: _OPENAT2,
        4: Call("stat", 0),  # stat
        6: Call("stat", 0, keeps_link=True),  # lstat
        262: _STATAT,  # newfstatat
        332: _STATX,
        21: Call("stat", 0),  # access
        269: _ACCESSAT,
        439: _ACCESSAT2,
        89: Call("readlink", 0, keeps_link=True),  # readlink
        267: _READLINKAT,
        59: _EXEC,
        322: _EXECAT,
        78: _LIST,  # getdents
        217: _LIST,  # getdents64
        77: _CUT,  # ftruncate
        82: _TAKE,  # rename: what it names anew it could not have had otherwise
        264: _TAKEAT,  # renameat
        316: _TAKEAT,  # renameat2
        86: _TAKE,  # link
        265: _TAKEAT,  # linkat
    },
    clone=56,
    clone3=435,
    socket=41,
    refused=NEW_REFUSED
    | {101, 310, 311}  # ptrace, process_vm_readv, process_vm_writev
    | {303, 304}  # name_to_handle_at, open_by_handle_at
    | {165, 166, 155, 161, 272, 308}  # mount, umount2, pivot_root, chroot, unshare, setns
    | {248, 249, 250}  # add_key, request_key, keyctl
    | {321, 298, 323, 300}  # bpf, perf_event_open, userfaultfd, fanotify_init
    | {246, 320, 175, 313, 176}  # kexec_load, kexec_file_load, init_module, finit_module, delete_module
    | {163, 167, 168, 169, 103, 179, 172, 173},  # acct, swapon, swapoff, reboot, syslog, quotactl, iopl, ioperm
    x32=True,
    o_directory=0o200000,
    o_nofollow=0o400000,
)

AARCH64: Final = Machine(
    arch=0xC00000B7,
    seccomp=277,
    openat2=437,
    watched={
        56: _OPENAT,
        437: _OPENAT2,
        79: _STATAT,  # newfstatat
        291: _STATX,
        48: _ACCESSAT,
        439: _ACCESSAT2,
        78: _READLINKAT,
        221: _EXEC,
        281: _EXECAT,
        61: _LIST,  # getdents64
        46: _CUT,  # ftruncate
        38: _TAKEAT,  # renameat
        276: _TAKEAT,  # renameat2
        37: _TAKEAT,  # linkat
    },
    clone=220,
    clone3=435,
    socket=198,
    refused=NEW_REFUSED
    | {117, 270, 271}  # ptrace, process_vm_readv, process_vm_writev
    | {264, 265}  # name_to_handle_at, open_by_handle_at
    | {40, 39, 41, 51, 97, 268}  # mount, umount2, pivot_root, chroot, unshare, setns
    | {217, 218, 219}  # add_key, request_key, keyctl
    | {280, 241, 282, 262}  # bpf, perf_event_open, userfaultfd, fanotify_init
    | {104, 294, 105, 273, 106}  # kexec_load, kexec_file_load, init_module, finit_module, delete_module
    | {89, 224, 225, 142, 116, 60},  # acct, swapon, swapoff, reboot, syslog, quotactl
    x32=False,
    o_directory=0o40000,
    o_nofollow=0o100000,
)

MACHINES: Final = {"x86_64": X86_64, "aarch64": AARCH64}


def machine() -> Machine | None:
    """The tables of this machine, or None where there are none."""
    return MACHINES.get(os.uname().machine)
