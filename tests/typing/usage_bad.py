"""Mistakes that both checkers must report. Each is marked for both; strict mode reports a mark that is idle.

Nothing here runs: `make check` reads it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import punq
from pydantic import BaseModel

import stepwell
from stepwell import (
    Boundary,
    Clock,
    Command,
    Conflict,
    Effect,
    Engine,
    Env,
    Failure,
    Ids,
    InvalidState,
    Layer,
    Ledger,
    Outcome,
    Replace,
    Revision,
    Run,
    Snapshot,
    StepSandbox,
    Store,
    StoreNotFound,
    Success,
    WakeBus,
    Workspace,
    build,
    define_store,
    get,
    provide,
    provides,
    workflow,
)
from stepwell.layers import clock, engine, ids, ledger, step_sandbox, store, waiters, wake_bus


class Item(BaseModel):
    sku: str


class Order(BaseModel):
    status: Literal["new", "approved"] = "new"
    items: list[Item] = []


class Other(BaseModel):
    name: str = ""


orders = define_store("orders", Order)
counters = define_store("counters", dict[str, int])


def free(order: Order) -> Item | None:
    return order.items[0]


def claim(order: Order, item: Item) -> None: ...
def wrong_claim(order: Order, item: int) -> None: ...


def wrong_selector(other: Other) -> str:
    return other.name


async def async_updater(order: Order) -> None: ...


def returns_text(order: Order) -> str:
    return order.status


async def charge(order_id: str, cents: int, note: str = "") -> bytes:
    return b""


def price(order: Order, *, currency: str) -> int:
    return 1


@workflow
async def fulfil(run: Run, order_id: str, gift: bool = False) -> str:
    return order_id


async def undecorated(run: Run, order_id: str) -> str:
    return order_id


@workflow  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
def not_async(run: Run) -> str:
    return ""


@workflow  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
async def no_run(order_id: str) -> str:
    return order_id


# --- stores -----------------------------------------------------------------


async def stores(s: Store, other: Snapshot[Other]) -> None:
    await s.update(orders, "o", async_updater)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await s.update(orders, "o", returns_text)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await s.update(orders, "o", lambda o: o.items.pop())  # type: ignore[arg-type, return-value]  # pyright: ignore[reportArgumentType]
    await s.update(orders, "o", lambda o: Replace(Other()))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await s.update(orders, "o", lambda o: Replace(1))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await s.update(counters, "c", lambda c: Replace({"a": "b"}))  # type: ignore[dict-item]  # pyright: ignore[reportArgumentType]
    await s.update(counters, "c", lambda c: c.setdefault("a", 1))  # type: ignore[arg-type, return-value]  # pyright: ignore[reportArgumentType]
    await s.update(orders, "o", lambda o: o.itemz.clear())  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownLambdaType, reportUnknownMemberType]
    await s.update(orders, 3, lambda o: None)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await s.update("orders", "o", lambda o: None)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await s.update_from(orders, "o", other, lambda o: None)  # type: ignore[misc]  # pyright: ignore[reportArgumentType]
    await s.update_from(orders, "o", 3, lambda o: None)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await s.get_or_create(orders, "o", Other())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await s.get_or_create(orders, "o", Other)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await s.get_or_create(counters, "c", {"a": "b"})  # type: ignore[dict-item]  # pyright: ignore[reportArgumentType]
    await s.take(orders, "o", free, wrong_claim)  # type: ignore[misc]  # pyright: ignore[reportArgumentType]
    await s.take(orders, "o", wrong_selector, claim)  # type: ignore[arg-type, misc]  # pyright: ignore[reportArgumentType]
    await s.handle(orders, "o").when(wrong_selector)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await s.handle(orders, "o").when(lambda o: o.nope)  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownLambdaType, reportUnknownMemberType]
    await s.handle(orders, "o").take(free, wrong_claim)  # type: ignore[misc]  # pyright: ignore[reportArgumentType]
    await s.handle(orders, "o").update(async_updater)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def missing_a_class(outcome: Outcome[int, Conflict | StoreNotFound | InvalidState]) -> None:
    match outcome:
        case Success():
            pass
        case Failure(failure):
            match failure:  # type: ignore[exhaustive-match]  # pyright: ignore[reportMatchNotExhaustive]
                case Conflict():
                    pass
                case StoreNotFound():
                    pass


def missing_failure(outcome: Outcome[int, Conflict]) -> None:
    match outcome:  # type: ignore[exhaustive-match]  # pyright: ignore[reportMatchNotExhaustive]
        case Success(n):
            print(n)


def missing_success(outcome: Outcome[int, Conflict]) -> None:
    match outcome:  # type: ignore[exhaustive-match]  # pyright: ignore[reportMatchNotExhaustive]
        case Failure(_):
            return


async def not_passed_on(s: Store) -> Outcome[int, StoreNotFound]:
    found = await s.get(orders, "o")
    if isinstance(found, Failure):
        return found  # type: ignore[return-value]  # pyright: ignore[reportReturnType]
    return Success(found.unwrap().version)


def frozen(revision: Revision, snapshot: Snapshot[Order]) -> None:
    revision.version = 3  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]
    snapshot.version = 3  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]
    Conflict(revision)  # type: ignore[arg-type, call-arg]  # pyright: ignore[reportCallIssue]


# --- workflows --------------------------------------------------------------


async def steps(run: Run) -> None:
    await run.step("k", charge, 1, 100)  # type: ignore[arg-type, call-arg]  # pyright: ignore[reportArgumentType, reportCallIssue]
    await run.step("k", charge, "o")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]
    await run.step("k", charge, "o", "100")  # type: ignore[arg-type, call-arg]  # pyright: ignore[reportArgumentType, reportCallIssue]
    await run.step("k", charge, "o", 100, "n", 4)  # type: ignore[arg-type, call-arg]  # pyright: ignore[reportArgumentType, reportCallIssue]
    await run.step("k", charge, "o", cents=100)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
    await run.step("k", price, Order())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]
    await run.step("k", charge, "o", 1, retry=3)  # type: ignore[call-arg, call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
    await run.step("k", charge, "o", 1, mode="exactly_once")  # type: ignore[call-arg, call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
    await run.defer("k", charge, 1, 1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await run.signal("s", 3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    run.store("orders")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    order = run.store(orders)
    await order.update("k", async_updater)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await order.update("k", returns_text)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await order.when("k", wrong_selector)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await order.take("k", free, wrong_claim)  # type: ignore[misc]  # pyright: ignore[reportArgumentType]
    await order.take_now("k", wrong_selector, claim)  # type: ignore[arg-type, misc]  # pyright: ignore[reportArgumentType]


async def starts(e: Engine) -> None:
    await e.start(fulfil, 1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await e.start(fulfil)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await e.start(fulfil, "o", "yes")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await e.start(fulfil, "o", True, 3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await e.start(fulfil, "o", gift=True)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    await e.start(undecorated, "o")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await e.start("fulfil", "o")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await e.runs(state="done")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    async with stepwell.open("app.db", workflows=[undecorated]) as app:  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]
        await app.start(fulfil, 1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        app.store("orders", "o")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    async with stepwell.open(3):  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        pass


# --- sandbox ----------------------------------------------------------------


def needs_text(text: str) -> None: ...


async def sandboxed(sandbox: StepSandbox) -> None:
    Boundary(mode="soft")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    Boundary(reads=3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    Command()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    Command(["true"], env=["A=1"])  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    Command(["true"], stdin="text")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    Effect()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    step_sandbox.layer()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    build(step_sandbox.layer("."))  # type: ignore[misc]  # pyright: ignore[reportArgumentType]
    async with (await sandbox.open()).unwrap() as tx:
        await tx.execute(Boundary(), needs_text)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]
        await tx.execute(Boundary(), 3)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
        await tx.execute("src/**", lambda ws: None)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
        await tx.materialize(3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def works(ws: Workspace) -> None:
    ws.write_bytes("a", "text")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    ws.write_text("a", b"bytes")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    ws.open_binary("a", "rb")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


# --- layers -----------------------------------------------------------------


class Mail:
    """A service of the user's own."""


