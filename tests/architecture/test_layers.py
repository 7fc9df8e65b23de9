"""Every service has its layers: the functions that end its module, a noop that fails closed, and whole applications."""

from __future__ import annotations

import ast
import io
import re
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from types import FunctionType, ModuleType
from typing import TypeVar, get_args, get_type_hints

import pytest
from typing_extensions import TypeForm

from stepwell import (
    CacheFold,
    Clock,
    Engine,
    Failure,
    Ids,
    Journal,
    Layer,
    Ledger,
    Outcome,
    Retention,
    Revision,
    Revisions,
    Run,
    Services,
    StepCache,
    StepId,
    Store,
    StoreKey,
    Success,
    Unavailable,
    Waiter,
    Waiters,
    WakeBus,
    WakeToken,
    build,
    define_store,
    get,
    workflow,
)
from stepwell.core.batch import Batch
from stepwell.core.cache_fold import PROJECTION
from stepwell.core.step_cache import CacheEntry, CacheMiss, RecordedRef
from stepwell.core.step_sandbox import UnsupportedBoundary
from stepwell.layers import (
    app,
    artifacts,
    cache_fold,
    clock,
    effect_dispatcher,
    engine,
    ids,
    inconsistency,
    journal,
    ledger,
    revisions,
    shared_tier,
    step_cache,
    step_sandbox,
    store,
    waiters,
    wake_bus,
)
from stepwell.services.artifacts import Artifacts
from stepwell.services.effect_dispatcher import Effect, EffectDispatcher
from stepwell.services.inconsistency import Inconsistency
from stepwell.services.ledger import News
from stepwell.services.shared_tier import SharedTier
from stepwell.services.step_sandbox import StepSandbox

from .source import ROOT, Source, sources

_S = TypeVar("_S")

SERVICES = {
    "artifacts": Artifacts,
    "cache_fold": CacheFold,
    "clock": Clock,
    "engine": Engine,
    "ids": Ids,
    "journal": Journal,
    "ledger": Ledger,
    "revisions": Revisions,
    "step_cache": StepCache,
    "step_sandbox": StepSandbox,
    "store": Store,
    "waiters": Waiters,
    "wake_bus": WakeBus,
}

OF_THE_USER = {
    "effect_dispatcher": EffectDispatcher,
    "inconsistency": Inconsistency,
    "shared_tier": SharedTier,
}
"""Services that no application gives by itself: how an effect is delivered, what is shared, and what becomes of a cache
that contradicts itself, only its user knows."""

NO_LAYERS = {"driver": "Driver", "journal_rows": "JournalRows"}
"""Protocols that nobody composes: the engine hands one of its own to each run, and a ledger keeps journals or not."""


MODULES = (
    artifacts,
    cache_fold,
    clock,
    effect_dispatcher,
    engine,
    ids,
    inconsistency,
    journal,
    ledger,
    revisions,
    shared_tier,
    step_cache,
    step_sandbox,
    store,
    waiters,
    wake_bus,
)


# --- what the architecture says of them -----------------------------------------


def told_needs() -> dict[str, set[str]]:
    """From the noun of each layer in the table of docs/architecture.md to the services that it is said to need."""
    _, _, table = (ROOT / "docs/architecture.md").read_text().partition("| layer of | needs |\n|---|---|\n")
    found: dict[str, set[str]] = {}
    for row in table.partition("\n\n")[0].splitlines():
        nouns, needs = (re.findall("`(.+?)`", cell) for cell in row.strip("|").split("|"))
        found |= {noun: set(needs) for noun in nouns}
    return found


def typed_needs(module: ModuleType) -> set[str]:
    """The services that the type of the module's layer says it needs, beside its own."""
    given, needed = get_args(get_type_hints(vars(module)["layer"])["return"])
    return {service.__name__ for service in (get_args(needed) or (needed,)) if service is not given}


def test_the_table_of_layers_says_what_each_needs() -> None:
    told = told_needs()
    assert told.pop("app") == set()
    assert told == {module.__name__.rpartition(".")[2]: typed_needs(module) for module in MODULES}
    assert told.keys() == {**SERVICES, **OF_THE_USER}.keys()


# --- modules ------------------------------------------------------------------


def services() -> dict[str, str]:
    """From the noun of each module of services/ that has a Protocol of that name to the Protocol's name."""
    found: dict[str, str] = {}
    for source in sources():
        noun = source.path.stem
        name = "".join(part.title() for part in noun.split("_"))
        if source.folder == "services":
            for node in source.tree.body:
                if isinstance(node, ast.ClassDef) and node.name == name and "Protocol" in map(ast.unparse, node.bases):
                    found[noun] = name
    return found


