"""The schema of a store's type: what a state must be, and how it is written down.

`StateSchema(type_)` is made once per store definition; it raises TypeError for a type that cannot be kept. A
*canonical* state is one that came from its JSON document: `validate`, `settle`, `advance` and `decode` give nothing
else, so what a store holds in memory, writes and reads back is the same, strictly. Fields are written and validated by
name, never by alias; computed fields are not written.

A validator that changes what it already accepted (one that counts its calls, say) has no canonical states: that is an
issue, not a state that changes whenever it is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, Generic, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Struct
from pydantic import ValidationError
from pydantic_core import PydanticSerializationError, to_json

from . import incremental
from .admission import admit
from .atom_change import settle_atom
from .batch import Form
from .catch_up import advance
from .checks import Refused, WholeCheck, whole_checks
from .core_schema import compile_schema
from .fidelity import Difference, differences, own_fields
from .fingerprint import fingerprint
from .form import NO_UPCASTERS, Upcasters, brought_up, refused
from .incremental import Settled
from .kind import is_dict, key_text, stands_for
from .model import Issue, Path, Paths, StoreKey
from .outcome import Failure, Outcome, Success
from .parts import NO_PART, items_of, part_of, root_of
from .patch import Patch, between, replay_document
from .paths import SHAPE, diff
from .places import Barrier, Places
from .sharing import flat
from .slices import slices
from .value import NotStorable, clone, same

if TYPE_CHECKING:
    from typing_extensions import TypeForm

__all__ = ["Barrier", "Disagreement", "Settled", "StateSchema", "Valid", "Validation", "admit_validation"]

_T = TypeVar("_T")
_T_co = TypeVar("_T_co", covariant=True)

Issues = tuple[Issue, ...]


class Valid(Struct, Generic[_T_co], frozen=True):
    """A canonical state, shared with nobody, and its document: decoding `json` gives an equal state."""

    state: _T_co
    json: bytes


Validation: TypeAlias = Literal["incremental", "full", "both"]
"""How a changed state is validated: where it was written, as a whole, or both ways, which are then compared."""


def admit_validation(validation: object) -> Validation:
    """The way to validate; a ValueError for what is none."""
    match validation:
        case "incremental":
            return "incremental"
        case "full":
            return "full"
        case "both":
            return "both"
        case _:
            raise ValueError(f'validation={validation!r} is not "incremental", "full" or "both"')


class Disagreement(AssertionError):
    """The two ways to validate have two answers for one change: a validator is to blame, or a bug."""

    def __init__(self, type_: object, found: object, key: StoreKey | None = None) -> None:
        where = "" if key is None else f"store {key}: "
        super().__init__(
            f"{where}incremental and full validation of {type_!r} disagree at {found!r}; "
            "a validator that is no function of what it is given alone does that, and so does a bug: please report it"
        )
        self.type_ = type_
        self.found = found

    def of(self, key: StoreKey) -> Disagreement:
        """The same, which names the store."""
        return Disagreement(self.type_, self.found, key)


class StateSchema(Generic[_T]):
    """How states of one type are validated, written as JSON and read back.

    TypeError, naming the field, if the JSON of a value is not read back as the same value, or if a draft could not
    track the value. `key_types` are the types of keys that dicts of the type declare; `form` is the form in which this
    schema writes, and `upcasters` lead to it from earlier versions.
    """

    __slots__ = ("_compiled", "_places", "_upcasters", "_validation", "form", "key_types", "type_")

    def __init__(
        self,
        type_: TypeForm[_T],
        validation: Validation = "incremental",
        *,
        version: int = 1,
        upcasters: Upcasters = NO_UPCASTERS,
    ) -> None:
        self.type_: Final = type_
        self.key_types: Final = admit(type_)
        self._compiled = compile_schema(type_, finite=True)
        self._places = Places(self._compiled)
        self._validation = validation
        self.form: Final = Form(version, fingerprint(self._compiled.schema))
        self._upcasters = upcasters

    def validate(self, value: object) -> Outcome[Valid[_T], Issues]:
        """The canonical state that `value` stands for, or all that is wrong with it, in order.

        `value` may be anything; it is not changed and not kept. What a validator raises other than ValueError and
        AssertionError is a bug and is passed on.
        """
        try:
            value = clone(value)
        except NotStorable as error:
            return Failure((Issue((), str(error)),))
        except TypeError:
            pass  # not made of what states are made of: pydantic says where, or turns it into what it should be
        return self._canonical(value)

    def settle(self, before: _T, after: _T, written: Paths | None) -> Outcome[Settled[_T], Issues]:
        """The canonical state for one that an updater made from the canonical `before`, or all that is wrong with it.

        It wrote at `written` only, or anywhere if that is None. Neither state is changed. Where the type allows it, the
        cost is that of what was written; `barriers` says where it does not. Validation that finds something wrong, or
        changes what it was given in a way that reaches further, looks at the whole.
        """
        settled = self.settled(before, after, written)
        return settled if isinstance(settled, Failure) else Success(settled)

    def settled(self, before: _T, after: _T, written: Paths | None) -> Settled[_T] | Failure[Issues]:
        """The same, with no outcome around what was settled: that costs, where one field is all that changed."""
        if written is not None and self._validation != "full":
            try:
                settled = self._settle_written(before, after, written)
            except Refused:
                settled, written = None, None  # as it was written it is not valid: no need to look
            if settled is not None:
                if self._validation == "both":
                    self._compare(settled, self._settle_whole(before, after, written))
                return settled
        whole = self._settle_whole(before, after, written)
        return whole if isinstance(whole, Failure) else whole.unwrap()

    def _settle_written(self, before: _T, after: _T, written: Paths) -> Settled[_T] | None:
        """The same where what was written says it all; None where only the whole does."""
        settled = settle_atom(self._places.root, before, after, written[0]) if len(written) == 1 else None
        return settled or incremental.settle(self._places, before, after, written)

    def advance(self, state: _T, patch: Patch) -> Outcome[_T, Issues]:
        """The canonical state to which a patch of documents leads from `state`, which is canonical and not changed.

        A patch that leads nowhere meets any error on its way, which is passed on.
        """
        advanced = advance(self._places, state, patch)
        if advanced is not None:
            return Success(advanced)
        document = replay_document(msgspec.json.decode(self.encode(state)), (patch,))
        return self.decode(to_json(document))

    def barriers(self) -> tuple[Barrier, ...]:
        """Where a change costs as much as a larger part of the state, and why."""
        return self._places.barriers()

    def checks(self) -> tuple[WholeCheck, ...]:
        """The validators of whole records that may read much at each change."""
        return whole_checks(self._places)

    def _settle_whole(self, before: _T, after: _T, written: Paths | None) -> Outcome[Settled[_T], Issues]:
        valid, exact = (None, False) if written is None else self._as_written(after, written)
        if valid is None:
            validated = self.validate(after)
            if isinstance(validated, Failure):
                return validated
            valid = validated.unwrap()
        if exact and written is not None:
            changed = incremental.changed_of(before, valid.state, written)
        else:
            changed = diff(before, valid.state)
        old = self.encode(before)
        if old == valid.json:  # what was written equals what was there
            return Success(Settled(before, Patch(), ()))
        patch = between(msgspec.json.decode(old), msgspec.json.decode(valid.json), changed)
        return Success(Settled(valid.state, patch, changed))

    def _compare(self, settled: Settled[_T], whole: Outcome[Settled[_T], Issues]) -> None:
        if isinstance(whole, Success) and same(settled.state, whole.unwrap().state):
            return
        found = whole.failure() if isinstance(whole, Failure) else diff(settled.state, whole.unwrap().state)
        raise Disagreement(self.type_, found)

    def decode(self, json: bytes) -> Outcome[_T, Issues]:
        """A fresh state from its JSON document, or why the type does not accept it."""
        try:
            return Success(self._read(json))
        except ValidationError as error:
            return Failure(_issues_of(error, _parsed(json)))

    def decode_from(self, json: bytes, form: Form | None) -> Outcome[_T, Issues]:
        """The same from a document of another form of the type, None for an unknown one, by way of the upcasters.

        What an upcaster raises is an issue; the first issue says what to do.
        """
        if form == self.form:
            return self.decode(json)
        document = brought_up(json, form, self.form, self._upcasters)
        if isinstance(document, Failure):
            return document
        decoded = self.decode(document.unwrap())
        if isinstance(decoded, Failure):
            return Failure((refused(form, self.form), *decoded.failure()))
        return decoded

    def encode(self, state: _T) -> bytes:
        """The JSON document of a canonical state: equal bytes only for strictly equal states."""
        return self._compiled.writer.to_json(flat(state), by_alias=False, round_trip=True, warnings=False)

    def slices(self, state: _T) -> Iterator[bytes]:
        """The same document a part at a time, each of which takes little time where the type allows that."""
        return slices(self._places.root, state)

    def clone(self, state: _T) -> _T:
        """A private copy of a canonical state, to be handed out."""
        return stands_for(state, clone(state))

    def _read(self, json: bytes) -> _T:
        state: _T = self._compiled.reader.validate_json(json, by_alias=False, by_name=True)
        return state

    def _as_written(self, state: _T, written: Paths) -> tuple[Valid[_T] | None, bool]:
        """The canonical state, if `state` is valid as it is, and whether its keys are also in their order.

        None if it is not valid, or if validation must look closer.
        """
        try:
            json = self.encode(state)
            found = self._read(json)
            canonical = self.encode(found)
        except Exception:  # a validator's of what JSON made of it: the closer look tells it, or raises it, in its turn
            return None, False
        if json != canonical and not _same_but_for_order(json, canonical):
            return None, False
        if not all(_same_at(path, state, found) for path in written):
            return None, False  # JSON hid what was written: another class, or text in place of a date
        return Valid(found, canonical), json == canonical

    def _canonical(self, value: object) -> Outcome[Valid[_T], Issues]:
        try:
            state: _T = self._compiled.admitter.validate_python(value, by_alias=False, by_name=True)
            json = self.encode(state)
            found = self._read(json)
            changed = diff(state, found)
        except ValidationError as error:
            return Failure(_unreadable(value) if _is_of_json(error) else _issues_of(error, value))
        except RecursionError:
            return Failure((Issue((), "the value is nested too deeply to be stored"),))
        except PydanticSerializationError as error:
            return Failure(_not_unicode(value) or (Issue((), f"the value cannot be written as JSON: {error}"),))
        if changed:
            return Failure(_not_unicode(value) or tuple(Issue(path, _UNSTABLE) for path in changed))
        if narrowed := tuple(_narrowed(each) for each in differences(value, found) if each.is_narrowed):
            return Failure(narrowed)
        return Success(Valid(found, json))


def _is_of_json(error: ValidationError) -> bool:
    """Whether the document that was just written cannot be read at all, whatever the type asks for."""
    errors = error.errors(include_url=False, include_input=False)
    return any(each["type"] == "json_invalid" and not each["loc"] for each in errors)


def _unreadable(value: object) -> Issues:
    """Why the JSON of a value cannot be read: JSON sets a limit to the digits of a number, and to nesting."""
    long = tuple(Issue(path, _TOO_LONG) for path in _long_numbers(value, ()))
    return long or (Issue((), "the value is nested too deeply to be stored"),)


def _long_numbers(value: object, path: Path) -> Iterator[Path]:
    if isinstance(value, int) and value.bit_length() > LONGEST_BITS:
        yield path
    for segments, part in items_of(value):
        yield from _long_numbers(part, (*path, *segments))


LONGEST_BITS: Final = 14_283
"""A whole number of more bits may have more than 4,300 digits, which the parser of JSON refuses."""

_TOO_LONG: Final = "a whole number of more than 4,300 digits cannot be stored; store its text"
_NOT_UNICODE: Final = "the text holds half of a surrogate pair, which is not valid Unicode"
_UNSTABLE: Final = "it would be read back as another value: a validator must give back unchanged what it gave before"


def _narrowed(found: Difference) -> Issue:
    """That a value is of a class of which the type knows only the base: what it holds beyond that would be lost."""
    given, kept = type(found.given).__name__, type(found.kept).__name__
    lost = ", ".join(own_fields(found.given, found.kept))
    without = f", without {lost}" if lost else ""
    message = f"a {given} cannot stand for a {kept}: it would be read back as a {kept}{without}; store a {kept}"
    return Issue(found.path, f"{message}, or name {given} in the type")


def _issues_of(error: ValidationError, value: object) -> Issues:
    """Pydantic's errors as ours. What a validator of the user's raised is told in the user's words alone."""
    issues: list[Issue] = []
    for each in error.errors(include_url=False, include_input=False):
        raised: object = each.get("ctx", {}).get("error")
        message = str(raised) if isinstance(raised, Exception) else each["msg"]
        issues.append(Issue(_path_in(value, each["loc"], missing=each["type"] == "missing"), message))
    return tuple(issues)


