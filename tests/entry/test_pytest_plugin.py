"""The fixtures that stepwell gives to its users' tests; pytest has loaded them by their entry point."""

from __future__ import annotations

import subprocess
import sys

from stepwell import Clock, Layer, ManualClock, Services, Store, StoreNotFound, WakeBus, build, define_store, get
from stepwell.layers import store, wake_bus

counts = define_store("plugin.counts", dict[str, int])


async def test_a_whole_application_stands_on_the_test_s_clock(
    stepwell_layer: Layer[Services, Services], stepwell_clock: ManualClock
) -> None:
    async with build(stepwell_layer) as built:
        env = built.unwrap()
        assert get(env, Clock) is stepwell_clock
        assert isinstance((await get(env, Store).get(counts, "c")).failure(), StoreNotFound)


async def test_a_test_overrides_what_it_swaps(stepwell_layer: Layer[Services, Services]) -> None:
    async with build(stepwell_layer.override(store.layer_noop())) as built:
        absent = await get(built.unwrap(), Store).get(counts, "c")
        assert not isinstance(absent.failure(), StoreNotFound)


async def test_a_test_hears_every_wake(stepwell_layer: Layer[Services, Services]) -> None:
    heard: list[str] = []

    async def wake(run_id: str) -> None:
        heard.append(run_id)

    async with build(stepwell_layer.override(wake_bus.layer_noop(wake=wake))) as built:
        await get(built.unwrap(), WakeBus).wake("run")
    assert heard == ["run"]


def test_loading_the_plugin_imports_nothing_of_stepwell() -> None:
    """It is loaded in every project of an environment that has stepwell, before coverage starts."""
    code = "import sys, _stepwell_pytest; print([name for name in sys.modules if name.split('.')[0] == 'stepwell'])"
    done = subprocess.run([sys.executable, "-I", "-c", code], cwd="/", capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