def test_these_are_the_services() -> None:
    composed = {**SERVICES, **OF_THE_USER}
    assert services() == {noun: service.__name__ for noun, service in composed.items()} | NO_LAYERS
    assert set(get_args(Services)) == set(SERVICES.values())


def module_of(noun: str) -> Source:
    return next(source for source in sources() if source.name == f"stepwell.layers.{noun}")


@pytest.mark.parametrize("noun", [*SERVICES, *OF_THE_USER, "app"])
def test_a_module_ends_with_its_layers(noun: str) -> None:
    """`layer`, further hosts as `layer_<host>`, `layer_test`, `layer_noop`, in this order, and nothing after them."""
    functions = [node.name for node in module_of(noun).tree.body if isinstance(node, ast.FunctionDef)]
    last = module_of(noun).tree.body[-1]
    assert isinstance(last, ast.FunctionDef)
    tail = functions[functions.index("layer") :]
    hosts = tail[1:-2]
    assert tail == ["layer", *hosts, "layer_test", "layer_noop"]
    assert all(host.startswith("layer_") for host in hosts)


# --- what is absent -----------------------------------------------------------

numbers = define_store("architecture.numbers", dict[str, int])


@workflow(name="architecture.nothing")
async def nothing(run: Run) -> None: ...


KEY, STEP, REVISION = StoreKey("orders", "o-1"), StepId("run", "key"), Revision("instance", 1)


WAITER = Waiter(KEY, STEP, REVISION, ((),))


def no_change(draft: dict[str, int]) -> None: ...


def first(state: dict[str, int]) -> int | None:
    return state.get("n")


def no_claim(draft: dict[str, int], selected: int) -> None: ...


Answer = Awaitable[Outcome[object, object]]

STORE_CALLS: Mapping[str, Callable[[Store], Answer]] = {
    "delete": lambda s: s.delete(numbers, "n"),
    "delete_from": lambda s: s.delete_from(numbers, "n", REVISION),
    "get": lambda s: s.get(numbers, "n"),
    "get_or_create": lambda s: s.get_or_create(numbers, "n", {}),
    "handle": lambda s: s.handle(numbers, "n").get(),
    "list_ids": lambda s: s.list_ids(numbers),
    "take": lambda s: s.take(numbers, "n", first, no_claim),
    "update": lambda s: s.update(numbers, "n", no_change),
    "update_from": lambda s: s.update_from(numbers, "n", REVISION, no_change),
}

LEDGER_CALLS: Mapping[str, Callable[[Ledger], Answer]] = {
    "cancel_requests": lambda ledger: ledger.cancel_requests("owner"),
    "changes": lambda ledger: ledger.changes(),
    "commit": lambda ledger: ledger.commit(Batch()),
    "document": lambda ledger: ledger.document(KEY),
    "due": lambda ledger: ledger.due(["w"], 0),
    "owners": lambda ledger: ledger.owners(),
    "receipt": lambda ledger: ledger.receipt(KEY, STEP),
    "revisions": lambda ledger: ledger.revisions(KEY),
    "run": lambda ledger: ledger.run("run"),
    "runs": lambda ledger: ledger.runs(),
    "signals": lambda ledger: ledger.signals("run"),
    "steps": lambda ledger: ledger.steps("run"),
    "stores": lambda ledger: ledger.stores(),
    "tail": lambda ledger: ledger.tail(KEY, REVISION),
    "tip": lambda ledger: ledger.tip(KEY),
    "waiters": lambda ledger: ledger.waiters(),
    "wakes": lambda ledger: ledger.wakes(),
}

WAITERS_CALLS: Mapping[str, Callable[[Waiters], Answer]] = {
    "acknowledge": lambda w: w.acknowledge(WAITER),
    "cancel": lambda w: w.cancel(KEY, STEP),
    "due": lambda w: w.due("run"),
    "register": lambda w: w.register(WAITER),
    "waiting": lambda w: w.waiting(KEY),
}

REVISIONS_CALLS: Mapping[str, Callable[[Revisions], Answer]] = {
    "collect": lambda r: r.collect(Retention(keep_revisions=1)),
    "diff": lambda r: r.diff(numbers, "n", REVISION, REVISION),
    "history": lambda r: r.history(numbers, "n"),
    "purge": lambda r: r.purge("numbers", "n"),
}

DIGEST = "0" * 64

ARTIFACTS_CALLS: Mapping[str, Callable[[Artifacts], Answer]] = {
    "collect": lambda a: a.collect([]),
    "copy": lambda a: a.copy(DIGEST, lambda _: None),
    "find_missing": lambda a: a.find_missing([DIGEST]),
    "get": lambda a: a.get(DIGEST),
    "has": lambda a: a.has(DIGEST),
    "put": lambda a: a.put(b""),
    "put_stream": lambda a: a.put_stream(io.BytesIO()),
}

