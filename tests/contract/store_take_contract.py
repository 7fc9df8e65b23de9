"""What every store must do: take what a selector finds, in one commit, once."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Literal

import pytest
from pydantic import BaseModel

from stepwell import (
    InvalidState,
    ReceiptMismatch,
    Revision,
    StepId,
    Store,
    StoreKey,
    StoreNotFound,
    Success,
    Taken,
    TooLarge,
    Unmatched,
    define_store,
)
from stepwell.core.paths import SHAPE, intersect
from stepwell.core.step import VALUE_BYTES
from stepwell.services.store import Lookable

from .ledger_double import Rivalled
from .store_contract import made, messages
from .store_world import Chat, Counted, Message, World, append, chats, failure, success

KEY = StoreKey("chat", "c")
ONE_A, ONE_B = StepId("one", "a"), StepId("one", "b")


class Task(BaseModel):
    name: str
    done: bool = False

    def finish(self) -> None:
        self.done = True


class Board(BaseModel):
    tasks: list[Task] = []


boards = define_store("take.board", Board)


def assign(chat: Chat) -> None:
    chat["unrelated"] = 1


CHANGES: dict[str, Callable[[Chat], object]] = {
    "assign": assign,
    "delete": lambda chat: chat["messages"].__delitem__(0),
    "append": lambda chat: chat["messages"].append({"id": "y"}),
    "sort": lambda chat: chat["messages"].sort(key=str),
    "setdefault": lambda chat: chat["messages"][0].setdefault("claimed_by", "me"),
}
"""What a selector must not do."""


async def with_messages(store: Store, *ids: str) -> Revision:
    """A store that exists now: version 0, with these messages."""
    chat: Chat = {"messages": [{"id": id} for id in ids]}
    return success(await store.get_or_create(chats, "c", chat)).revision


def first_unclaimed(chat: Chat) -> Message | None:
    return next((message for message in chat["messages"] if "claimed_by" not in message), None)


def claim_by(worker: str) -> Callable[[Chat, Message], None]:
    def claim(_: Chat, message: Message) -> None:
        message["claimed_by"] = worker

    return claim


class Counting:
    """A selector and a claim that count their runs."""

    def __init__(self, worker: str) -> None:
        self.selected = self.claimed = 0
        self._claim = claim_by(worker)

    def select(self, chat: Chat) -> Message | None:
        self.selected += 1
        return first_unclaimed(chat)

    def claim(self, chat: Chat, message: Message) -> None:
        self.claimed += 1
        self._claim(chat, message)


async def claims(store: Store) -> dict[str, str | None]:
    state = success(await store.get(chats, "c")).state
    return {message["id"]: message.get("claimed_by") for message in state["messages"]}


class StoreTakeContract:
    # --- receipts -------------------------------------------------------------

    async def test_s22_a_receipt_of_an_update_answers_no_take(self, world: World) -> None:
        store = (await world.client()).store
        await made(store)
        success(await store.update(chats, "c", append("x"), step=ONE_A))
        counting = Counting("me")
        mismatch = failure(await store.take(chats, "c", counting.select, counting.claim, step=ONE_A))
        assert mismatch == ReceiptMismatch(ONE_A, recorded="update", requested="take")
        assert (counting.selected, counting.claimed) == (0, 0)
        assert await messages(store) == (1, ["x"])

    async def test_s23_a_receipt_of_a_take_answers_no_update(self, world: World) -> None:
        store = (await world.client()).store
        await with_messages(store, "msg-1", "msg-2")
        first = success(await store.take(chats, "c", first_unclaimed, claim_by("me"), step=ONE_A))
        updater = Counted(append("y"))
        mismatch = failure(await store.update(chats, "c", updater, step=ONE_A))
        assert mismatch == ReceiptMismatch(ONE_A, recorded="take", requested="update")
        assert updater.runs == 0
        assert success(await store.take(chats, "c", first_unclaimed, claim_by("me"), step=ONE_A)) == first

    async def test_s40_a_step_that_took_gives_what_it_took_and_runs_nothing(self, world: World) -> None:
        store = (await world.client()).store
        await with_messages(store, "msg-1", "msg-2")
        first, other = Counting("exec-1"), Counting("exec-2")
        taken = success(await store.take(chats, "c", first.select, first.claim, step=ONE_A))
        assert (taken.selected, taken.revision.version) == ({"id": "msg-1", "claimed_by": "exec-1"}, 1)
        assert (first.selected, first.claimed) == (1, 1)
        again = success(await store.take(chats, "c", other.select, other.claim, step=ONE_A))
        assert again == taken
        store = (await world.restart()).store
        assert success(await store.take(chats, "c", other.select, other.claim, step=ONE_A)) == taken
        success(await store.delete(chats, "c"))
        assert success(await store.take(chats, "c", other.select, other.claim, step=ONE_A)) == taken
        assert (other.selected, other.claimed) == (0, 0)
        assert isinstance(failure(await store.get(chats, "c")), StoreNotFound)

    async def test_s42_a_miss_is_never_recorded(self, world: World) -> None:
        client = await world.client()
        store = client.store
        await made(store)
        assert isinstance(failure(await store.take(chats, "c", first_unclaimed, claim_by("me"), step=ONE_A)), Unmatched)
        assert success(await client.ledger.receipt(KEY, ONE_A)) is None
        success(await store.update(chats, "c", append("x")))
        second = success(await store.take(chats, "c", first_unclaimed, claim_by("me"), step=ONE_A))
        assert second == Taken({"id": "x", "claimed_by": "me"}, second.revision)
        assert success(await store.take(chats, "c", first_unclaimed, claim_by("other"), step=ONE_A)) == second

    # --- who gets what ----------------------------------------------------------

    async def test_s38_two_steps_at_once_get_two_messages(self, world: World) -> None:
        store = (await world.client()).store
        await with_messages(store, "msg-1", "msg-2")
        results = await asyncio.gather(
            *(store.take(chats, "c", first_unclaimed, claim_by("w"), step=step) for step in (ONE_A, ONE_B))
        )
        taken = [success(result) for result in results]
        assert {each.revision.version for each in taken} == {1, 2}
        assert {each.selected["id"] for each in taken} == {"msg-1", "msg-2"}

    @pytest.mark.parametrize("clients", [1, 2])
    async def test_s39_each_result_shows_its_own_claim(self, world: World, clients: int) -> None:
        stores = [(await world.client()).store for _ in range(clients)]
        await with_messages(stores[0], "msg-1", "msg-2")
        results = await asyncio.gather(
            stores[0].take(chats, "c", first_unclaimed, claim_by("w1"), step=ONE_A),
            stores[-1].take(chats, "c", first_unclaimed, claim_by("w2"), step=ONE_B),
        )
        one, other = (success(result).selected for result in results)
        assert (one.get("claimed_by"), other.get("claimed_by")) == ("w1", "w2")
        assert await claims(stores[0]) == {one["id"]: "w1", other["id"]: "w2"}

    @pytest.mark.parametrize("clients", [1, 2])
    async def test_a_hundred_takers_get_a_hundred_items_each_once(self, world: World, clients: int) -> None:
        stores = [(await world.client()).store for _ in range(clients)]
        ids = [f"msg-{number}" for number in range(100)]
        await with_messages(stores[0], *ids)

        async def taker(number: int) -> tuple[str, int]:
            store = stores[number % clients]
            taken = success(await store.take(chats, "c", first_unclaimed, claim_by(str(number))))
            return taken.selected["id"], taken.revision.version

        taken = await asyncio.gather(*(taker(number) for number in range(100)))
        assert sorted(version for _, version in taken) == list(range(1, 101))
        assert await claims(stores[0]) == {id: str(number) for number, (id, _) in enumerate(taken)}
        assert isinstance(failure(await stores[0].take(chats, "c", first_unclaimed, claim_by("late"))), Unmatched)

    async def test_whoever_is_passed_selects_again(self, world: World) -> None:
        other = (await world.client()).store
        await with_messages(other, "msg-1", "msg-2")
        rivals = iter([claim_by("rival")])

        async def rival() -> None:
            for claim in rivals:
                success(await other.take(chats, "c", first_unclaimed, claim))

        store = (await world.client(around=lambda ledger: Rivalled(ledger, rival))).store
        taken = success(await store.take(chats, "c", first_unclaimed, claim_by("me")))
        assert (taken.selected["id"], taken.revision.version) == ("msg-2", 2)

    async def test_a_miss_is_true_of_the_state_in_force(self, world: World) -> None:
        store, other = [(await world.client()).store for _ in range(2)]
        await made(store)
        success(await other.update(chats, "c", append("x")))  # which the first client has not seen
        assert success(await store.take(chats, "c", first_unclaimed, claim_by("me"))).selected["id"] == "x"
        success(await other.update(chats, "c", lambda chat: chat["messages"].clear()))
        unmatched = failure(await store.take(chats, "c", first_unclaimed, claim_by("me")))
        assert isinstance(unmatched, Unmatched)
        assert unmatched.revision.version == 3

    # --- match and miss -----------------------------------------------------------

    async def test_s41_a_miss_names_the_revision_and_what_was_read(self, world: World) -> None:
        client = await world.client()
        revision = (await made(client.store)).revision
        unmatched = failure(await client.store.take(chats, "c", first_unclaimed, claim_by("me"), step=ONE_A))
        assert isinstance(unmatched, Unmatched)
        assert unmatched.revision == revision
        assert intersect(unmatched.read_paths, [("messages", 0), ("messages", SHAPE)])
        assert not intersect(unmatched.read_paths, [("unrelated",)])
        assert await messages(client.store) == (0, [])
        assert success(await client.ledger.waiters()) == ()

    @pytest.mark.parametrize("value", [0, "", [], {}, True])
    @pytest.mark.parametrize("step", [None, ONE_A])
    async def test_s43_all_but_none_and_false_match(self, world: World, value: object, step: StepId | None) -> None:
        store = (await world.client()).store
        await made(store)

        def select(_: Chat) -> object:
            return value

        def claim(chat: Chat, _: object) -> None:
            chat["unrelated"] = 1

        taken = success(await store.take(chats, "c", select, claim, step=step))
        assert repr(taken.selected) == repr(value)
        assert taken.revision.version == 1
        assert success(await store.get(chats, "c")).state == {"messages": [], "unrelated": 1}

    @pytest.mark.parametrize("value", [None, False])
    async def test_s43_none_and_false_miss(self, world: World, value: Literal[False] | None) -> None:
        store = (await world.client()).store
        await made(store)

        def never(_: Chat, __: object) -> None:
            raise AssertionError("nothing was found")

        def select(_: Chat) -> object:
            return value

        assert isinstance(failure(await store.take(chats, "c", select, never)), Unmatched)
        assert await messages(store) == (0, [])

    async def test_taking_from_what_is_not_there_runs_nothing(self, world: World) -> None:
        store = (await world.client()).store
        counting = Counting("me")
        assert failure(await store.take(chats, "c", counting.select, counting.claim)) == StoreNotFound(KEY)
        assert counting.selected == 0

    # --- what is selected -----------------------------------------------------------

    async def test_s44_what_the_claim_removes_is_what_was_selected(self, world: World) -> None:
        store = (await world.client()).store
        await with_messages(store, "msg-1", "msg-2")
        taken = success(await store.take(chats, "c", first_unclaimed, lambda chat, it: chat["messages"].remove(it)))
        assert taken.selected == {"id": "msg-1"}
        assert await messages(store) == (1, ["msg-2"])

    async def test_s45_elements_of_a_derived_list_are_the_drafts_own(self, world: World) -> None:
        store = (await world.client()).store
        await with_messages(store, "msg-1", "msg-2", "msg-3")

        def others(chat: Chat) -> list[Message]:
            return [message for message in chat["messages"] if message["id"] != "msg-2"]

        def claim(_: Chat, found: list[Message]) -> None:
            for message in found:
                message["claimed_by"] = "me"

        taken = success(await store.take(chats, "c", others, claim, step=ONE_A))
        assert taken.selected == [{"id": "msg-1", "claimed_by": "me"}, {"id": "msg-3", "claimed_by": "me"}]
        assert await claims(store) == {"msg-1": "me", "msg-2": None, "msg-3": "me"}

    async def test_what_was_taken_is_the_callers_own(self, world: World) -> None:
        store = (await world.client()).store
        await with_messages(store, "msg-1", "msg-2")
        for step in (None, ONE_A):
            taken = success(await store.take(chats, "c", first_unclaimed, claim_by("me"), step=step))
            taken.selected["claimed_by"] = "somebody else"
        assert await claims(store) == {"msg-1": "me", "msg-2": "me"}

    async def test_a_model_is_taken_by_its_own_methods(self, world: World) -> None:
        store = (await world.client()).store
        success(await store.get_or_create(boards, "b", Board(tasks=[Task(name="x"), Task(name="y")])))

        def undone(board: Board) -> Task | None:
            return next((task for task in board.tasks if not task.done), None)

        first = success(await store.take(boards, "b", undone, lambda _, task: task.finish(), step=ONE_A))
        assert first.selected == Task(name="x", done=True)
        assert type(first.selected) is Task
        again = success(await store.take(boards, "b", undone, lambda _, task: task.finish(), step=ONE_A))
        assert again == first
        assert type(again.selected) is Task
        second = success(
            await store.take(
                boards,
                "b",
                lambda board: next((task for task in board.tasks if not task.done), None),
                lambda _, task: task.finish(),
            )
        )
        assert second.selected == Task(name="y", done=True)  # without a step nothing has to be kept as JSON

    async def test_with_a_step_a_value_that_cannot_be_kept_is_refused_before_anything_is_written(
        self, world: World
    ) -> None:
        client = await world.client()
        success(await client.store.get_or_create(boards, "b", Board(tasks=[Task(name="x")])))
        with pytest.raises(TypeError, match=r"'a' selected is a Task.*write a def with the type"):
            await client.store.take(boards, "b", lambda b: b.tasks[0], lambda _, task: task.finish(), step=ONE_A)
        snapshot = success(await client.store.get(boards, "b"))
        assert (snapshot.version, snapshot.state.tasks) == (0, [Task(name="x")])
        assert success(await client.ledger.receipt(StoreKey("take.board", "b"), ONE_A)) is None

    async def test_with_a_step_a_value_over_the_limit_is_too_large(self, world: World) -> None:
        store = (await world.client()).store
        await with_messages(store, "msg-1")

        def long(_: Chat) -> str:
            return "x" * VALUE_BYTES

        def claim(chat: Chat, _: str) -> None:
            chat["unrelated"] = 1

        too_large = failure(await store.take(chats, "c", long, claim, step=ONE_A))
        assert too_large == TooLarge("the value that step 'a' selected", VALUE_BYTES + 2, VALUE_BYTES)
        assert await messages(store) == (0, ["msg-1"])
        assert len(success(await store.take(chats, "c", long, claim)).selected) == VALUE_BYTES

    # --- what is refused --------------------------------------------------------------

    async def test_s46_a_claim_that_leaves_no_state_changes_nothing(self, world: World) -> None:
        client = await world.client()
        await with_messages(client.store, "msg-1")
        number: Any = 42
        invalid = failure(await client.store.take(chats, "c", first_unclaimed, claim_by(number), step=ONE_A))
        assert isinstance(invalid, InvalidState)
        assert [issue.path for issue in invalid.issues] == [("messages", 0, "claimed_by")]
        assert await messages(client.store) == (0, ["msg-1"])
        assert await claims(client.store) == {"msg-1": None}
        assert success(await client.ledger.receipt(KEY, ONE_A)) is None

    async def test_a_claim_that_raises_leaves_nothing(self, world: World) -> None:
        client = await world.client()
        await with_messages(client.store, "msg-1")

        def claim(chat: Chat, message: Message) -> None:
            message["claimed_by"] = "me"
            raise RuntimeError("no more")

        with pytest.raises(RuntimeError, match="no more"):
            await client.store.take(chats, "c", first_unclaimed, claim, step=ONE_A)
        assert await claims(client.store) == {"msg-1": None}
        assert await messages(client.store) == (0, ["msg-1"])
        assert success(await client.ledger.receipt(KEY, ONE_A)) is None

    async def test_s50_a_claim_that_is_async_is_refused(self, world: World) -> None:
        store = (await world.client()).store
        await with_messages(store, "msg-1")

        async def async_claim(_: Chat, message: Message) -> None:
            message["claimed_by"] = "me"

        def generator_claim(_: Chat, message: Message) -> Iterator[None]:
            message["claimed_by"] = "me"
            yield

        refused: list[Any] = [async_claim, generator_claim]
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # a coroutine that nobody awaited
            for claim in refused:
                with pytest.raises(TypeError, match="claim"):
                    await store.take(chats, "c", first_unclaimed, claim)
        assert await claims(store) == {"msg-1": None}
        assert await messages(store) == (0, ["msg-1"])

    async def test_s51_a_selector_that_is_async_is_refused(self, world: World) -> None:
        client = await world.client()
        store = client.store
        await with_messages(store, "msg-1")

        async def async_selector(_: Chat) -> bool:
            return True

        def generator_selector(_: Chat) -> Iterator[bool]:
            yield True

        async def both(_: Chat) -> AsyncIterator[bool]:
            yield True

        def awaitable(chat: Chat) -> object:
            return async_selector(chat)

        refused: list[Any] = [async_selector, generator_selector, both, awaitable]
        assert isinstance(store, Lookable)
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # a coroutine that nobody awaited
            for selector in refused:
                with pytest.raises(TypeError, match="selector"):
                    await store.take(chats, "c", selector, claim_by("me"), step=ONE_A)
                with pytest.raises(TypeError, match="selector"):
                    await store.look(chats, "c", selector)
                with pytest.raises(TypeError, match="selector"):
                    await store.handle(chats, "c").when(selector)
        assert await messages(store) == (0, ["msg-1"])
        assert success(await client.ledger.receipt(KEY, ONE_A)) is None
        assert success(await client.ledger.waiters()) == ()

    @pytest.mark.parametrize("change", [pytest.param(change, id=name) for name, change in CHANGES.items()])
    async def test_s58_a_selector_that_changes_the_state_is_refused(
        self, world: World, change: Callable[[Chat], object]
    ) -> None:
        client = await world.client()
        store = client.store
        await with_messages(store, "msg-1")

        def selector(chat: Chat) -> bool:
            change(chat)
            return True

        assert isinstance(store, Lookable)
        for call in (
            store.take(chats, "c", selector, lambda chat, _: None, step=ONE_A),
            store.look(chats, "c", selector),
            store.handle(chats, "c").when(selector),
        ):
            with pytest.raises(TypeError, match="must not change"):
                await call
        snapshot = success(await store.get(chats, "c"))
        assert (snapshot.version, snapshot.state) == (0, {"messages": [{"id": "msg-1"}]})
        assert success(await client.ledger.receipt(KEY, ONE_A)) is None
        assert success(await client.ledger.waiters()) == ()

    # --- looking ------------------------------------------------------------------------

    async def test_a_look_finds_and_reads_without_a_change(self, world: World) -> None:
        store, other = [(await world.client()).store for _ in range(2)]
        assert isinstance(store, Lookable)
        assert failure(await store.look(chats, "c", first_unclaimed)) == StoreNotFound(KEY)
        revision = await with_messages(store, "msg-1")
        looked = success(await store.look(chats, "c", first_unclaimed))
        assert (looked.selected, looked.revision) == ({"id": "msg-1"}, revision)
        assert isinstance(looked.selected, dict)
        looked.selected["claimed_by"] = "mine"  # it is the caller's own
        assert await claims(store) == {"msg-1": None}
        success(await other.take(chats, "c", first_unclaimed, claim_by("other")))
        looked = success(await store.look(chats, "c", first_unclaimed))  # whoever committed it
        assert (looked.selected, looked.revision.version) == (None, 1)
        assert intersect(looked.read_paths, [("messages", 0, "claimed_by")])
        assert not intersect(looked.read_paths, [("unrelated",), ("messages", 0, "processed")])

    # --- cancellation -------------------------------------------------------------------

    async def test_a_cancelled_taker_fails_no_neighbour(self, world: World) -> None:
        """One of three is cancelled after 0, 1, 2 … turns: what it was to get it has got, or another gets it."""
        store = (await world.client()).store
        for point in range(30):
            id = f"c-{point}"
            chat: Chat = {"messages": [{"id": str(number)} for number in range(3)]}
            success(await store.get_or_create(chats, id, chat))
            tasks = [
                asyncio.create_task(store.take(chats, id, first_unclaimed, claim_by(f"w{number}")))
                for number in range(3)
            ]
            for _ in range(point):
                await asyncio.sleep(0)
            tasks[1].cancel()
            await asyncio.wait(tasks)
            got: list[str] = []
            for number, task in enumerate(tasks):
                if task.cancelled():
                    assert number == 1
                    continue
                outcome = task.result()
                assert isinstance(outcome, Success)
                got.append(outcome.unwrap().selected["id"])
            assert len(got) == len(set(got))
            state = success(await store.get(chats, id)).state
            claimed = [message.get("claimed_by") for message in state["messages"]]
            assert claimed.count("w0") == claimed.count("w2") == 1
            assert claimed.count("w1") <= 1
            if not tasks[1].cancelled():
                assert claimed.count("w1") == 1
