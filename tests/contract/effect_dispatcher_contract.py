"""What an effect dispatcher promises on every host."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Protocol

import pytest

from stepwell import Failure, Success
from stepwell.services.effect_dispatcher import Dispatched, Effect, EffectDispatcher, EffectMismatch

MAIL = Effect("mail:1", {"to": "ann", "lines": [1, 2.5, None]})
OTHER = Effect("mail:2")


class Sent(Protocol):
    """What the receiver was told, in order."""

    def __call__(self) -> list[Effect]: ...


@dataclass
class World:
    dispatcher: EffectDispatcher
    sent: Sent


class EffectDispatcherContract:
    async def test_an_effect_is_sent_once(self, world: World) -> None:
        assert await world.dispatcher.dispatch(MAIL) == Success(Dispatched("mail:1", again=False))
        assert await world.dispatcher.dispatch(OTHER) == Success(Dispatched("mail:2", again=False))
        assert await world.dispatcher.dispatch(MAIL) == Success(Dispatched("mail:1", again=True))
        assert world.sent() == [MAIL, OTHER]

    async def test_another_effect_under_the_same_key_is_a_mistake_and_not_sent(self, world: World) -> None:
        _ = await world.dispatcher.dispatch(MAIL)
        again = await world.dispatcher.dispatch(Effect(MAIL.key, "something else"))
        assert again == Failure(EffectMismatch("mail:1"))
        assert world.sent() == [MAIL]

    async def test_of_several_at_once_one_is_sent(self, world: World) -> None:
        outcomes = await asyncio.gather(*(world.dispatcher.dispatch(MAIL) for _ in range(10)))
        assert [outcome.unwrap().again for outcome in outcomes] == [False] + [True] * 9
        assert world.sent() == [MAIL]

    @pytest.mark.parametrize("key", ["k" * 512, "ключ", "../a b\n"])
    async def test_every_key_is_a_key(self, world: World, key: str) -> None:
        for again in (False, True):
            assert await world.dispatcher.dispatch(Effect(key, [])) == Success(Dispatched(key, again))

    async def test_only_effects_are_dispatched(self, world: World) -> None:
        dispatch = vars(type(world.dispatcher))["dispatch"]
        with pytest.raises(TypeError, match=r"'mail' is no Effect: write Effect\(key, payload\)"):
            await dispatch(world.dispatcher, "mail")
