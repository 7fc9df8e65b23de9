"""What users of stepwell write. Both checkers must accept every line and agree with every `assert_type`.

Nothing here runs: `make check` reads it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal, TypedDict, assert_type

from pydantic import BaseModel

import stepwell
from stepwell import (
    Accepted,
    AlreadyApplied,
    App,
    Appended,
    ArtifactCorruption,
    ArtifactMissing,
    Artifacts,
    BodyFailed,
    Boundary,
    CacheConflict,
    CacheEntry,
    CacheFold,
    CacheMiss,
    Clock,
    Command,
    CommandOutput,
    Committed,
    Compacted,
    Conflict,
    Contended,
    Cycle,
    Deleted,
    Effect,
    EffectDispatcher,
    Engine,
    Entry,
    Env,
    ExistingSame,
    Explanation,
    Failed,
    Failure,
    Fenced,
    FileChange,
    IdempotencyConflict,
    Ids,
    Inserted,
    InvalidEntry,
    InvalidEvent,
    InvalidSignal,
    InvalidState,
    Journal,
    Layer,
    LayerError,
    Ledger,
    LimitExceeded,
    ManualClock,
    MaterializationConflict,
    Materialized,
    Missing,
    MissingOutput,
    Outcome,
    Projection,
    Rebuilt,
    ReceiptMismatch,
    RecordedRef,
    Registered,
    Replace,
    Retry,
    Revision,
    Run,
    RunCancelled,
    RunEnded,
    RunFailed,
    RunHandle,
    RunMismatch,
    RunNotFound,
    RunStatus,
    RunStore,
    Services,
    Snapshot,
    Source,
    StepCache,
    StepFailed,
    StepId,
    StepSandbox,
    Store,
    StoreDefinition,
    StoreHandle,
    StoreKey,
    StoreNotFound,
    Success,
    SurvivingRemoval,
    Taken,
    Tampered,
    TimedOut,
    TooLarge,
    Unavailable,
    UndeclaredRead,
    UndeclaredWrite,
    Unmatched,
    UnsupportedBoundary,
    Updated,
    Verification,
    Verified,
    Violations,
    Waiter,
    Waiters,
    WakeBus,
    WakeToken,
    Workspace,
    WorkspaceError,
    WorkspaceRefusal,
    WorkspaceTransaction,
    build,
    current_step,
    define_store,
    fresh,
    get,
    provide,
    provides,
    workflow,
)
from stepwell.core import cache_fold as fold
from stepwell.core import draft, patch, paths
from stepwell.layers import app as app_layers
from stepwell.layers import (
    artifacts,
    cache_fold,
    clock,
    engine,
    ids,
    journal,
    ledger,
    step_cache,
    step_sandbox,
    store,
    waiters,
    wake_bus,
)

# --- stores -----------------------------------------------------------------


class Item(BaseModel):
    sku: str
    taken_by: str | None = None


class Order(BaseModel):
    status: Literal["new", "approved", "shipped"] = "new"
    items: list[Item] = []


@dataclass
class Basket:
    owner: str
    skus: list[str] = field(default_factory=list[str])


class Profile(TypedDict):
    name: str
    tags: list[str]


orders = define_store("orders", Order)
baskets = define_store("baskets", Basket)
profiles = define_store("profiles", Profile)
counters = define_store("counters", dict[str, int])
maybe = define_store("maybe", int | None)


def with_tags(old: dict[str, str]) -> dict[str, object]:
    return {**old, "tags": []}


grown = define_store("grown", Profile, version=2, upcasters={1: with_tags})

assert_type(grown, StoreDefinition[Profile])
assert_type(grown.form.version, int)
assert_type(orders, StoreDefinition[Order])
assert_type(profiles, StoreDefinition[Profile])
assert_type(counters, StoreDefinition[dict[str, int]])
assert_type(maybe, StoreDefinition[int | None])


def approve(order: Order) -> None:
    order.status = "approved"


def reset(order: Order) -> Replace[Order] | None:
    if order.status == "shipped":
        return None
    return Replace(Order(items=order.items))


def free(order: Order) -> Item | None:
    return next((item for item in order.items if item.taken_by is None), None)


def claim(order: Order, item: Item) -> None:
    item.taken_by = "me"


async def fetch_order() -> Order:
    return Order()


async def creating(s: Store) -> None:
    assert_type(
        await s.get_or_create(orders, "o-1", Order()),
        Outcome[Snapshot[Order], InvalidState | TooLarge | Unavailable],
    )
    await s.get_or_create(orders, "o-1", Order)
    await s.get_or_create(orders, "o-1", lambda: Order(status="new"))
    await s.get_or_create(orders, "o-1", fetch_order)
    await s.get_or_create(baskets, "b-1", Basket("ann"))
    await s.get_or_create(profiles, "p-1", {"name": "ann", "tags": []})
    await s.get_or_create(profiles, "p-1", lambda: {"name": "ann", "tags": []})
    await s.get_or_create(counters, "c-1", {})
    await s.get_or_create(counters, "c-1", {"a": 1})
    await s.get_or_create(counters, "c-1", dict)
    await s.get_or_create(maybe, "m-1", None)


async def updating(s: Store) -> None:
    assert_type(
        await s.update(orders, "o-1", approve, step=StepId("run", "key")),
        Outcome[Updated[Order], StoreNotFound | InvalidState | Contended | ReceiptMismatch | TooLarge | Unavailable],
    )
    await s.update(orders, "o-1", reset)
    await s.update(orders, "o-1", lambda o: o.items.append(Item(sku="a")))
    await s.update(orders, "o-1", lambda o: setattr(o, "status", "approved"))
    await s.update(orders, "o-1", lambda o: Replace(Order(status="shipped")))
    await s.update(baskets, "b-1", lambda b: b.skus.append("a"))
    await s.update(baskets, "b-1", lambda b: Replace(Basket("ann")))
    await s.update(profiles, "p-1", lambda p: p["tags"].append("a"))
    await s.update(profiles, "p-1", lambda p: p.update({"name": "bob"}))
    await s.update(profiles, "p-1", lambda p: Replace({"name": "bob", "tags": []}))
    await s.update(profiles, "p-1", lambda p: Replace({**p, "name": "bob"}))
    await s.update(counters, "c-1", lambda c: c.update(a=c.get("a", 0) + 1))
    await s.update(counters, "c-1", lambda c: Replace({"a": 1}))
    await s.update(counters, "c-1", lambda c: Replace({}))
    await s.update(maybe, "m-1", lambda n: Replace((n or 0) + 1))


async def conditional(s: Store, snapshot: Snapshot[Order], revision: Revision) -> None:
    assert_type(
        await s.update_from(orders, "o-1", snapshot, approve),
        Outcome[Updated[Order], Conflict | StoreNotFound | InvalidState | ReceiptMismatch | TooLarge | Unavailable],
    )
    await s.update_from(orders, "o-1", revision, lambda o: o.items.clear(), step=StepId("r", "k"))
    assert_type(
        await s.delete_from(orders, "o-1", snapshot),
        Outcome[Deleted, Conflict | StoreNotFound | ReceiptMismatch | TooLarge | Unavailable],
    )
    assert_type(await s.delete(orders, "o-1"), Outcome[None, TooLarge | Unavailable])
    assert_type(await s.list_ids(orders), Outcome[tuple[str, ...], Unavailable])


async def taking(s: Store) -> None:
    taken = await s.take(orders, "o-1", free, claim)
    assert_type(
        taken,
        Outcome[
            Taken[Item],
            Unmatched | StoreNotFound | InvalidState | Contended | ReceiptMismatch | TooLarge | Unavailable,
        ],
    )
    assert_type(taken.unwrap().selected, Item)
    inline = await s.take(orders, "o-1", lambda o: next((i for i in o.items if not i.taken_by), None), claim)
    assert_type(inline.unwrap().selected, Item)
    named = await s.take(orders, "o-1", free, lambda o, item: o.items.remove(item))
    assert_type(named.unwrap().selected, Item)
    await s.take(counters, "c-1", lambda c: next(iter(c), None), lambda c, k: c.update({k: 0}))


async def two_levels(s: Store) -> str:
    match await s.update(orders, "o-1", approve):
        case Success(updated):
            assert_type(updated, Updated[Order])
            return f"{updated.state.status} at {updated.version}, was {updated.previous_version}"
        case Failure(failure):
            match failure:
                case StoreNotFound(key) | InvalidState(key) | Contended(key):
                    assert_type(key, StoreKey)
                    return f"no order: {key.id}"
                case ReceiptMismatch(step, recorded, requested):
                    return f"{step.key}: {recorded}, {requested}"
                case TooLarge(what, size, limit):
                    return f"{what}: {size} > {limit}"
                case Unavailable(reason, applied):
                    assert_type(applied, Literal["no", "unknown"])
                    return reason


async def in_a_flow(s: Store) -> Outcome[int, Conflict | StoreNotFound | InvalidState | TooLarge | str]:
    found = await s.get(orders, "o-1")
    if isinstance(found, Failure):
        error = found.failure()
        return Failure("down") if isinstance(error, Unavailable) else Failure(error)
    snapshot = found.unwrap()
    assert_type(snapshot, Snapshot[Order])
    assert_type(snapshot.state.items, list[Item])
    return Success(snapshot.version)


async def passing_on(s: Store) -> Outcome[str, StoreNotFound | InvalidState | Unavailable | Contended]:
    found = await s.get(profiles, "p-1")
    if isinstance(found, Failure):
        return found
    return Success(found.unwrap().state["name"])


async def handles(s: Store) -> None:
    order = s.handle(orders, "o-1")
    assert_type(order, StoreHandle[Order])
    assert_type(await order.get(), Outcome[Snapshot[Order], StoreNotFound | InvalidState | Unavailable])
    assert_type(await order.get(version=3), Outcome[Snapshot[Order], StoreNotFound | InvalidState | Unavailable])
    assert_type((await s.get(orders, "o-1", version=Revision("i", 1))).unwrap(), Snapshot[Order])
    await order.get_or_create(Order)
    await order.update(lambda o: o.items.clear(), step=StepId("r", "k"))
    await order.update_from((await order.get()).unwrap(), approve)
    await order.take(free, claim)
    await order.delete_from(Revision("i", 1))
    await order.delete()
    assert_type(
        await order.when(lambda o: o.status == "approved", timeout=5),
        Outcome[bool, StoreNotFound | InvalidState | TimedOut | Unavailable],
    )
    assert_type((await order.when(free)).unwrap(), Item)
    assert_type((await order.when(lambda o: o.status == "shipped" and o.items[0])).unwrap(), Item)
    assert_type((await order.when(lambda o: o.items or None)).unwrap(), list[Item])
    basket = s.handle(baskets, "b-1")
    assert_type((await basket.when(lambda b: b.owner or None)).unwrap(), str)
    profile = s.handle(profiles, "p-1")
    assert_type((await profile.when(lambda p: p["tags"] or None)).unwrap(), list[str])
    counter = s.handle(counters, "c-1")
    assert_type((await counter.when(lambda c: c.get("a"))).unwrap(), int)


async def waiting(w: Waiters, key: StoreKey, seen: Revision) -> None:
    waiter = Waiter(key, StepId("run", "approved"), seen, (("status",), ("items", 0, "sku"), ("items", paths.SHAPE)))
    assert_type(await w.register(waiter), Outcome[Registered, TooLarge | Unavailable])
    assert_type(await w.due("run"), Outcome[tuple[Waiter, ...], Unavailable])
    assert_type(await w.waiting(key), Outcome[tuple[Waiter, ...], Unavailable])
    assert_type(await w.acknowledge(waiter), Outcome[bool, Unavailable])
    await w.cancel(key, waiter.step)


def pure() -> None:
    applied = draft.apply(Order(), approve)
    assert_type(applied.state, Order)
    assert_type(applied.changed_paths, tuple[tuple[str | int, ...], ...])
    assert_type(paths.intersect((("items", 0, "sku"), ("items", paths.SHAPE)), applied.changed_paths), bool)
    assert_type(patch.replay(Order(), applied.patch), Order)
    assert_type(draft.apply({"a": 1}, lambda c: c.update(a=2)).state, dict[str, int])
    assert_type(paths.diff(Order(), Order()), tuple[tuple[str | int, ...], ...])


# --- workflows --------------------------------------------------------------


class Decision(BaseModel):
    approved: bool


@dataclass(frozen=True, slots=True)
class Declined:
    reason: str


async def charge(order_id: str, cents: int, note: str = "") -> bytes:
    step = current_step()
    return f"{step.run_id} {step.key} {step.attempt} {step.idempotency_key}".encode()


def price(order: Order, factor: float = 1.0) -> int:
    return 1


def total(amounts: Mapping[str, float], mode: Literal["net", "gross"] = "net", *more: int) -> float:
    return 0.0


async def reserve(order_id: str) -> Outcome[str, Declined]:
    return Success(order_id)


class Mailer:
    async def send(self, to: str, subject: str | None = None) -> None: ...


@workflow
async def fulfil(run: Run, order_id: str, gift: bool = False) -> str:
    assert_type(run.id, str)
    assert_type(run.suspending, bool)
    assert_type(await run.step("charge", charge, order_id, 100), bytes)
    assert_type(await run.step("charge-2", charge, order_id, 100, "thanks", retry=Retry(max_attempts=5)), bytes)
    assert_type(await run.step("price", price, Order(), mode="at_most_once", timeout=timedelta(seconds=3)), int)
    assert_type(await run.step("price-2", price, Order(), 1), int)
    assert_type(await run.step("total", total, {"a": 1, "b": 0.5}, "gross", 1, 2), float)
    assert_type(await run.step("reserve", reserve, order_id), Outcome[str, Declined])
    assert_type(await run.step("now", lambda: 3, timeout=1.5), int)
    await run.step("mail", Mailer().send, "a@example.org", None, retry=Retry(retry_if=lambda e: isinstance(e, OSError)))
    await run.sleep("pause", 1.5)
    await run.sleep("pause-2", timedelta(hours=1))
    await run.sleep_until("morning", datetime(2026, 1, 1))
    await run.defer("undo", charge, order_id, -100)
    try:
        await run.step("may-fail", price, Order())
    except StepFailed as failed:
        assert_type(failed.error.message, str)
    return order_id


@workflow(name="approve", version="2")
async def approval(run: Run, order_id: str) -> Outcome[Order, Declined | TimedOut]:
    decision = await run.signal("decision", Decision, timeout=timedelta(days=1))
    assert_type(decision, Outcome[Decision, TimedOut | InvalidSignal])
    assert_type(await run.signal("count", dict[str, int]), Outcome[dict[str, int], TimedOut | InvalidSignal])
    assert_type(await run.signal("maybe", int | None), Outcome[int | None, TimedOut | InvalidSignal])
    order = run.store(orders, order_id)
    assert_type(order, RunStore[Order])
    run.store(counters)
    assert_type(await order.get_or_create("open", Order), Outcome[Snapshot[Order], InvalidState | TooLarge])
    assert_type(await order.get("look"), Outcome[Snapshot[Order], StoreNotFound | InvalidState])
    assert_type(await order.get("before", version=0), Outcome[Snapshot[Order], StoreNotFound | InvalidState])
    assert_type((await order.get("named", version=Revision("i", 1))).unwrap(), Snapshot[Order])
    assert_type(
        await order.select("skus", lambda o: [i.sku for i in o.items]), Outcome[list[str], StoreNotFound | InvalidState]
    )
    await order.update("approve", approve)
    await order.update("add", lambda o: o.items.append(Item(sku="b")))
    await order.update_from("again", (await order.get("look-2")).unwrap(), reset)
    assert_type((await order.take("one", free, claim)).unwrap().selected, Item)
    assert_type(
        await order.take_now("another", free, claim),
        Outcome[Taken[Item], Unmatched | StoreNotFound | InvalidState | ReceiptMismatch | TooLarge],
    )
    assert_type(
        await order.when("approved", lambda o: o.status == "approved" and o, timeout=60),
        Outcome[Order, StoreNotFound | InvalidState | TimedOut],
    )
    await order.delete_from("gone", Revision("i", 1))
    return Success(Order())


@workflow
async def nothing(run: Run) -> None: ...


@workflow
async def branches(run: Run) -> int:
    pair = await run.gather(run.step("a", price, Order()), run.step("b", charge, "o-1", 1))
    assert_type(pair, tuple[int, bytes])
    assert_type(await run.gather(*[run.step(f"c-{n}", price, Order()) for n in range(3)]), tuple[int, ...])
    assert_type(await run.race(run.step("d", price, Order()), run.sleep("e", 5)), int | None)
    return pair[0]


ResultFailure = RunFailed | RunCancelled | RunNotFound | TimedOut | Unavailable


async def starting(e: Engine) -> str:
    started = await e.start(fulfil, "o-1", id="fulfil-o-1")
    assert_type(started, Outcome[RunHandle[str], RunMismatch | TooLarge | Unavailable])
    handle = started.unwrap()
    assert_type(handle.id, str)
    await e.start(fulfil, "o-1", True)
    assert_type((await e.start(nothing, id="n")).unwrap(), RunHandle[None])
    assert_type(await handle.result(timeout=5), Outcome[str, ResultFailure])
    assert_type(await handle.status(), Outcome[RunStatus, RunNotFound | Unavailable])
    assert_type(await handle.cancel(), Outcome[None, RunNotFound | Unavailable])
    flat = (await e.start(approval, "o-1")).unwrap()
    assert_type(await flat.result(), Outcome[Order, Declined | ResultFailure])
    assert_type(await e.result("fulfil-o-1", timeout=5), Outcome[object, ResultFailure])
    assert_type(await e.status("x"), Outcome[RunStatus, RunNotFound | Unavailable])
    await e.signal("x", "decision", Decision(approved=True), dedupe="d-1")
    await e.cancel("x")
    await e.resume("x")
    assert_type(await e.resume("x", drop=["charge"], reopen=True), Outcome[None, RunNotFound | Unavailable])
    assert_type(await e.runs(state="waiting", limit=10), Outcome[tuple[RunStatus, ...], Unavailable])
    match await handle.signal("decision", {"approved": True}):
        case Success():
            pass
        case Failure(failure):
            match failure:
                case RunNotFound(id) | RunEnded(id):
                    return id
                case InvalidSignal() | TooLarge() | Unavailable():
                    return "not sent"
    match await handle.result():
        case Success(text):
            return text
        case Failure(RunFailed(_, error)):
            return error.message
        case Failure(other):
            assert_type(other, ResultFailure)
            return "none"


async def opening() -> None:
    async with stepwell.open("app.db", workflows=[fulfil, approval, branches]) as app:
        assert_type(app, App)
        assert_type(app.store(orders, "o-1"), StoreHandle[Order])
        assert_type(
            await app.start(fulfil, "o-1", id="fulfil-o-1"),
            Outcome[RunHandle[str], RunMismatch | TooLarge | Unavailable],
        )
        assert_type(get(app.env, Store), Store)
        as_engine: Engine = app
        await as_engine.resume("x")
    async with stepwell.open("memory:", drive=False, workspace=".", artifacts="artifacts") as app:
        assert_type(get(app.env, StepSandbox), StepSandbox)


def opening_blocking() -> None:
    with stepwell.open_blocking("app.db", workflows=[fulfil]) as portal:
        started = portal.call(lambda: portal.app.start(fulfil, "o-1"))
        assert_type(started, Outcome[RunHandle[str], RunMismatch | TooLarge | Unavailable])
        assert_type(portal.call(portal.app.store(orders, "o-1").update, approve).unwrap(), Updated[Order])


# --- sandbox ----------------------------------------------------------------


def compile_it(ws: Workspace, flag: str = "-O2") -> int:
    source = ws.read_text("src/a.c")
    assert_type(source, str)
    ws.write_bytes("out/app", source.encode())
    ws.queue_effect({"kind": "built"})
    ws.queue_effect(Effect("built", {"size": len(source)}))
    assert_type(ws.exists("src/b.c"), bool)
    assert_type(ws.glob("src/**"), list[str])
    with ws.open_text("out/log", "w") as log:
        return log.write(source)


async def compile_later(ws: Workspace) -> str:
    try:
        return ws.read_text("src/b.c")
    except FileNotFoundError:
        return ""
    except WorkspaceRefusal as refused:
        assert_type(refused.error, WorkspaceError | LimitExceeded)
        return refused.code


@workflow
async def cached(run: Run) -> int:
    boundary = Boundary(reads=("src/**",), writes=("out/app",))
    assert_type(await run.cached_step("build", compile_it, "-O3", boundary=boundary), int)
    assert_type(await run.cached_step("build-2", compile_it, boundary=boundary, version="2"), int)
    assert_type(await run.cached_step("build-3", compile_later, boundary=boundary), str)
    assert_type(await run.cached_step("build-4", Command(["cc", "src/a.c"]), boundary=boundary), CommandOutput)
    return 1


async def sandboxed(sandbox: StepSandbox) -> str:
    opened = await sandbox.open()
    assert_type(opened, Outcome[WorkspaceTransaction, UnsupportedBoundary])
    if isinstance(opened, Failure):
        return opened.failure().code
    boundary = Boundary(reads=("src/**",), writes=("out/app",), removes=(), mode="hard")
    async with opened.unwrap() as tx:
        assert_type(tx, WorkspaceTransaction)
        assert_type((await tx.execute(boundary, compile_it)).unwrap(), Accepted[int])
        assert_type((await tx.execute(boundary, compile_later)).unwrap(), Accepted[str])
        assert_type((await tx.execute(boundary, lambda ws: ws.read_bytes("src/a.c"))).unwrap().output, bytes)
        assert_type((await tx.execute(Boundary(), Command(["true"], timeout=3))).unwrap(), Accepted[CommandOutput])
        assert_type((await tx.execute(Boundary(["a"], ["b"]), Command(("true",)))).unwrap().output.exit_code, int)
        match await tx.execute(boundary, compile_later):
            case Success(accepted):
                assert_type(accepted.evidence, Literal["enforced", "tripwire", "cooperative"])
                assert_type(accepted.changes, tuple[FileChange, ...])
                assert_type(accepted.violations, Violations)
                assert_type(
                    await tx.materialize(accepted), Outcome[Materialized, MaterializationConflict | WorkspaceError]
                )
                return accepted.output
            case Failure(failure):
                match failure:
                    case UndeclaredRead() | UndeclaredWrite() | MissingOutput() | SurvivingRemoval():
                        return f"{failure.code}: {', '.join(failure.paths)} {failure.diff_identity}"
                    case BodyFailed(cause):
                        return cause.message
                    case LimitExceeded() | WorkspaceError():
                        return "refused"


async def kept(artifacts: Artifacts, dispatcher: EffectDispatcher) -> None:
    assert_type((await artifacts.put(b"a")).unwrap(), str)
    got = await artifacts.get("0" * 64)
    if isinstance(got, Failure):
        print(isinstance(got.failure(), ArtifactMissing | ArtifactCorruption))
    _ = await dispatcher.dispatch(Effect("k", [1]))


values = (
    UndeclaredRead(paths=("a",), diff_identity="d"),
    UnsupportedBoundary(message="no"),
    WorkspaceError("not_found", "a"),
    MaterializationConflict(("a",)),
)


# --- cache fold -------------------------------------------------------------

summing = Projection(lambda: 0, lambda state, entry: state + entry.seq)
assert_type(summing, Projection[int])


def folding(entry: Entry, ref: RecordedRef) -> None:
    state = fold.reduce(fold.initial(), entry)
    assert_type(state, fold.State)
    assert_type(state.admitted, frozenset[RecordedRef])
    assert_type(fold.candidates(state), tuple[RecordedRef, ...])
    assert_type(fold.ref_id(ref), str)
    projection: Projection[fold.State] = fold.PROJECTION
    assert_type(projection.reduce(projection.initial(), entry), fold.State)


# --- wake bus, clock, ids, ledger -------------------------------------------


async def instruments(bus: WakeBus, time: Clock, names: Ids, log: Ledger) -> None:
    token = bus.token("run")
    assert_type(token, WakeToken)
    await bus.wake("run")
    await bus.await_wake("run", token)
    assert_type(await bus.waiters("run"), int)
    await time.sleep_until_ms(time.now_ms() + 10)
    assert_type(names.new(), str)
    manual = ManualClock()
    as_clock: Clock = manual
    await manual.advance(as_clock.now_ms())
    tip = await log.tip(StoreKey("orders", "o-1"))
    assert_type(tip, Outcome[Revision | None, Unavailable])
    print(Committed, AlreadyApplied)


# --- journal, step cache, cache fold ---------------------------------------


async def journalling(j: Journal) -> None:
    assert_type(
        await j.append("run", "paid", {"cents": 1}, source=Source("s", 0)),
        Outcome[Appended, IdempotencyConflict | Fenced | InvalidEvent | Unavailable],
    )
    page = (await j.entries("run", after=3, event_types=["paid"], limit=10)).unwrap()
    assert_type(page.entries, tuple[Entry, ...])
    async for entry in j.follow("run"):
        assert_type(entry, Entry)
    assert_type(await j.project("run", summing), Outcome[int, Compacted | Unavailable])
    async for state in j.states("run", fold.PROJECTION):
        assert_type(state, fold.State)
    assert_type(await j.verify(), Outcome[Verified, Tampered | Unavailable])
    await j.runs()
    await j.checkpoint("run", 3, {"a": 1})
    await j.latest_checkpoint("run")
    await j.compact("run")
    await j.rewind("run", 2)


async def caching(c: StepCache, f: CacheFold, entry: CacheEntry, ref: RecordedRef) -> None:
    assert_type(await c.get("key", recorded_by=ref, max_age_ms=5), Outcome[CacheEntry, CacheMiss | Unavailable])
    assert_type(await c.put(entry), Outcome[Inserted | ExistingSame, CacheConflict | InvalidEntry | Unavailable])
    await c.evict("key", if_recorded_by=ref)
    await c.sweep(1000)
    await c.rebuild_heads(fold.candidates(fold.initial()))
    assert_type(await f.rebuild(), Outcome[Rebuilt, Compacted | Unavailable])
    assert_type(await f.verify(), Outcome[Verification, Unavailable])
    assert_type(await f.explain("digest"), Outcome[Explanation, Unavailable])


# --- layers -----------------------------------------------------------------


class Greeter:
    def __init__(self, store: Store, clock: Clock) -> None: ...


class Mail:
    """A service of the user's own."""