@provides
def mail(time: Clock, names: Ids) -> Iterator[Mail]:
    yield Mail()


incomplete = store.layer() | waiters.layer()


def layers(env: Env[Store | Clock], container: punq.Container) -> None:
    build(incomplete)  # type: ignore[misc]  # pyright: ignore[reportArgumentType]
    build(ledger.layer("app.db"))  # type: ignore[misc]  # pyright: ignore[reportArgumentType]
    build(ledger.layer("app.db") | store.layer() | ids.layer())  # type: ignore[misc]  # pyright: ignore[reportArgumentType]
    build(ledger.layer_test() | clock.layer_test() | engine.layer())  # type: ignore[misc]  # pyright: ignore[reportArgumentType]
    build((ledger.layer_test() | clock.layer_test()).override(ids.layer_noop()))  # type: ignore[arg-type, misc]  # pyright: ignore[reportArgumentType]
    build(mail | clock.layer())  # type: ignore[misc]  # pyright: ignore[reportArgumentType]
    provide(mail, clock.layer())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    provides(clock.layer)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]
    build((ledger.layer_test() | clock.layer_test()).override(wake_bus.layer_noop()))  # type: ignore[arg-type, misc]  # pyright: ignore[reportArgumentType]
    get(env, WakeBus)  # type: ignore[misc]  # pyright: ignore[reportArgumentType]
    get(env, Ledger)  # type: ignore[misc]  # pyright: ignore[reportArgumentType]
    get(env, Engine)  # type: ignore[misc]  # pyright: ignore[reportArgumentType]
    env.make(3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    wider: Env[Store | Clock | Ids] = env  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
    other: Layer[Mail, Clock] = mail  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
    print(wider, other)
    clock.layer_test(3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    wake_bus.layer_noop(wake=lambda run_id: None)  # type: ignore[arg-type, return-value]  # pyright: ignore[reportArgumentType]
    wake_bus.layer_noop(walk=1)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    container.child()  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
