"""The values and failures that several services share.

A failure is a situation that a caller can meet and handle; each names what it happened to, so that its text needs no
context. Values are frozen. A state that is handed out (`Snapshot.state`, `Updated.state`, `Taken.selected`) is the
caller's own: it is copied when it is first read, and whatever the caller does to it changes nothing that is stored.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import FrozenInstanceError, dataclass
from typing import TYPE_CHECKING, Generic, Literal, Never, TypeAlias, TypeVar, cast

__all__ = [
    "Conflict",
    "Contended",
    "Deleted",
    "InvalidState",
    "Issue",
    "Path",
    "Paths",
    "ReceiptMismatch",
    "RecordedError",
    "Replace",
    "Revision",
    "Snapshot",
    "StepId",
    "StoreKey",
    "StoreNotFound",
    "Taken",
    "TimedOut",
    "TooLarge",
    "Unavailable",
    "Unmatched",
    "Updated",
]

_C = TypeVar("_C")
_T = TypeVar("_T")
_T_co = TypeVar("_T_co", covariant=True)

Path: TypeAlias = tuple[str | int, ...]
"""Where in a state: text segments are field names and keys, whole numbers are indices."""

Paths: TypeAlias = tuple[Path, ...]

NAME_BYTES = 512
"""The longest name, id or step key, in bytes of UTF-8."""


def check_name(what: str, text: object) -> str:
    """`text`, if it can name something: 1 to 512 bytes of UTF-8 without NUL. Otherwise a ValueError names `what`."""
    if not isinstance(text, str):
        raise TypeError(f"{what} must be text, not {type(text).__name__}")
    if "\0" in text:
        raise ValueError(f"{what} {text!r} holds a NUL character")
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise ValueError(f"{what} {text!r} is not valid Unicode: {error.reason}") from None
    if not 1 <= size <= NAME_BYTES:
        raise ValueError(f"{what} must be 1 to {NAME_BYTES} bytes long, not {size}")
    return text


def check_whole(what: str, number: object, least: int) -> int:
    """`number`, if it is a whole number and not below `least`. Otherwise a TypeError or a ValueError names `what`."""
    if type(number) is not int:
        raise TypeError(f"{what} is a whole number, not {number!r}")
    if number < least:
        raise ValueError(f"{what} is at least {least}, not {number}")
    return number


# --- where and when ---------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StoreKey:
    """Which store: its definition's name, and its id under that name. Both are 1 to 512 bytes of UTF-8."""

    name: str
    id: str

    def __post_init__(self) -> None:
        check_name("a store's name", self.name)
        check_name("a store's id", self.id)

    def __hash__(self) -> int:
        return hash(self.id)  # which all but tells keys apart: a key is looked up some twenty times for each change

    def __str__(self) -> str:
        return f"{self.name}/{self.id}"


@dataclass(frozen=True, slots=True)
class Revision:
    """One committed state: `version` counts the commits of the instance `instance_id`, from 0.

    Deleting a store and creating it again makes a new instance.
    """

    instance_id: str
    version: int

    def __post_init__(self) -> None:
        _check_revision(self.instance_id, self.version)


def _check_revision(instance_id: object, version: object) -> None:
    """TypeError or ValueError for what names no state anywhere; a number that no store has reached yet is let in."""
    if not isinstance(instance_id, str):
        raise TypeError(f"the instance id of a revision is text, not {instance_id!r}")
    if not instance_id:
        raise ValueError("a revision needs the instance id of the store; read a fresh snapshot")
    if not instance_id.isascii():
        try:
            _ = instance_id.encode()
        except UnicodeEncodeError as error:
            raise ValueError(f"the instance id {instance_id!r} is not valid Unicode: {error.reason}") from None
    if type(version) is not int:
        raise TypeError(f"the version of a revision is a whole number, not {version!r}")


@dataclass(frozen=True, slots=True)
class StepId:
    """Which step of which run. With a store's key it makes an operation on that store exactly-once."""

    run_id: str
    key: str

    def __post_init__(self) -> None:
        check_name("a run's id", self.run_id)
        check_name("a step's key", self.key)


# --- states that are handed out ---------------------------------------------


def guarded(type_: type[_C]) -> type[_C]:
    """The frozen class, whose values refuse every attribute alike.

    `dataclass` ties its guard to the class as it was before it had slots. On Python 3.11 and 3.12 that guard breaks
    with a TypeError on any name that is no field, and so does `Replace[int](1)`, in which `typing` sets one.
    """

    def refuse(self: object, name: str, *_: object) -> Never:
        raise FrozenInstanceError(f"cannot change {name!r} of a {type(self).__name__}")

    for guard in ("__setattr__", "__delattr__"):
        setattr(type_, guard, refuse)
    return type_


