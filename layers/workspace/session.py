"""One body at work: its files, what it looked at, what it asked for; dead once the body has ended."""

from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, replace
from threading import RLock
from typing import BinaryIO, NoReturn, final
from weakref import WeakKeyDictionary

from ...core.boundary import Declaration
from ...core.effect import Effect, as_effect
from ...core.glob import Glob
from ...core.node import DirNode, FileNode, LinkNode, Node, digest_of
from ...core.observation import ABSENT, UNDECLARED, Look, Observations, names_digest
from ...core.overlay import Overlay
from ...core.step_sandbox import LimitExceeded, WorkspaceError
from ...core.workspace_limits import WorkspaceLimits
from ...core.workspace_path import PathProblem, declared_path, file_path, operation_path, protected_problem
from ...services.step_sandbox import OpenMode, WorkspaceFileNotFound, WorkspaceRefusal
from .handle import Bytes, Handle, draft_of
from .host import Seed
from .spool import Spool

__all__ = ["Session"]


@final
@dataclass(slots=True)
class _Place:
    """Where the file of an open handle is now; None once it was removed: what is written then, nobody can see."""

    at: str | None


@final
class Session:
    """What stands behind the `Workspace` of a body. Any thread may call; calls are made one after the other.

    `has` tells whether the host has something at a path: an undeclared look at what it has is remembered, whatever
    the body makes of the refusal.
    """

    def __init__(
        self,
        seed: Seed,
        declaration: Declaration,
        limits: WorkspaceLimits,
        roots: tuple[str, ...],
        has: Callable[[str], bool],
    ) -> None:
        self.overlay = Overlay(seed.tree, limits.nodes, limits.produced_bytes)
        self.observations = Observations(limits.trace)
        self.effects: list[Effect] = []
        self.exceeded: LimitExceeded | None = None
        """The first limit of contents that the body met: from then on nothing of it can be accepted."""
        self._spool = Spool(limits.memory_bytes)
        self._seed = seed
        self._seeded = {node.digest: path for path, node in seed.tree.items() if isinstance(node, FileNode)}
        self._declaration = declaration
        self._limits = limits
        self._roots = roots
        self._has = has
        self._lock = RLock()
        self._ended = False
        self._handles: WeakKeyDictionary[Handle, _Place] = WeakKeyDictionary()
        """In the order in which they were opened; it is also that in which they are flushed at the end."""

    # --- life ---------------------------------------------------------------

    def finish(self) -> None:
        """The body has returned: what its open handles were given is taken, and nothing can be done from here on."""
        with self._lock:
            try:
                for handle in list(self._handles):
                    handle.flush()
            finally:
                self.end()

    def end(self) -> None:
        """Nothing can be done from here on; what it holds can still be read by `contents`."""
        with self._lock:
            self._ended = True
            for handle in list(self._handles):
                handle.abandon()

    def close(self) -> None:
        """Let go of the contents too."""
        self.end()
        self._spool.close()

    def contents(self, digest: str) -> BinaryIO:
        """A reader of bytes that were seeded or written."""
        path = self._seeded.get(digest)
        return self._spool.open(digest) if path is None else self._seed.contents.open(path)

    # --- looking ------------------------------------------------------------

    def read(self, text: str) -> bytes:
        with self._lock, self.contents(self._file(text).digest) as source:
            return source.read()

    def exists(self, text: str) -> bool:
        with self._lock:
            return self._look("exists", self._resolved(text)) is not None

    def names(self, text: str) -> list[str]:
        with self._lock:
            at = self._resolved(text, top=True)
            if not isinstance(self._found("list", at), DirNode):
                _refuse("not_a_directory", f"{text} is not a directory")
            return self.overlay.names(at)

    def matching(self, pattern: str) -> list[str]:
        with self._lock:
            self._check()
            checked = declared_path(pattern, self._limits)
            if isinstance(checked, PathProblem):
                raise WorkspaceRefusal(checked.as_failure())
            glob = Glob(checked)
            paths = [path for path in self.overlay.leaves() if glob.matches(path)]
            self.observations.note("list", checked, names_digest(paths))
            return paths

    def node(self, text: str) -> Node:
        with self._lock:
            return self._found("stat", self._resolved(text))

    def is_dir(self, text: str) -> bool:
        with self._lock:
            return isinstance(self._look("stat", self._resolved(text, top=True)), DirNode)

    def link(self, text: str) -> str:
        with self._lock:
            node = self._found("readlink", self._resolved(text, last=False))
            if not isinstance(node, LinkNode):
                _refuse("unsupported_file_type", f"{text} is no symbolic link")
            return node.target

    # --- changing -----------------------------------------------------------

    def write(self, text: str, data: bytes) -> None:
        with self._lock:
            self._write(self._target(text), io.BytesIO(data))

    def make_dir(self, text: str) -> None:
        with self._lock:
            self._did(self.overlay.make_dir(self._target(text, top=True)))

    def remove(self, text: str) -> None:
        with self._lock:
            at = self._target(text, last=False)
            _ = self._found("stat", at)
            self._did(self.overlay.drop(at))
            self._moved(at, None)

    def rename(self, old: str, new: str) -> None:
        with self._lock:
            source, target = self._target(old, last=False), self._target(new, last=False)
            node = self._found("stat" if self.overlay.node(source) == DirNode() else "read", source)
            if source == target:
                return
            if isinstance(node, DirNode):
                self._rename_dir(source, target)
            else:
                if self.overlay.node(target) == DirNode():
                    _refuse("is_directory", f"{target} is a directory")
                self._did(self.overlay.drop(source))
                self._did(self.overlay.put(target, node))
                self._moved(target, None)
                self._moved(source, target)

    def set_executable(self, text: str, executable: bool) -> None:
        with self._lock:
            at = self._target(text)
            is_file = isinstance(self.overlay.node(at), FileNode)
            node = self._found("read" if is_file else "stat", at)  # its bytes are an output from now on
            if not isinstance(node, FileNode):
                _refuse("unsupported_file_type", f"{text} is no file")
            if node.executable != executable:
                self._did(self.overlay.put(at, FileNode(node.digest, node.size, executable)))

    def make_link(self, text: str, target: str) -> None:
        with self._lock:
            at = self._target(text, last=False)
            if self.overlay.node(at) is not None:
                _refuse("already_exists", f"{text} is there already")
            if not _is_unicode(target):
                _refuse("invalid_path", f"the link {text} to {target!a} cannot be: its target is no valid Unicode")
            self._did(self.overlay.put(at, LinkNode(target)))

    def queue(self, effect: object) -> None:
        with self._lock:
            self._check()
            asked = as_effect(effect)
            if any(it.key == asked.key and it.payload_digest != asked.payload_digest for it in self.effects):
                raise ValueError(
                    f"the step has queued an effect {asked.key!r} with another payload; give it its own key"
                )
            self.effects.append(replace(asked, payload=deepcopy(asked.payload)))  # the body may go on changing its own

    # --- handles ------------------------------------------------------------

    def open(self, text: str, mode: OpenMode) -> Handle:
        with self._lock:
            if mode == "r":
                return self._opened(Handle(text, self.contents(self._file(text).digest), self._check), _Place(None))
            at = self._target(text)
            there = self.overlay.node(at)
            if mode[0] == "x" and there is not None:
                _refuse("already_exists", f"{text} is there already")
            if mode == "r+" or (mode[0] == "a" and self._is_there(at)):
                source = self.contents(self._file(text).digest)
            else:
                source = None
                self._write(at, io.BytesIO())  # it is there, and empty, from now on
            place = _Place(at)
            handle = Handle(
                text,
                draft_of(source),
                self._check,
                lambda written: self._published(place, written),
                reads=mode.endswith("+"),
                appends=mode[0] == "a",
            )
            return self._opened(handle, place)

    def _opened(self, handle: Handle, place: _Place) -> Handle:
        self._handles[handle] = place
        return handle

    def _published(self, place: _Place, written: Bytes) -> None:
        with self._lock:
            self._check()
            if place.at is not None:
                self._write(place.at, written)

    def _moved(self, source: str, target: str | None) -> None:
        """Let the handles on what was at `source` write to where it is now."""
        for place in self._handles.values():
            if place.at == source:
                place.at = target

    def note_stray(self, path: str) -> None:
        """A look at the host itself, past the copies: undeclared, if it is there and not a declared read."""
        with self._lock:
            if not self._declaration.reads(path) and self._has(path):
                self.observations.note("read", path or ".", UNDECLARED)

    # --- parts --------------------------------------------------------------

    def _check(self) -> None:
        if self._ended:
            _refuse("closed", "the body of the step has ended, and its workspace with it")

    def _resolved(self, text: str, *, last: bool = True, top: bool = False) -> str:
        """The normalised path that a text leads to, through the workspace's own links; `top` lets "" be the top."""
        self._check()
        if not text and not top:
            _refuse("invalid_path", "an empty path names no file")
        path = operation_path(text, self._roots, self._limits)
        if isinstance(path, PathProblem):
            raise WorkspaceRefusal(path.as_failure())
        at = self.overlay.resolve(path, last=last)
        if isinstance(at, WorkspaceError):
            raise WorkspaceRefusal(at)
        return at

    def _target(self, text: str, *, last: bool = True, top: bool = False) -> str:
        """The same for what is to be changed."""
        self._check()
        path = (operation_path if top else file_path)(text, self._roots, self._limits)
        if isinstance(path, PathProblem):
            raise WorkspaceRefusal(path.as_failure())
        at = self._resolved(text, last=last, top=top)
        if problem := protected_problem(at):
            raise WorkspaceRefusal(problem.as_failure())
        return at

    def _file(self, text: str) -> FileNode:
        """The file to be read there. A file that was seeded to be removed is not declared to be read."""
        at = self._resolved(text)
        node = self._found("read", at)
        if isinstance(node, DirNode):
            _refuse("is_directory", f"{text} is a directory")
        assert isinstance(node, FileNode)  # links have been followed
        return node

    def _look(self, look: Look, at: str) -> Node | None:
        """What is there, noted as looked at."""
        node = self.overlay.node(at)
        if self.overlay.produced(at):
            return node
        if node is None:
            self._note_nothing(look, at)
        elif look == "read" and node != DirNode() and not self._declaration.reads(at):
            self.observations.note(look, at, UNDECLARED)
            return None
        else:
            self.observations.note(look, at, _seen(node, self.overlay, at))
        return node

    def _note_nothing(self, look: Look, at: str) -> None:
        if self._declaration.reads(at):
            self.observations.note(look, at, ABSENT)
        elif self._has(at):
            self.observations.note(look, at, UNDECLARED)
        else:
            self.observations.note("probe", at, ABSENT)

    def _found(self, look: Look, at: str) -> Node:
        node = self._look(look, at)
        if node is not None:
            return node
        self._refuse_undeclared(at)
        raise WorkspaceFileNotFound(WorkspaceError("not_found", f"the workspace has no {at}"))

    def _is_there(self, at: str) -> bool:
        """Whether there is a file to go on with. One that the host has, and the step did not declare, is a refusal."""
        if self._look("read", at) is not None:
            return True
        self._refuse_undeclared(at)
        return False

    def _refuse_undeclared(self, at: str) -> None:
        if at in self.observations.undeclared and self._declaration.mode == "hard":
            message = f"{at} is not declared, so that the step cannot see it: add it to the reads of its Boundary"
            raise WorkspaceFileNotFound(WorkspaceError("undeclared_read", message))

    def _write(self, at: str, source: Bytes) -> None:
        digest, size = self._spool.put_file(source)
        if size > self._limits.file_bytes:
            self._did(LimitExceeded("file_bytes", size, self._limits.file_bytes))
        there = self.overlay.node(at)
        executable = isinstance(there, FileNode) and there.executable
        self._did(self.overlay.put(at, FileNode(digest, size, executable)))
        if self._spool.stored_bytes > 2 * self.overlay.produced_bytes + self._limits.memory_bytes:
            with suppress(OSError):  # as of a full disk: then the contents that were replaced stay
                self._spool.keep_only(self.overlay.digests())

    def _rename_dir(self, source: str, target: str) -> None:
        if target.startswith(source + "/"):
            _refuse("invalid_path", f"{source} cannot be moved into itself, to {target}")
        if self.overlay.node(target) is not None:
            _refuse("already_exists", f"{target} is there already")
        moved = {path: self._movable(path, target + path.removeprefix(source)) for path in self.overlay.below(source)}
        for path in (*moved, source):
            self._did(self.overlay.drop(path))
        self._did(self.overlay.make_dir(target))
        for path, node in moved.items():
            there = target + path.removeprefix(source)
            self._did(self.overlay.make_dir(there) if isinstance(node, DirNode) else self.overlay.put(there, node))
            self._moved(path, there)

    def _movable(self, path: str, target: str) -> Node:
        """What is at a path, if it can be moved to another."""
        there = file_path(target, self._roots, self._limits)
        if isinstance(there, PathProblem):
            raise WorkspaceRefusal(there.as_failure())
        return self._found("stat" if self.overlay.node(path) == DirNode() else "read", path)

    def _did(self, problem: WorkspaceError | LimitExceeded | None) -> None:
        if problem is None:
            return
        if isinstance(problem, LimitExceeded) and self.exceeded is None:
            self.exceeded = problem
        raise WorkspaceRefusal(problem)


def _is_unicode(text: str) -> bool:
    try:
        _ = text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _seen(node: Node, overlay: Overlay, at: str) -> str:
    match node:
        case FileNode(digest):
            return digest
        case LinkNode(target):
            return digest_of(target.encode())
        case DirNode():
            return names_digest(overlay.names(at))


def _refuse(code: str, message: str) -> NoReturn:
    raise WorkspaceRefusal(WorkspaceError(code, message))
