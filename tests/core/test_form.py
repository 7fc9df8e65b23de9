"""States that an earlier form of their type wrote are read by way of upcasters, and written anew by the next change."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, JsonValue

from stepwell.core.batch import Commit, CreateStore, Document, Form, PatchStore, Receipt
from stepwell.core.damage import caught_up
from stepwell.core.form import admit_upcasters, admit_version
from stepwell.core.held import Held
from stepwell.core.kind import is_tuple
from stepwell.core.look import decide_look
from stepwell.core.model import InvalidState, Issue, Replace, Revision, StepId, StoreKey, Unmatched
from stepwell.core.operation import Create, Operation, Take, Update, UpdateFrom
from stepwell.core.outcome import Outcome, Success
from stepwell.core.patch import replay_json
from stepwell.core.schema import StateSchema

_A = TypeVar("_A")
_E = TypeVar("_E")

KEY = StoreKey("people", "p")
STEP = StepId("run", "key")
TIP = Revision("i-1", 3)
NEXT = Revision("i-1", 4)


class Name(BaseModel):
    """The first form."""

    name: str = ""


class Person(BaseModel):
    """The third: a name of two parts, and an age in years."""

    first: str
    last: str
    age: int | None = None


def split(old: dict[str, Any]) -> object:
    first, _, last = old["name"].partition(" ")
    return {"first": first, "last": last}


def in_months(old: dict[str, Any]) -> object:
    old["age"] = old.pop("months", 0) // 12
    return old


V1 = StateSchema(Name)
V3 = StateSchema(Person, version=3, upcasters={1: split, 2: in_months})
OLD = b'{"name":"Ada Lovelace"}'
MIDDLE = b'{"first":"Ada","last":"Lovelace","months":434}'
ADA = Person(first="Ada", last="Lovelace", age=0)
V2_FORM = Form(2, "0000000000000002")


def held_in(document: bytes, form: Form | None, revision: Revision = TIP) -> Held:
    return Held(revision, len(document), stored=document, form=form)


def gives(value: object) -> Callable[[object], object]:
    """An upcaster that makes of anything this value."""
    return lambda _: value


def same(old: object) -> object:
    return old


def message_of(outcome: Outcome[_A, _E]) -> str:
    """The first issue, which says what to do; it is of the whole state."""
    failed: object = outcome.failure()
    issues: object = failed.issues if isinstance(failed, InvalidState) else failed
    assert is_tuple(issues)
    first = issues[0]
    assert isinstance(first, Issue)
    assert first.path == ()
    return first.message


def rename(person: Person) -> None:
    person.last = "King"


def never(state: object) -> Any:
    raise AssertionError(f"nothing may run on {state!r}")


def never_claimed(state: object, selected: object) -> None:
    raise AssertionError(f"nothing may run on {state!r} and {selected!r}")


# --- reading ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("document", "form", "state"),
    [
        (OLD, V1.form, ADA),
        (OLD, None, ADA),  # before forms were kept there was one version
        (OLD, Form(1, "another"), ADA),
        (MIDDLE, V2_FORM, Person(first="Ada", last="Lovelace", age=36)),
        (b'{"first":"A","last":"L"}', V3.form, Person(first="A", last="L")),
        (b'{"first":"A","last":"L","gone":1}', Form(3, "another"), Person(first="A", last="L")),
    ],
)
def test_a_document_is_read_in_the_form_in_which_it_was_written(
    document: bytes, form: Form | None, state: Person
) -> None:
    held = held_in(document, form)
    assert held.read(V3) == Success(state)
    assert held.read(V3) == Success(state), "it is read once, and then held decoded"
    assert (held.document(), held.form) == (document, form), "reading changes nothing that is stored"


def test_each_upcaster_gets_a_value_of_its_own() -> None:
    seen: list[object] = []

    def look(old: object) -> object:
        seen.append(old)
        return {"name": "a"}

    schema = StateSchema(Name, version=2, upcasters={1: look})
    held = held_in(OLD, None)
    assert held.read(schema) == Success(Name(name="a"))
    assert seen == [json.loads(OLD)]
    held.read(schema)
    assert len(seen) == 1


def test_what_a_type_of_the_same_version_refuses_says_how_to_go_on() -> None:
    schema = StateSchema(Person)
    read = held_in(OLD, V1.form).read(schema)
    assert message_of(read) == (
        "the state was written by another form of its type "
        f"(fingerprint {V1.form.fingerprint}, and this one has {schema.form.fingerprint}): let define_store have "
        "version=2 and upcasters={1: ...}, a function that makes the JSON value of the old state into that of the new "
        "one"
    )
    assert [issue.path for issue in read.failure()] == [(), ("first",), ("last",)]
    assert "(fingerprint an unknown one, and" in message_of(held_in(OLD, None).read(schema))


def test_what_the_very_form_refuses_is_told_alone() -> None:
    """Damage, or a validator that changed under its name."""
    read = held_in(b'{"name":1}', V1.form).read(V1)
    assert [issue.path for issue in read.failure()] == [("name",)]


def test_a_missing_upcaster_is_named() -> None:
    schema = StateSchema(Person, version=3, upcasters={1: split})
    assert message_of(held_in(OLD, V1.form).read(schema)) == (
        "the state was written in version 1 of its type, and nothing leads from version 2 to 3: give define_store "
        "upcasters={2: ...}, a function that makes the JSON value of the old state into that of the new one; if there "
        "is nothing to change, give upcasters={2: lambda state: state}"
    )
    assert isinstance(held_in(b'{"first":"A","last":"L"}', schema.form).read(schema), Success)


def test_a_newer_version_is_left_alone() -> None:
    assert message_of(held_in(b'{"name":"new"}', Form(3, "f")).read(V1)) == (
        "the state was written by a newer program, in version 3 of its type, and this one knows versions up to 1: run "
        "the newer program, which knows how to read it"
    )


def test_what_upcasters_make_must_fit() -> None:
    schema = StateSchema(Person, version=2, upcasters={1: gives({"first": "A"})})
    read = held_in(OLD, V1.form).read(schema)
    assert message_of(read) == (
        "the state was written in version 1 of its type, and what the upcasters made of it is no state of version 2, "
        "as the following issues say; the stored state is as it was"
    )
    assert [issue.path for issue in read.failure()] == [(), ("last",)]


async def waits(old: object) -> object:
    return old


def hidden(old: object) -> object:
    """It is async, and does not look it."""
    return waits(old)


def fails(old: dict[str, Any]) -> object:
    return old["nowhere"]


def says_nothing(_: object) -> object:
    raise ValueError


RAISED: dict[str, tuple[Callable[..., object], str]] = {
    "it raises": (fails, "raised KeyError: 'nowhere'; the stored state is as it was"),
    "it raises without a word": (says_nothing, "raised ValueError; the stored state is as it was"),
    "a set": (gives({1}), "raised TypeError: what upcasters[1] gave is a set, which is not JSON; the"),
    "a model": (gives(ADA), "raised TypeError: what upcasters[1] gave is a Person, which is not JSON; the"),
    "a tuple within": (gives({"a": [()]}), "raised TypeError: what upcasters[1] gave['a'][0] is a tuple, which"),
    "a number as a key": (gives({1: 2}), "raised TypeError: what upcasters[1] gave has the key 1, a int"),
    "no number": (gives(float("nan")), "raised TypeError: what upcasters[1] gave is nan, which JSON cannot hold"),
    "it is async": (hidden, "raised TypeError: what upcasters[1] gave is a coroutine, which is not"),
}


@pytest.mark.parametrize("name", RAISED)
def test_a_bug_in_an_upcaster_is_an_issue_and_destroys_nothing(name: str) -> None:
    upcaster, message = RAISED[name]
    schema = StateSchema(Name, version=2, upcasters={1: upcaster})
    held = held_in(OLD, V1.form)
    assert message_of(held.read(schema)).startswith(
        "the state was written in version 1 of its type, and upcasters[1], which leads to version 2, " + message
    )
    assert (held.document(), held.form, held.decoded) == (OLD, V1.form, None)
    planned = Update(KEY, schema, never).plan(held)
    assert isinstance(planned.outcome.failure(), InvalidState)
    assert not planned.batch.writes
    assert planned.held is held


def test_what_ends_more_than_a_call_is_passed_on() -> None:
    def leave(_: object) -> object:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        held_in(OLD, V1.form).read(StateSchema(Name, version=2, upcasters={1: leave}))


TEXT = st.text(st.characters(exclude_categories=["Cs"]))
ATOMS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT


@given(st.recursive(ATOMS, lambda part: st.lists(part) | st.dictionaries(TEXT, part)))
def test_what_an_upcaster_passes_on_is_what_was_there(value: Any) -> None:
    schema: StateSchema[JsonValue] = StateSchema(JsonValue, version=2, upcasters={1: same})
    document = schema.encode(value)
    state = held_in(document, V1.form).read(schema).unwrap()
    assert schema.encode(state) == document


# --- changing -----------------------------------------------------------------------


@pytest.mark.parametrize("document", [OLD, MIDDLE])
def test_the_first_change_writes_the_new_form_and_the_whole_difference(document: bytes) -> None:
    form = V1.form if document == OLD else V2_FORM
    operations: list[Operation[Any, Any]] = [
        Update(KEY, V3, rename, STEP),
        UpdateFrom(KEY, V3, TIP, rename),
        Take(KEY, V3, lambda person: person.first, lambda person, _: rename(person)),
        Update(KEY, V3, lambda person: Replace(Person(first=person.first, last="King", age=person.age))),
    ]
    for operation in operations:
        held = held_in(document, form)
        planned = operation.plan(held)
        write = planned.batch.writes[0]
        assert isinstance(write, PatchStore)
        assert write.form == V3.form
        after = V3.decode(replay_json(document, [write.patch])).unwrap()
        assert (after.first, after.last) == ("Ada", "King")
        assert write.changed is not None
        assert {path[0] for path in write.changed} >= {"last", *({"name", "first"} if document == OLD else {"months"})}
        then = planned.held
        assert then is not None
        assert (then.form, then.stored) == (V3.form, None)
        assert V3.decode(then.document()) == Success(after)
        again = Update(KEY, V3, lambda person: setattr(person, "age", 40)).plan(then)
        (second,) = again.batch.writes
        assert isinstance(second, PatchStore)
        assert (second.form, second.changed) == (None, (("age",),)), "from then on it is as ever"
        assert (held.document(), held.form) == (document, form)


def write_the_same(person: Person) -> None:
    person.first = "Ada"


@pytest.mark.parametrize("form", [V1.form, None])
def test_a_change_that_changes_nothing_writes_the_form_of_a_newer_version(form: Form | None) -> None:
    operations: list[Operation[Any, Any]] = [
        Update(KEY, V3, lambda _: None, STEP),
        UpdateFrom(KEY, V3, TIP, Replace),
        Update(KEY, V3, write_the_same),
        Take(KEY, V3, lambda person: person.first, lambda _, __: None),
    ]
    for operation in operations:
        planned = operation.plan(held_in(OLD, form))
        write = planned.batch.writes[0]
        assert isinstance(write, PatchStore)
        document = replay_json(OLD, [write.patch])
        assert (write.form, V3.decode(document)) == (V3.form, Success(ADA))
        assert write.changed is not None
        assert {path[0] for path in write.changed} >= {"name", "first", "last"}
        then = planned.held
        assert then is not None
        assert (then.document(), then.form) == (document, V3.form)
        (second,) = Update(KEY, V3, lambda _: None).plan(then).batch.writes
        assert isinstance(second, PatchStore)
        assert (second.form, second.changed) == (None, ()), "once is enough"


def test_a_newer_version_that_changes_no_document_is_written_as_a_form_alone() -> None:
    schema = StateSchema(Name, version=2, upcasters={1: same})
    planned = Update(KEY, schema, lambda _: None).plan(held_in(OLD, V1.form))
    (write,) = planned.batch.writes
    assert isinstance(write, PatchStore)
    assert (write.form, write.changed, replay_json(OLD, [write.patch])) == (schema.form, (), OLD)
    assert planned.held is not None
    assert planned.held.form == schema.form


def test_a_change_that_changes_nothing_leaves_another_form_of_the_same_version() -> None:
    """Neither is the older one, and the other may know a field that this one would drop."""
    updaters: tuple[Callable[[Person], Replace[Person] | None], ...] = (lambda _: None, Replace, write_the_same)
    other = Form(3, "f")
    document = b'{"last":"Lovelace","first":"Ada","more":1}'
    for updater in updaters:
        planned = Update(KEY, V3, updater).plan(held_in(document, other))
        (write,) = planned.batch.writes
        assert isinstance(write, PatchStore)
        assert (write.form, write.changed, replay_json(document, [write.patch])) == (None, (), document)
        then = planned.held
        assert then is not None
        assert (then.document(), then.form) == (document, other)


def test_a_change_back_to_the_bytes_of_the_old_document_is_one_of_form() -> None:
    """Twice 1 is 2 in the new form; 1 in the new form is no longer what 1 was in the old one."""

    def double(old: dict[str, int]) -> object:
        return {key: 2 * n for key, n in old.items()}

    doubled = StateSchema(dict[str, int], version=2, upcasters={1: double})
    planned = Update(KEY, doubled, lambda state: state.update(n=1)).plan(held_in(b'{"n":1}', Form(1, "f")))
    (write,) = planned.batch.writes
    assert isinstance(write, PatchStore)
    assert (write.form, write.changed) == (doubled.form, (("n",),))
    then = planned.held
    assert then is not None
    assert (then.form, then.read(doubled).unwrap()) == (doubled.form, {"n": 1})
    stored = held_in(replay_json(b'{"n":1}', [write.patch]), write.form)
    assert stored.read(doubled).unwrap() == {"n": 1}


def test_a_creation_names_its_form() -> None:
    planned = Create(KEY, V3, ADA, "i-9").plan(None)
    (write,) = planned.batch.writes
    assert isinstance(write, CreateStore)
    assert write.form == V3.form
    assert planned.held is not None
    assert planned.held.form == V3.form


def test_a_field_with_a_default_needs_no_version() -> None:
    class More(BaseModel):
        name: str = ""
        nick: str = "none"

    schema = StateSchema(More)
    held = held_in(OLD, V1.form)
    planned = Update(KEY, schema, lambda state: setattr(state, "name", "Ada")).plan(held)
    (write,) = planned.batch.writes
    assert isinstance(write, PatchStore)
    assert write.form == schema.form != V1.form
    assert json.loads(replay_json(OLD, [write.patch])) == {"name": "Ada", "nick": "none"}


def test_an_older_program_changes_nothing_that_a_newer_one_wrote() -> None:
    held = held_in(b'{"first":"Ada","last":"Lovelace","age":null,"name":"it would fit"}', V3.form)
    for operation in (
        Update(KEY, V1, never),
        Update(KEY, V1, lambda _: Replace(Name())),
        UpdateFrom(KEY, V1, TIP, never),
        Take(KEY, V1, never, never_claimed),
        Create(KEY, V1, Name(), "i-9"),
    ):
        planned = operation.plan(held)
        assert "written by a newer program" in message_of(planned.outcome)
        assert not planned.batch.writes
    assert "written by a newer program" in message_of(decide_look(KEY, V1, held, never))


@pytest.mark.parametrize(("document", "form"), [(OLD, V1.form), (OLD, None), (MIDDLE, V2_FORM)])
def test_a_look_at_another_version_reads_the_whole(document: bytes, form: Form | None) -> None:
    """Whoever still writes that version names other paths."""
    held = held_in(document, form)
    assert decide_look(KEY, V3, held, lambda person: person.last).unwrap().read_paths == ((),)
    missed = Take(KEY, V3, nobody, never_claimed).plan(held).outcome.failure()
    assert isinstance(missed, Unmatched)
    assert missed.read_paths == ((),)


def test_a_look_at_its_own_version_reads_what_it_read() -> None:
    for form in (V3.form, Form(3, "another")):
        held = held_in(b'{"first":"A","last":"L"}', form)
        assert decide_look(KEY, V3, held, lambda person: person.last).unwrap().read_paths == (("last",),)
        missed = Take(KEY, V3, nobody, never_claimed).plan(held).outcome.failure()
        assert isinstance(missed, Unmatched)
        assert missed.read_paths == (("first",),)


def nobody(person: Person) -> str | None:
    return person.first if person.first == "nobody" else None


# --- what others committed ----------------------------------------------------------


def committed(form: Form | None, *, then: tuple[Form | None, ...] = ()) -> list[Commit]:
    """A change of an old state by a program of the third version, and changes of nothing after it."""
    renamed = Update(KEY, V3, rename).plan(held_in(OLD, V1.form))
    write = renamed.batch.writes[0]
    assert isinstance(write, PatchStore)
    nothing = Update(KEY, V3, lambda _: None).plan(renamed.held).batch.writes[0]
    assert isinstance(nothing, PatchStore)
    later = [Commit(Revision("i-1", 5 + at), nothing.patch, each) for at, each in enumerate(then)]
    return [Commit(NEXT, write.patch, form), *later]


@pytest.mark.parametrize("reads_before", [False, True])
@pytest.mark.parametrize("then", [(), (None,), (None, None)])
def test_catching_up_learns_the_form(reads_before: bool, then: tuple[Form | None, ...]) -> None:
    made = Create(KEY, V1, Name(name="Ada Lovelace"), "i-1").plan(None).held
    assert made is not None
    held = held_in(OLD, V1.form) if not reads_before else msgspec.structs.replace(made, revision=TIP)
    caught = caught_up(KEY, held, committed(V3.form, then=then)).unwrap()
    assert caught is not None
    assert (caught.form, caught.revision.version) == (V3.form, 4 + len(then))
    assert caught.read(V3).unwrap().last == "King"
    assert "written by a newer program" in message_of(caught.read(V1))


def test_catching_up_within_a_form_goes_on_decoded() -> None:
    held = msgspec.structs.replace(made_in_v3(), revision=TIP)
    write = Update(KEY, V3, rename).plan(held).batch.writes[0]
    assert isinstance(write, PatchStore)
    assert write.form is None
    caught = caught_up(KEY, held, [Commit(NEXT, write.patch)]).unwrap()
    assert caught is not None
    assert (caught.form, caught.stored) == (V3.form, None)
    assert caught.decoded is not None


def made_in_v3() -> Held:
    made = Create(KEY, V3, ADA, "i-1").plan(None).held
    assert made is not None
    return made


def test_a_receipt_is_answered_in_todays_form() -> None:
    receipt = Receipt(KEY, STEP, "update", TIP)
    updated = Update(KEY, V3, never, STEP).answer(receipt, held_in(OLD, V1.form)).unwrap()
    assert (updated.state, updated.revision, updated.previous_version) == (ADA, TIP, 2)
    refused = Update(KEY, V1, never, STEP).answer(receipt, held_in(MIDDLE, V2_FORM))
    assert "written by a newer program" in message_of(refused)


def test_documents_and_commits_name_no_form_where_none_was_kept() -> None:
    assert (Document(TIP, 1, b"{}").form, Commit(TIP, b"[]").form, PatchStore(KEY, TIP, b"[]").form) == (None,) * 3


# --- definitions --------------------------------------------------------------------


@pytest.mark.parametrize("version", [True, 1.0, "1", None])
def test_a_version_is_a_whole_number(version: object) -> None:
    with pytest.raises(TypeError, match="is no whole number: the first form of a type is version 1"):
        admit_version(version)


@pytest.mark.parametrize("version", [0, -1])
def test_a_version_is_positive(version: int) -> None:
    with pytest.raises(ValueError, match="is not positive: the first form of a type is version 1"):
        admit_version(version)


WRONG: dict[str, tuple[int, object, type[Exception], str]] = {
    "a list": (2, [split], TypeError, r"is no dict: write upcasters=\{1: function\}"),
    "a function": (2, split, TypeError, r"is no dict: write upcasters=\{1: function\}"),
    "text as a key": (2, {"1": split}, TypeError, "has the key '1': a key is the version that the function begins"),
    "True as a key": (2, {True: split}, TypeError, "has the key True: a key is the version that the function begins"),
    "zero": (2, {0: split}, ValueError, "give version=2 or more, or leave the function out"),
    "its own version": (2, {2: split}, ValueError, "the key 2, and version is 2: .* give version=3 or more"),
    "no version": (1, {1: split}, ValueError, "the key 1, and version is 1: .* give version=2 or more"),
    "no function": (2, {1: "split"}, TypeError, r"upcasters\[1\] is a function, not 'split'"),
    "async": (2, {1: waits}, TypeError, r"upcasters\[1\] is async"),
}


@pytest.mark.parametrize("name", WRONG)
def test_upcasters_that_cannot_be(name: str) -> None:
    version, upcasters, error, message = WRONG[name]
    with pytest.raises(error, match=message):
        admit_upcasters(version, upcasters)


@pytest.mark.parametrize("upcasters", [None, {}, {1: split}, {2: split}, {1: split, 2: split}])
def test_upcasters_may_have_gaps_and_are_kept_as_given(upcasters: Mapping[int, Callable[..., object]] | None) -> None:
    given_ones = {} if upcasters is None else {**upcasters}
    admitted = admit_upcasters(3, upcasters)
    assert {**admitted} == given_ones
    if isinstance(upcasters, dict):
        upcasters.clear()
        assert {**admitted} == given_ones