@provides
async def mail(time: Clock, names: Ids) -> AsyncIterator[Mail]:
    yield Mail()


@provides
def still_mail() -> Iterator[Mail]:
    yield Mail()


@provides
async def failing_mail(time: Clock) -> Outcome[Mail, str]:
    return Failure("no")


class N1: ...


class N2: ...


class N3: ...


class N4: ...


class N5: ...


class N6: ...


@provides
def busy_mail(a: N1, b: N2, c: N3, d: N4, e: N5, f: N6, time: Clock, names: Ids) -> Iterator[Mail]:
    yield Mail()


assert_type(mail, Layer[Mail, Clock | Ids])
assert_type(still_mail, Layer[Mail, Mail])
assert_type(failing_mail, Layer[Mail, Clock])
assert_type(busy_mail, Layer[Mail, N1 | N2 | N3 | N4 | N5 | N6 | Clock | Ids])

app = ledger.layer("app.db") | store.layer() | waiters.layer() | wake_bus.layer() | clock.layer() | ids.layer()
dry = app.override(store.layer_noop())


async def building() -> None:
    async with build(dry) as built:
        assert_type(built, Outcome[Env[Ledger | Store | Waiters | WakeBus | Clock | Ids], LayerError])
        env = built.unwrap()
        assert_type(get(env, Store), Store)
        assert_type(get(env, WakeBus), WakeBus)
        assert_type(get(env, Clock), Clock)
        assert_type(env.make(Greeter), Greeter)
        narrower: Env[Store | Clock] = env
        assert_type(get(narrower, Clock), Clock)
    async with build(
        ledger.layer_test()
        | store.layer_test()
        | clock.layer_test(ManualClock(5))
        | ids.layer_test()
        | wake_bus.layer_noop(wake=refuse)
    ) as built:
        await creating(get(built.unwrap(), Store))
    async with build(app.override(store.layer_noop())) as built:
        get(built.unwrap(), Store)
    async with build(app.override(store.layer_test()).override(clock.layer_test())) as built:
        get(built.unwrap(), Store)
    async with build(app | mail) as built:
        assert_type(get(built.unwrap(), Mail), Mail)
    async with build(fresh(clock.layer()) | ids.layer() | mail) as built:
        assert_type(get(built.unwrap(), Mail), Mail)
    async with build(provide(mail, clock.layer() | ids.layer())) as built:
        assert_type(built, Outcome[Env[Mail], LayerError])
    private = ledger.layer_test() | clock.layer() | ids.layer() | wake_bus.layer()
    async with build(provide(store.layer_test(), private)) as built:
        assert_type(get(built.unwrap(), Store), Store)
    async with build(
        ledger.layer("app.db", "normal")
        | store.layer()
        | artifacts.layer("artifacts")
        | step_sandbox.layer(".", toolchain=("/opt/tools",))
        | journal.layer()
        | step_cache.layer()
        | cache_fold.layer()
        | engine.layer([fulfil], effects=print, max_age=3_600)
        | waiters.layer()
        | wake_bus.layer()
        | clock.layer()
        | ids.layer()
    ) as built:
        match built:
            case Success(env_):
                assert_type(get(env_, Engine), Engine)
                assert_type(get(env_, Artifacts), Artifacts)
                assert_type(get(env_, CacheFold), CacheFold)
            case Failure(error):
                match error:
                    case Missing(service, needed_by):
                        print(service, needed_by)
                    case Cycle(path):
                        print(path)
                    case Failed(_, cause):
                        print(cause)


async def refuse(run_id: str) -> None: ...


async def whole_app() -> None:
    async with build(app_layers.layer_test(workflows=[fulfil]).override(wake_bus.layer_noop())) as built:
        assert_type(get(built.unwrap(), Waiters), Waiters)
    async with build(app_layers.layer_test(workflows=[fulfil]).override(store.layer_noop())) as built:
        env = built.unwrap()
        assert_type(env, Env[Services])
        assert_type(get(env, Ledger), Ledger)
        await starting(get(env, Engine))
        assert_type(get(env, StepSandbox), StepSandbox)
        assert_type(get(env, Journal), Journal)
        assert_type(get(env, StepCache), StepCache)
    async with build(app_layers.layer("app.db", workspace=".") | mail) as built:
        get(built.unwrap(), Mail)
    async with build(app_layers.layer_noop().override(step_sandbox.layer_test({"in.txt": "alpha\n"}))) as built:
        get(built.unwrap(), StepSandbox)
    async with build(app_layers.layer_noop().override(clock.layer_test())) as built:
        get(built.unwrap(), Clock)