TIER_CALLS: Mapping[str, Callable[[SharedTier], Answer]] = {
    "copy": lambda t: t.copy(DIGEST, lambda _: None),
    "find": lambda t: t.find("key"),
    "has": lambda t: t.has(DIGEST),
    "publish": lambda t: t.publish(CacheEntry(RecordedRef("key", "run", 1), None, {}, 0)),
    "put": lambda t: t.put(DIGEST, io.BytesIO()),
    "withdraw": lambda t: t.withdraw("key"),
}

ENTRY = CacheEntry(RecordedRef("key", "run", 1), None, {}, 0)

JOURNAL_CALLS: Mapping[str, Callable[[Journal], Answer]] = {
    "append": lambda j: j.append("run", "type", {}),
    "checkpoint": lambda j: j.checkpoint("run", 0, {}),
    "compact": lambda j: j.compact("run"),
    "entries": lambda j: j.entries("run"),
    "latest_checkpoint": lambda j: j.latest_checkpoint("run"),
    "project": lambda j: j.project("run", PROJECTION),
    "rewind": lambda j: j.rewind("run", 0),
    "runs": lambda j: j.runs(),
    "verify": lambda j: j.verify(),
}

CACHE_CALLS: Mapping[str, Callable[[StepCache], Answer]] = {
    "put": lambda c: c.put(ENTRY),
    "rebuild_heads": lambda c: c.rebuild_heads([]),
}

FOLD_CALLS: Mapping[str, Callable[[CacheFold], Answer]] = {
    "explain": lambda f: f.explain("key"),
    "rebuild": lambda f: f.rebuild(),
    "verify": lambda f: f.verify(),
}

ENGINE_CALLS: Mapping[str, Callable[[Engine], Answer]] = {
    "cancel": lambda e: e.cancel("run"),
    "result": lambda e: e.result("run"),
    "resume": lambda e: e.resume("run"),
    "runs": lambda e: e.runs(),
    "signal": lambda e: e.signal("run", "name", 1),
    "start": lambda e: e.start(nothing),
    "status": lambda e: e.status("run"),
}


def calls_of(service: type) -> set[str]:
    """The methods of a Protocol."""
    return {name for name, value in vars(service).items() if isinstance(value, FunctionType) and name[0] != "_"}


async def answers(layer: Layer[_S, _S], service: TypeForm[_S], calls: Mapping[str, Callable[[_S], Answer]]) -> None:
    async with build(layer) as built:
        absent = get(built.unwrap(), service)
        for name, call in calls.items():
            match await call(absent):
                case Failure(Unavailable(reason, applied)):
                    assert applied == "no", f"{name}: nothing was changed, and it must say so"
                    assert reason, f"{name}: why"
                case other:
                    pytest.fail(f"{name} answered {other}, as if it were there")


async def test_an_absent_store_is_unavailable_in_every_call() -> None:
    assert STORE_CALLS.keys() == calls_of(Store)
    await answers(store.layer_noop(), Store, STORE_CALLS)


async def test_an_absent_ledger_is_unavailable_in_every_call() -> None:
    assert {*LEDGER_CALLS, "commit_all", "subscribe"} == calls_of(Ledger)
    await answers(ledger.layer_noop(), Ledger, LEDGER_CALLS)
    async with build(ledger.layer_noop()) as built:
        absent = get(built.unwrap(), Ledger)
        heard: list[News] = []
        unsubscribe = absent.subscribe(heard.append)
        verdicts = await absent.commit_all([Batch(), Batch()])
        unsubscribe()
    assert len(verdicts) == 2
    assert all(isinstance(verdict.failure(), Unavailable) for verdict in verdicts)
    assert heard == []


async def test_absent_revisions_are_unavailable_in_every_call() -> None:
    assert REVISIONS_CALLS.keys() == calls_of(Revisions)
    await answers(revisions.layer_noop(), Revisions, REVISIONS_CALLS)


async def test_absent_waiters_are_unavailable_in_every_call() -> None:
    assert WAITERS_CALLS.keys() == calls_of(Waiters)
    await answers(waiters.layer_noop(), Waiters, WAITERS_CALLS)


async def test_absent_artifacts_are_unavailable_in_every_call() -> None:
    assert ARTIFACTS_CALLS.keys() == calls_of(Artifacts)
    await answers(artifacts.layer_noop(), Artifacts, ARTIFACTS_CALLS)


async def test_an_absent_shared_tier_is_unavailable_in_every_call() -> None:
    assert TIER_CALLS.keys() == calls_of(SharedTier)
    await answers(shared_tier.layer_noop(), SharedTier, TIER_CALLS)


async def test_an_absent_effect_dispatcher_is_unavailable() -> None:
    assert calls_of(EffectDispatcher) == {"dispatch"}
    await answers(effect_dispatcher.layer_noop(), EffectDispatcher, {"dispatch": lambda e: e.dispatch(Effect("key"))})


