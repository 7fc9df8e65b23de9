"""The algebra of layers: sharing, order, release, failure, cancellation."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import pytest

from stepwell import (
    Cycle,
    Env,
    Failed,
    Failure,
    Layer,
    LayerError,
    Missing,
    Outcome,
    Success,
    build,
    fresh,
    get,
    provide,
    provides,
)
from stepwell.layers.recipe import Refused


class A:
    def __init__(self, tag: str = "a") -> None:
        self.tag = tag


class B:
    def __init__(self, a: A) -> None:
        self.a = a


class C:
    def __init__(self, a: A) -> None:
        self.a = a


class D:
    def __init__(self, b: B, c: C) -> None:
        self.b, self.c = b, c


class Interrupt(BaseException):
    """Like KeyboardInterrupt: nothing that a library should ever take for an answer."""


log: list[str] = []


@pytest.fixture(autouse=True)
def _empty_log() -> None:
    log.clear()


@provides
async def a() -> AsyncIterator[A]:
    log.append("+a")
    try:
        yield A()
    finally:
        log.append("-a")


@provides
def b(a: A) -> Iterator[B]:
    log.append("+b")
    yield B(a)
    log.append("-b")


@provides
def c(a: A) -> Iterator[C]:
    log.append("+c")
    yield C(a)
    log.append("-c")


@provides
async def d(b: B, c: C) -> AsyncIterator[D]:
    log.append("+d")
    yield D(b, c)
    log.append("-d")


@provides
def other_a() -> Iterator[A]:
    yield A("other")


@provides
async def refused_a() -> Outcome[A, str]:
    return Failure("no a")


@provides
async def refusing_c(a: A) -> AsyncIterator[C]:
    try:
        raise Refused(f"no c over {a.tag}")
        yield C(a)  # pyright: ignore[reportUnreachable]
    finally:
        log.append("-c")


@provides
def refusing_b(a: A) -> Iterator[B]:
    raise Refused(f"no b over {a.tag}")
    yield B(a)  # pyright: ignore[reportUnreachable]


@provides
async def given_a() -> Outcome[A, str]:
    return Success(A("given"))


@provides
def broken_c(a: A) -> Iterator[C]:
    raise RuntimeError(f"no c over {a.tag}")
    yield C(a)  # pyright: ignore[reportUnreachable]


diamond = d | b | c | a
UP = ["+a", "+b", "+c", "+d"]
DOWN = ["-d", "-c", "-b", "-a"]


def chain(error: BaseException | None) -> list[str]:
    """The texts of an exception and of those that it happened in, latest first."""
    texts: list[str] = []
    while error is not None:
        texts.append(str(error))
        error = error.__context__
    return texts


# --- order and sharing --------------------------------------------------------


async def test_a_diamond_is_built_once_and_released_in_reverse() -> None:
    async with build(diamond) as built:
        env = built.unwrap()
        top = get(env, D)
        assert top.b.a is top.c.a is get(env, A)
        assert log == UP
    assert log == UP + DOWN


async def test_every_build_is_its_own() -> None:
    async with build(diamond) as one, build(diamond) as two:
        assert get(one.unwrap(), A) is not get(two.unwrap(), A)


async def test_a_coroutine_gives_without_a_release() -> None:
    async with build(given_a | b) as built:
        assert get(built.unwrap(), B).a.tag == "given"


async def test_a_layer_can_be_joined_twice() -> None:
    left, right = a | b, c | a
    both = left | right
    async with build(both) as built:
        env = built.unwrap()
        assert get(env, B).a is get(env, C).a


def test_two_recipes_of_one_service_cannot_be_joined() -> None:
    with pytest.raises(ValueError, match=r"both layers give A: .*override"):
        _ = a | other_a
    with pytest.raises(ValueError, match="both layers give A"):
        _ = fresh(a) | a


async def test_an_override_reaches_all_that_need_the_service() -> None:
    async with build(diamond.override(other_a)) as built:
        top = get(built.unwrap(), D)
        assert (top.b.a.tag, top.c.a.tag) == ("other", "other")
    assert "+a" not in log


async def test_an_override_leaves_its_base_as_it_was() -> None:
    diamond.override(other_a)
    async with build(diamond) as built:
        assert get(built.unwrap(), A).tag == "a"


def test_an_override_of_what_is_not_given_is_refused() -> None:
    with pytest.raises(ValueError, match=r"nothing to override: A is not given by Layer\(B\)"):
        b.override(a)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def test_what_is_provided_is_private() -> None:
    async with build(provide(b, other_a) | c | a) as built:
        env = built.unwrap()
        assert (get(env, B).a.tag, get(env, C).a.tag, get(env, A).tag) == ("other", "a", "a")


async def test_what_is_provided_is_not_given() -> None:
    async with build(provide(b, a)) as built:
        with pytest.raises(LookupError, match="no A here; the services are B"):
            get(built.unwrap(), A)  # type: ignore[misc]  # pyright: ignore[reportArgumentType]


async def test_an_override_does_not_reach_what_is_private() -> None:
    async with build((provide(b, a) | given_a).override(other_a)) as built:
        env = built.unwrap()
        assert (get(env, A).tag, get(env, B).a.tag) == ("other", "a")


async def test_private_layers_are_shared_by_identity_and_fresh_ones_are_not() -> None:
    async with build(provide(b, a) | provide(c, a)) as built:
        env = built.unwrap()
        assert get(env, B).a is get(env, C).a
    apart = fresh(a)
    async with build(provide(b, apart) | provide(c, apart)) as built:
        env = built.unwrap()
        assert get(env, B).a is not get(env, C).a
    assert log.count("+a") == log.count("-a") == 3


async def test_a_service_can_be_wrapped_by_a_layer_of_the_same_service() -> None:
    @provides
    def wrapped(inner: A) -> Iterator[A]:
        yield A(f"({inner.tag})")

    async with build(provide(wrapped, provide(wrapped, a)) | b) as built:
        env = built.unwrap()
        assert (get(env, A).tag, get(env, B).a.tag) == ("((a))", "((a))")


# --- what is wrong with a layer -----------------------------------------------


async def test_a_missing_service_is_the_answer_before_anything_is_acquired() -> None:
    async with build(b | d | a) as built:  # type: ignore[misc]  # pyright: ignore[reportArgumentType]
        assert built == Failure(Missing(C, D))
    assert log == []


async def test_a_cycle_is_the_answer() -> None:
    @provides
    def a_from_d(d: D) -> Iterator[A]:
        yield A(repr(d))

    async with build(diamond.override(a_from_d)) as built:
        assert built == Failure(Cycle((D, B, A, D)))


async def test_an_exception_is_data_and_what_was_acquired_is_released_before() -> None:
    async with build(diamond.override(broken_c)) as built:
        assert log == ["+a", "+b", "-b", "-a"]
        error = built.failure()
        assert isinstance(error, Failed)
        assert error.service is C
        assert isinstance(error.cause, RuntimeError)
        assert str(error) == "C could not be acquired: RuntimeError: no c over a"
    assert log == ["+a", "+b", "-b", "-a"]


async def test_an_expected_failure_is_handed_on_as_it_is() -> None:
    async with build(diamond.override(refused_a)) as built:
        assert built == Failure(Failed(A, "no a"))
    assert log == []


async def test_a_generator_refuses_by_raising_what_is_then_the_cause() -> None:
    async with build(diamond.override(refusing_c)) as built:
        assert built == Failure(Failed(C, "no c over a"))
    assert log == ["+a", "+b", "-c", "-b", "-a"]
    async with build(diamond.override(refusing_b)) as built:
        assert built == Failure(Failed(B, "no b over a"))


# --- release --------------------------------------------------------------------


async def test_an_exception_in_the_body_releases_all() -> None:
    with pytest.raises(KeyError):
        async with build(diamond):
            raise KeyError
    assert log == UP + DOWN


async def test_a_release_that_raises_is_raised_after_the_others() -> None:
    @provides
    def bad(a: A) -> Iterator[C]:
        yield C(a)
        raise OSError("c did not close")

    with pytest.raises(OSError, match="c did not close"):
        async with build(diamond.override(bad)) as built:
            assert isinstance(built, Success)
    assert log == ["+a", "+b", "+d", "-d", "-b", "-a"]


async def test_a_release_that_raises_does_not_hide_what_the_body_raised() -> None:
    @provides
    async def bad() -> AsyncIterator[A]:
        yield A()
        raise OSError("a did not close")

    with pytest.raises(OSError, match="a did not close") as raised:
        async with build(bad | b):
            raise KeyError("body")
    assert chain(raised.value) == ["a did not close", "'body'"]
    assert log == ["+b", "-b"]


async def test_a_release_that_raises_after_a_failed_acquire_is_raised_and_names_it() -> None:
    @provides
    def bad(a: A) -> Iterator[B]:
        yield B(a)
        raise OSError("b did not close")

    with pytest.raises(OSError, match="b did not close") as raised:
        async with build(diamond.override(bad).override(broken_c)):
            raise AssertionError("a failed layer was entered")
    assert chain(raised.value) == [
        "b did not close",
        "C could not be acquired: RuntimeError: no c over a",
        "no c over a",
    ]
    assert log == ["+a", "-a"]


@pytest.mark.parametrize("wrong", ["async", "sync"])
async def test_a_second_yield_is_an_error_and_the_recipe_is_closed(wrong: str) -> None:
    @provides
    async def twice_async() -> AsyncIterator[A]:
        try:
            yield A()
            yield A()
        finally:
            log.append("closed")

    @provides
    def twice_sync() -> Iterator[A]:
        try:
            yield A()
            yield A()
        finally:
            log.append("closed")

    layer = twice_async if wrong == "async" else twice_sync
    with pytest.raises(RuntimeError, match="the recipe of A has a second yield"):
        async with build(layer | b) as built:
            assert isinstance(built, Success)
    assert log == ["+b", "-b", "closed"]


async def test_a_recipe_without_a_yield_has_failed() -> None:
    @provides
    async def none_async() -> AsyncIterator[A]:
        return
        yield A()  # pyright: ignore[reportUnreachable]

    @provides
    def none_sync() -> Iterator[A]:
        return
        yield A()  # pyright: ignore[reportUnreachable]

    for layer in (none_async, none_sync):
        async with build(layer) as built:
            assert str(built.failure()).endswith("the recipe of A ended without a yield")


async def test_a_coroutine_that_gives_no_outcome_has_failed() -> None:
    @provides
    async def bare() -> Outcome[A, str]:
        return A()  # type: ignore[return-value]  # pyright: ignore[reportReturnType]

    async with build(bare) as built:
        assert "not a Success or a Failure" in str(built.failure())


# --- cancellation -----------------------------------------------------------------


async def test_cancelled_while_acquiring_releases_and_goes_on() -> None:
    started = asyncio.Event()

    @provides
    async def slow(a: A) -> AsyncIterator[C]:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            log.append("slow stopped")
        yield C(a)

    async def use() -> None:
        async with build(a | slow):
            raise AssertionError("a cancelled layer was entered")

    task = asyncio.create_task(use())
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert log == ["+a", "slow stopped", "-a"]


async def test_cancelled_in_the_body_releases_and_goes_on() -> None:
    started = asyncio.Event()

    async def use() -> None:
        async with build(diamond):
            started.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(use())
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert log == UP + DOWN


async def test_cancelled_while_releasing_releases_the_rest_and_goes_on() -> None:
    stopping = asyncio.Event()

    @provides
    async def slow(a: A) -> AsyncIterator[C]:
        yield C(a)
        stopping.set()
        await asyncio.Event().wait()

    async def use() -> None:
        async with build(diamond.override(slow)):
            pass

    task = asyncio.create_task(use())
    await stopping.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert log == ["+a", "+b", "+d", "-d", "-b", "-a"]


async def test_an_interrupt_is_no_failure() -> None:
    @provides
    def interrupted(a: A) -> Iterator[C]:
        raise Interrupt
        yield C(a)  # pyright: ignore[reportUnreachable]

    with pytest.raises(Interrupt):
        async with build(diamond.override(interrupted)):
            raise AssertionError("an interrupted layer was entered")
    assert log == ["+a", "+b", "-b", "-a"]


# --- recipes ----------------------------------------------------------------------


async def test_a_recipe_may_name_types_of_the_functions_around_it() -> None:
    class Local:
        pass

    class Need:
        pass

    def factory() -> Layer[Local, Need]:
        @provides
        def local(need: Need) -> Iterator[Local]:
            assert isinstance(need, Need)
            yield Local()

        return local

    @provides
    async def need() -> Outcome[Need, str]:
        return Success(Need())

    async with build(factory() | need) as built:
        assert isinstance(get(built.unwrap(), Local), Local)


def test_a_recipe_may_name_types_of_a_function_that_has_returned() -> None:
    def outer() -> Callable[[], Iterator[object]]:
        class Gone:
            pass

        def make() -> Iterator[Gone]:
            yield Gone()

        return make

    assert repr(provides(outer())).endswith("Gone)")


async def test_a_parameter_with_a_default_is_no_need() -> None:
    @provides
    def defaulted(tag: str = "default") -> Iterator[A]:
        yield A(tag)

    async with build(defaulted) as built:
        assert get(built.unwrap(), A).tag == "default"


async def test_a_function_may_give_an_awaitable() -> None:
    @provides
    def soon() -> Awaitable[Outcome[A, str]]:
        async def later() -> Outcome[A, str]:
            return Success(A("later"))

        return later()

    async with build(soon) as built:
        assert get(built.unwrap(), A).tag == "later"


async def test_eight_needs_and_a_generic_service() -> None:
    @provides
    def many(a: A, b: B, c: C, d: D, e: A, f: B, g: C, h: D) -> Iterator[dict[str, A]]:
        yield {"a": a, "e": e, "b": b.a, "f": f.a, "c": c.a, "g": g.a, "d": d.b.a, "h": h.c.a}

    async with build(diamond | many) as built:
        env = built.unwrap()
        assert {id(each) for each in get(env, dict[str, A]).values()} == {id(get(env, A))}


def unannotated():  # type: ignore[no-untyped-def]
    yield A()


def no_service() -> Iterator:  # type: ignore[type-arg]  # pyright: ignore[reportMissingTypeArgument, reportUnknownParameterType]
    yield A()


def untyped_need(a) -> Iterator[A]:  # type: ignore[no-untyped-def]  # pyright: ignore[reportMissingParameterType, reportUnknownParameterType]
    yield A()


def keyword_need(*, a: A) -> Iterator[A]:
    yield a


def unknown_service() -> Iterator[Nowhere]:  # type: ignore[name-defined]  # noqa: F821  # pyright: ignore[reportUndefinedVariable, reportUnknownParameterType]
    yield A()


UNREADABLE: dict[str, Callable[..., Iterator[object]]] = {
    "must say what it gives, as": unannotated,
    "must say what it gives, as AsyncIterator": no_service,
    "a needs an annotation": untyped_need,
    "must be a plain parameter": keyword_need,
    "name 'Nowhere' is not defined": unknown_service,
}


@pytest.mark.parametrize("text", UNREADABLE)
def test_a_recipe_that_cannot_be_read_says_why(text: str) -> None:
    with pytest.raises(TypeError, match=text):
        provides(UNREADABLE[text])


# --- built services -----------------------------------------------------------------


async def test_constructors_are_injected() -> None:
    class Plain:
        pass

    class Report:
        def __init__(self, d: D, *, title: str = "untitled") -> None:
            self.d, self.title = d, title

    async with build(diamond) as built:
        env = built.unwrap()
        report = env.make(Report)
        assert (report.d, report.title) == (get(env, D), "untitled")
        assert env.make(Report) is not report
        assert isinstance(env.make(Plain), Plain)


async def test_a_constructor_that_asks_for_more_is_a_lookup_error() -> None:
    class Greedy:
        def __init__(self, d: D, text: str) -> None: ...

    async with build(a | b) as built:
        with pytest.raises(LookupError, match=r"cannot make .*Greedy: .*D.*; the services here are A, B"):
            built.unwrap().make(Greedy)


async def test_an_environment_serves_where_fewer_services_are_asked_for() -> None:
    def needs_one(env: Env[A]) -> str:
        return get(env, A).tag

    async with build(diamond) as built:
        answer: Outcome[Env[A | B | C | D], LayerError] = built
        assert needs_one(answer.unwrap()) == "a"
        assert repr(answer.unwrap()) == "Env(A, B, C, D)"
