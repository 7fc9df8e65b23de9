"""Messages over a Unix socket: JSON behind its length, and descriptors beside it."""

from __future__ import annotations

import array
import errno
import json
import os
import socket
import struct
from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

__all__ = ["Gone", "Json", "Message", "number_of", "pairs_of", "receive", "receive_descriptors", "send", "texts_of"]

Json: TypeAlias = "bool | int | str | Sequence[Json] | Mapping[str, Json] | None"

Message: TypeAlias = Mapping[str, Json]

LENGTH: Final = struct.Struct("=I")

DESCRIPTORS: Final = 8
"""The most descriptors that come with one message."""


class Gone(Exception):
    """The other end has closed the socket."""


def send(to: socket.socket, message: Message, descriptors: Sequence[int] = ()) -> None:
    """Send a message whole. A `Gone` says that nobody is there to take it."""
    data = json.dumps(message).encode()
    try:
        socket.send_fds(to, [LENGTH.pack(len(data))], list(descriptors))
        to.sendall(data)
    except (BrokenPipeError, ConnectionResetError):
        raise Gone from None


def receive(sock: socket.socket) -> tuple[Message, list[int]]:
    """The next message, with its descriptors, which are the caller's to close and are not inherited."""
    header, descriptors = receive_descriptors(sock, LENGTH.size)
    if len(header) < LENGTH.size:
        raise Gone
    (left,) = LENGTH.unpack(header)
    parts: list[bytes] = []
    while left:
        part = sock.recv(left)
        if not part:
            raise Gone
        parts.append(part)
        left -= len(part)
    message: Message = json.loads(b"".join(parts))
    return message, descriptors


def receive_descriptors(sock: socket.socket, size: int) -> tuple[bytes, list[int]]:
    """Up to `size` bytes, and the descriptors that come with them. They are not inherited, not even for a moment.

    An OSError says that there was no room for all of them; none is open then.
    """
    # socket.recv_fds does not pass its flags on.
    room = socket.CMSG_LEN(DESCRIPTORS * array.array("i").itemsize)
    data, ancillary, flags, _ = sock.recvmsg(size, room, socket.MSG_CMSG_CLOEXEC)
    descriptors = array.array("i")
    for level, kind, content in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            descriptors.frombytes(content[: len(content) - len(content) % descriptors.itemsize])
    if flags & socket.MSG_CTRUNC:
        for descriptor in descriptors:
            os.close(descriptor)
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
    return data, list(descriptors)


def number_of(message: Message, name: str) -> int:
    """A whole number of a message. A TypeError says that it is none."""
    value = message[name]
    if not isinstance(value, int):
        raise TypeError(f"{name} is {value!r}, which is no whole number")
    return value


def texts_of(message: Message, name: str) -> list[str]:
    """A list of texts of a message."""
    value = message[name]
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise TypeError(f"{name} is {value!r}, which is no list of texts")
    return [str(item) for item in value]


def pairs_of(message: Message, name: str) -> dict[str, Json]:
    """An object of a message."""
    value = message[name]
    if not isinstance(value, Mapping):
        raise TypeError(f"{name} is {value!r}, which is no object")
    return dict(value)