async def test_an_absent_journal_is_unavailable_in_every_call() -> None:
    assert {*JOURNAL_CALLS, "follow", "states"} == calls_of(Journal)
    await answers(journal.layer_noop(), Journal, JOURNAL_CALLS)


async def test_an_absent_step_cache_never_hits_and_keeps_nothing() -> None:
    assert {*CACHE_CALLS, "get", "evict", "sweep"} == calls_of(StepCache)
    await answers(step_cache.layer_noop(), StepCache, CACHE_CALLS)
    async with build(step_cache.layer_noop()) as built:
        absent = get(built.unwrap(), StepCache)
        assert (await absent.get("key")).failure() == CacheMiss("key")
        assert (await absent.evict("key"), await absent.sweep(0)) == (Success(False), Success(0))


async def test_an_absent_cache_fold_is_unavailable_in_every_call() -> None:
    assert FOLD_CALLS.keys() == calls_of(CacheFold)
    await answers(cache_fold.layer_noop(), CacheFold, FOLD_CALLS)


async def test_with_nobody_to_decide_an_inconsistency_fails() -> None:
    assert calls_of(Inconsistency) == {"note_conflict", "note_corruption"}
    async with build(inconsistency.layer_noop()) as built:
        nobody, ref = get(built.unwrap(), Inconsistency), RecordedRef("key", "run", 1)
        assert await nobody.note_conflict(ref, ref) == "fail"
        assert await nobody.note_corruption(ref, "out", DIGEST, None) == "fail"


async def test_an_absent_sandbox_is_an_unsupported_boundary() -> None:
    assert calls_of(StepSandbox) == {"open"}
    async with build(step_sandbox.layer_noop()) as built:
        assert isinstance((await get(built.unwrap(), StepSandbox).open()).failure(), UnsupportedBoundary)


async def test_an_absent_wake_bus_does_nothing_which_is_a_true_answer() -> None:
    assert calls_of(WakeBus) == {"await_wake", "token", "waiters", "wake"}
    async with build(wake_bus.layer_noop()) as built:
        absent = get(built.unwrap(), WakeBus)
        assert isinstance(absent.token("run"), WakeToken)
        await absent.wake("run")
        assert await absent.waiters("run") == 0


async def test_an_absent_engine_is_unavailable_in_every_call() -> None:
    assert ENGINE_CALLS.keys() == calls_of(Engine)
    await answers(engine.layer_noop(), Engine, ENGINE_CALLS)


async def test_absent_clocks_and_ids_raise_since_they_have_no_failure_to_answer() -> None:
    assert (calls_of(Clock), calls_of(Ids)) == ({"now_ms", "sleep_until_ms"}, {"new"})
    async with build(clock.layer_noop() | ids.layer_noop()) as built:
        env = built.unwrap()
        with pytest.raises(RuntimeError, match=r"no clock here: .*stepwell\.layers\.clock"):
            get(env, Clock).now_ms()
        with pytest.raises(RuntimeError, match=r"no clock here: .*stepwell\.layers\.clock"):
            await get(env, Clock).sleep_until_ms(0)
        with pytest.raises(RuntimeError, match=r"no ids here: .*stepwell\.layers\.ids"):
            get(env, Ids).new()


# --- whole applications ---------------------------------------------------------


def applications() -> dict[str, Layer[Services, Services]]:
    return {
        "layer": app.layer("never-opened.db", workflows=[nothing]),
        "layer_memory": app.layer_memory(workflows=[nothing]),
        "layer_noop": app.layer_noop(),
        "layer_test": app.layer_test(workflows=[nothing]),
    }


def test_every_application_is_here() -> None:
    assert applications().keys() == {name for name in vars(app) if name.startswith("layer")}


@pytest.mark.parametrize("name", applications())
def test_every_application_plans_and_gives_every_service(name: str) -> None:
    """The checkers compare types by structure, the plan by identity: it has the last word. Nothing is acquired."""
    match applications()[name].plan():
        case Success(planned):
            assert planned.gives.keys() == set(get_args(Services))
        case Failure(wrong):
            pytest.fail(str(wrong))
    assert not (ROOT / "never-opened.db").exists()
    assert not Path("never-opened.db").exists()


@pytest.mark.parametrize("module", MODULES, ids=lambda module: str(module.__name__))
def test_each_call_of_a_layer_function_is_another_recipe(module: object) -> None:
    """So that two of them cannot be joined by accident, and one file is not opened twice."""
    layer_noop: Callable[[], Layer[object, object]] = vars(module)["layer_noop"]
    with pytest.raises(ValueError, match="both layers give"):
        _ = layer_noop() | layer_noop()