def _path_in(value: object, location: Path, *, missing: bool) -> Path:
    """Pydantic's location as a path in `value`: without the names of members of unions, which it puts in between."""
    path: list[str | int] = []
    for at, segment in enumerate(location):
        part = part_of(value, segment)
        if part is not NO_PART:
            path.append(key_text(segment) if is_dict(value) else segment)
            value = part
        elif missing and at == len(location) - 1:
            path.append(segment)
    return tuple(path)


def _parsed(json: bytes) -> object:
    try:
        return msgspec.json.decode(json)
    except (msgspec.DecodeError, RecursionError):
        return None


def _not_unicode(value: object) -> Issues:
    return tuple(Issue(path, _NOT_UNICODE) for path in _not_unicode_at(value, ()))


def _not_unicode_at(value: object, path: Path) -> Iterator[Path]:
    """Where in a value, or in a key of it, text is that UTF-8 cannot hold."""
    if isinstance(value, str) and not _is_unicode(value):
        yield path
    for segments, part in items_of(value):
        if not all(_is_unicode(segment) for segment in segments if isinstance(segment, str)):
            yield path
        yield from _not_unicode_at(part, (*path, *segments))


def _is_unicode(text: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _same_but_for_order(one: bytes, other: bytes) -> bool:
    """Whether two documents differ only in the order of keys, as where an optional key was added to a TypedDict."""
    return len(one) == len(other) and _in_order(one) == _in_order(other)


def _in_order(json: bytes) -> bytes:
    return msgspec.json.encode(msgspec.json.decode(json), order="deterministic")


def _same_at(path: Path, one: object, other: object) -> bool:
    for segment in path:
        if segment is SHAPE:
            one, other = root_of(one), root_of(other)
            return not is_dict(one) or (is_dict(other) and {*map(type, one)} == {*map(type, other)})
        one, other = part_of(one, segment), part_of(other, segment)
    return same(one, other)