class _Lazy:
    """A value of which `_lazy_field` is made by a function, once, when it is first read.

    The slot of that field stays empty until then, so Python asks `__getattr__`; afterwards it is an ordinary slot.
    """

    __slots__ = ("_make",)
    _lazy_field = "state"

    if not TYPE_CHECKING:  # seen by a checker, it would make every attribute exist

        def __getattr__(self, name):
            if name != self._lazy_field:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            value = object.__getattribute__(self, "_make")()
            object.__setattr__(self, name, value)
            return value


@guarded
@dataclass(frozen=True, slots=True)
class Snapshot(_Lazy, Generic[_T_co]):
    """A store's state as it was at `revision`.

    The first read of `state` copies the whole of it, since it is the caller's own and of ordinary objects: 50,000
    records take some 0.3 s, on the event loop. Later reads give the same object. A part is found without a copy by
    `StoreHandle.when(selector, timeout=0)`, and an `update` needs no read before it.
    """

    state: _T_co
    revision: Revision

    @property
    def instance_id(self) -> str:
        return self.revision.instance_id

    @property
    def version(self) -> int:
        return self.revision.version


@guarded
@dataclass(frozen=True, slots=True)
class Updated(_Lazy, Generic[_T_co]):
    """An update was committed: the state at `revision`, and the version before it.

    The first read of `state` copies the whole of it, as that of a `Snapshot` does.
    """

    state: _T_co
    previous_version: int
    revision: Revision

    @property
    def instance_id(self) -> str:
        return self.revision.instance_id

    @property
    def version(self) -> int:
        return self.revision.version


def snapshot_of(make: Callable[[], _T], revision: Revision) -> Snapshot[_T]:
    """A snapshot whose state `make` gives, called when the state is first read."""
    made = cast("Snapshot[_T]", object.__new__(Snapshot))
    object.__setattr__(made, "_make", make)
    object.__setattr__(made, "revision", revision)
    return made


def updated_of(make: Callable[[], _T], previous_version: int, revision: Revision) -> Updated[_T]:
    """An `Updated` whose state `make` gives, called when the state is first read."""
    made = cast("Updated[_T]", object.__new__(Updated))
    object.__setattr__(made, "_make", make)
    object.__setattr__(made, "previous_version", previous_version)
    object.__setattr__(made, "revision", revision)
    return made


@guarded
@dataclass(frozen=True, slots=True)
class Taken(Generic[_T_co]):
    """What a selector found and a claim made the caller's own, committed as `revision`."""

    selected: _T_co
    revision: Revision


@dataclass(frozen=True, slots=True)
class Deleted:
    """The store was deleted at the revision that was expected."""


@guarded
@dataclass(frozen=True, slots=True)
class Replace(Generic[_T_co]):
    """What an updater returns to replace the whole state by `value`."""

    value: _T_co


@dataclass(frozen=True, slots=True)
class RecordedError:
    """An exception as it is recorded: the name of its class, its text and its traceback as text."""

    type: str
    message: str
    traceback: str


@dataclass(frozen=True, slots=True)
class Issue:
    """One thing that is wrong with a state: where, and what."""

    path: Path
    message: str


# --- failures ---------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StoreNotFound:
    """There is no such store. `expected` is the revision that a conditional call asked for.

    With a `reason` it is the answer to a step that was applied before: it made the revision `expected`, and that was
    erased since. The change is not made again, and a retry gives the same answer.
    """

    key: StoreKey
    expected: Revision | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Conflict:
    """The store is at another revision than the caller expected. Nothing was changed; the updater may have run."""

    key: StoreKey
    expected: Revision
    actual: Revision


@dataclass(frozen=True, slots=True)
class InvalidState:
    """A state does not fit the store's type: all issues, in order. Nothing was changed."""

    key: StoreKey
    issues: tuple[Issue, ...]


@dataclass(frozen=True, slots=True)
class Unmatched:
    """A selector found nothing in the state at `revision`; a change of what `read_paths` name may alter that."""

    revision: Revision
    read_paths: Paths


@dataclass(frozen=True, slots=True)
class Contended:
    """Other writers were faster, `attempts` times. Nothing was changed; the same call may be made again."""

    key: StoreKey
    attempts: int


@dataclass(frozen=True, slots=True)
class ReceiptMismatch:
    """The step was used before for another kind of operation on this store. Nothing was changed."""

    step: StepId
    recorded: str
    requested: str


@dataclass(frozen=True, slots=True)
class TooLarge:
    """`what` is larger than its limit. Nothing was changed."""

    what: str
    size_bytes: int
    limit_bytes: int


@dataclass(frozen=True, slots=True)
class TimedOut:
    """What was waited for did not come within `after_ms` milliseconds."""

    after_ms: int


@dataclass(frozen=True, slots=True)
class Unavailable:
    """The service cannot answer. `applied` tells whether the change may have been committed all the same.

    "no": nothing was changed. "unknown": a commit may have happened; a call with the same step id tells, and without
    one the caller reads and compares.
    """

    reason: str
    applied: Literal["no", "unknown"]
