"""The identity of code, over modules that are written to a folder and imported from there."""

from __future__ import annotations

import gc
import importlib
import subprocess
import sys
import textwrap
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import FunctionType, ModuleType

import pytest

from stepwell.core.code_identity import CodeIdentity, Unidentified, identify
from stepwell.core.object_state import attribute

from .identity_programs import CHANGED, CHANGED_CLASSES, SAME, UNKNOWN
from .identity_traps import CHANGED_TRAPS, SAME_TRAPS, UNKNOWN_TRAPS

PACKAGE = "shop_of_identities"


class Program:
    """A package that is loaded again and again, each time from a folder of its own, under the same name."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._loads = 0

    def load(self, text: str) -> ModuleType:
        """Import the package's module `main`. Text after a line `### name` is the module of that name."""
        self.forget()
        self._loads += 1
        folder = self.folder / PACKAGE
        folder.mkdir(parents=True)
        main, *others = textwrap.dedent(text).split("###")
        modules = {"__init__": "", "main": main, **dict(other.strip().split("\n", 1) for other in others)}
        for name, source in modules.items():
            (folder / f"{name}.py").write_text(source)
        sys.path.insert(0, str(self.folder))
        try:
            importlib.invalidate_caches()
            return importlib.import_module(f"{PACKAGE}.main")
        finally:
            sys.path.remove(str(self.folder))

    @property
    def folder(self) -> Path:
        return self.root / f"checkout-{self._loads}"

    def forget(self) -> None:
        for name in [name for name in sys.modules if name.partition(".")[0] == PACKAGE]:
            del sys.modules[name]


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Program]:
    loader = Program(tmp_path)
    yield loader
    loader.forget()


def step_of(module: ModuleType) -> Callable[..., object]:
    step = attribute(module, "step")
    assert callable(step)
    return step


def identity(fn: object) -> CodeIdentity:
    assert callable(fn)
    found = identify(fn)
    assert isinstance(found, CodeIdentity), found
    return found


def reason(fn: object) -> str:
    assert callable(fn)
    found = identify(fn)
    assert isinstance(found, Unidentified), found
    return found.reason


# --- what counts, and what does not ---------------------------------------------


@pytest.mark.parametrize("what", [*CHANGED, *CHANGED_CLASSES, *CHANGED_TRAPS])
def test_another_identity_when_this_changes(what: str, program: Program) -> None:
    before, after = {**CHANGED, **CHANGED_CLASSES, **CHANGED_TRAPS}[what]
    first, again = (identity(step_of(program.load(before))) for _ in range(2))
    assert again == first  # from another folder, with other objects
    assert identity(step_of(program.load(after))).digest != first.digest


@pytest.mark.parametrize("what", [*SAME, *SAME_TRAPS])
def test_the_same_identity_when_this_changes(what: str, program: Program) -> None:
    before, after = {**SAME, **SAME_TRAPS}[what]
    first = identity(step_of(program.load(before)))
    assert identity(step_of(program.load(after))) == first


# --- what has none ------------------------------------------------------------------


@pytest.mark.parametrize("what", [*UNKNOWN, *UNKNOWN_TRAPS])
def test_unidentified_with_a_reason(what: str, program: Program) -> None:
    text, why = {**UNKNOWN, **UNKNOWN_TRAPS}[what]
    found = reason(step_of(program.load(text)))
    assert why in found
    assert found.startswith((PACKAGE, "a callable of"))
    assert "`version=`" in found
    assert "0x" not in found


# --- what is loaded, not what is written --------------------------------------------


def test_c47_an_edit_on_disk_changes_nothing_while_the_old_code_runs(program: Program) -> None:
    module = program.load("from .other import f\ndef step(): return f()\n### other\ndef f(): return 1")
    before = identity(step_of(module))
    for name in ("main", "other"):
        file = program.folder / PACKAGE / f"{name}.py"
        file.write_text(file.read_text().replace("return", "return 7 +"))
    assert identity(step_of(module)) == before
    assert step_of(module)() == 1
    edited = program.load("from .other import f\ndef step(): return 7 + f()\n### other\ndef f(): return 7 + 1")
    assert identity(step_of(edited)).digest != before.digest


MUTABLE = """
LIMIT = 1
WORDS = ["a"]
def helper(x): return x
def step(x=1, *, y=2): return helper(x) + LIMIT + len(WORDS)
def other(x=1, *, y=2): return helper(x) - LIMIT - len(WORDS)
def make():
    count = [0]
    def inner(): return count[0]
    return inner
class C:
    def m(self): return LIMIT
def uses(): return C().m()
closed = make()
"""


def test_what_is_changed_while_the_program_runs_counts(program: Program) -> None:
    module = program.load(MUTABLE)
    step, other, closed, uses = (attribute(module, name) for name in ("step", "other", "closed", "uses"))
    assert isinstance(step, FunctionType)
    assert isinstance(other, FunctionType)
    assert isinstance(closed, FunctionType)
    seen = {identity(step).digest}

    def changed() -> bool:
        digest = identity(step).digest
        known = digest in seen
        seen.add(digest)
        return not known

    assert not changed()
    vars(module)["LIMIT"] = 2
    assert changed()
    vars(module)["WORDS"].append("b")
    assert changed()
    vars(module)["helper"] = other
    assert changed()
    step.__defaults__ = (3,)
    assert changed()
    step.__kwdefaults__ = {"y": 3}
    assert changed()
    step.__code__ = other.__code__
    assert changed()
    assert not changed()

    before = identity(closed).digest
    assert closed.__closure__ is not None
    closed.__closure__[0].cell_contents.append(1)
    appended = identity(closed).digest
    closed.__closure__[0].cell_contents = "text"
    assert len({before, appended, identity(closed).digest}) == 3

    before = identity(uses).digest
    vars(module)["C"].m = other
    assert identity(uses).digest != before


def test_what_was_changed_back_has_its_identity_again(program: Program) -> None:
    module = program.load(MUTABLE)
    before = identity(step_of(module))
    vars(module)["LIMIT"] = 2
    assert identity(step_of(module)) != before
    vars(module)["LIMIT"] = 1
    assert identity(step_of(module)) == before


def test_code_that_has_run_hot_has_the_identity_of_cold_code(program: Program) -> None:
    text = "def step(x): return sum(i * 2.5 for i in range(x)) + x.real"
    cold = identity(step_of(program.load(text)))
    step = step_of(program.load(text))
    for _ in range(2_000):
        step(3)
    assert identity(step) == cold


def made(number: int) -> FunctionType:
    scope: dict[str, object] = {"__name__": PACKAGE}
    exec(f"def step(): return {number}", scope)
    step = scope.pop("step")
    assert isinstance(step, FunctionType)
    return step


def test_code_that_is_gone_is_forgotten_and_never_taken_for_another() -> None:
    held = weakref.ref(made(0).__code__)
    digests: list[str] = []
    for number in range(300):  # most of them where the last one was
        step = made(number)
        digests.append(identity(step).digest)
        if number == 0:
            held = weakref.ref(step.__code__)
        del step
    gc.collect()
    assert held() is None
    assert len(set(digests)) == len(digests)
    assert identity(made(0)).digest == digests[0]


# --- the same in every process ------------------------------------------------------

IN_A_PROCESS = """
import sys
sys.path.insert(0, {folder!r})
from stepwell.core.code_identity import identify
from {package}.main import step
print(identify(step).digest)
"""


def test_every_process_finds_the_same_identity(program: Program) -> None:
    text = "NAMES = {'a', 'b', 'c', 'd'}\ndef step(x): return x in {'e', 'f', 'g'} or x in NAMES or f()\n"
    text += "class C:\n def m(self): return {'h', 'i'}\ndef f(): return C().m() | frozenset('jkl')\n"
    here = identity(step_of(program.load(text)))
    script = IN_A_PROCESS.format(folder=str(program.folder), package=PACKAGE)
    for seed in ("1", "2", "1"):  # the last two read the compiled file
        command = [sys.executable, "-c", script]
        printed = subprocess.run(command, env={"PYTHONHASHSEED": seed}, check=True, capture_output=True, text=True)
        assert printed.stdout.strip() == here.digest


SETS = """
import enum
from dataclasses import dataclass
class E(enum.Enum): A = 1
class A:
    def m(self): return 1
class B:
    def m(self): return 2
class C:
    def m(self): return 3
def f(): return 1
def g(): return 2
@dataclass(frozen=True)
class D:
    kind: object
CLASSES, FUNCTIONS = {A, B, C, D}, frozenset({f, g})
OTHERS = {(E.A, C), (E.A, B), (1, f), D(A), D(g), D(frozenset({B, f}))}
def step(): return CLASSES, FUNCTIONS, OTHERS
"""


def test_every_process_finds_the_same_identity_of_what_is_hashed_by_where_it_lies(program: Program) -> None:
    here = identity(step_of(program.load(SETS)))
    script = IN_A_PROCESS.format(folder=str(program.folder), package=PACKAGE)
    for pad in (1, 1_000, 50_000):  # so that things lie elsewhere
        command = [sys.executable, "-c", f"pad = [type('P', (), {{}}) for _ in range({pad} % 977)]\n{script}"]
        printed = subprocess.run(command, env={}, check=True, capture_output=True, text=True)
        assert printed.stdout.strip() == here.digest


# --- whose code ---------------------------------------------------------------------


def test_the_parts_name_what_was_looked_at(program: Program) -> None:
    module = program.load(
        "import json\nfrom .other import f\nLIMIT = 1\ndef step(): return json.dumps(f(LIMIT))\n"
        "### other\nclass C: pass\ndef f(x): return C()"
    )
    found = identity(step_of(module))
    named = {f"{PACKAGE}.main.step", f"{PACKAGE}.main.LIMIT", f"{PACKAGE}.other.f", f"{PACKAGE}.other.C", "json.dumps"}
    assert found.parts[0] == f"{PACKAGE}.main.step"
    assert set(found.parts) == named
    assert len(found.digest) == 64


def test_a_module_beside_the_package_is_the_programs_own(program: Program, tmp_path: Path) -> None:
    """What no version covers is looked into, whatever its package: here, a module that lies in no site-packages."""
    digests: list[str] = []
    for number in (1, 2):
        beside = ModuleType("beside_the_shop")
        exec(f"def f(): return {number}", vars(beside))
        sys.modules[beside.__name__] = beside
        try:
            digests.append(
                identity(step_of(program.load("from beside_the_shop import f\ndef step(): return f()"))).digest
            )
        finally:
            del sys.modules[beside.__name__]
    assert digests[0] != digests[1]


@pytest.mark.parametrize("text", ["from profile import f\ndef step(): return f()", "import profile as p\nstep = p.C"])
def test_a_module_of_the_program_may_have_taken_a_name_of_the_standard_library(
    text: str, program: Program, tmp_path: Path
) -> None:
    digests: list[str] = []
    standard = sys.modules.pop("profile", None)
    for number in (1, 2):
        folder = tmp_path / f"beside-{number}"
        folder.mkdir()
        (folder / "profile.py").write_text(f"A = {number}\ndef f(): return A\nclass C:\n def m(self): return A")
        sys.path.insert(0, str(folder))
        try:
            digests.append(identity(step_of(program.load(text))).digest)
        finally:
            sys.path.remove(str(folder))
            del sys.modules["profile"]
    if standard is not None:
        sys.modules["profile"] = standard
    assert digests[0] != digests[1]


STANDARD = """
from colorsys import rgb_to_hsv
import concurrent.futures
def step():
    from colorsys import ONE_THIRD, rgb_to_hls
    import colorsys
    return concurrent.futures.ThreadPoolExecutor
"""


def test_a_library_that_is_loaded_meanwhile_changes_nothing(program: Program) -> None:
    """What is imported within, and what a module of a library finds only when it is asked."""
    step = step_of(program.load(STANDARD))
    futures = sys.modules["concurrent.futures"]
    vars(futures).pop("ThreadPoolExecutor", None)
    sys.modules.pop("colorsys")
    before = identity(step).digest
    step()
    assert "colorsys" in sys.modules
    assert "ThreadPoolExecutor" in vars(futures)
    assert identity(step).digest == before


def test_an_installed_function_counts_by_name_and_is_not_looked_into(program: Program) -> None:
    found = identity(step_of(program.load("from click import echo\nimport json\ndef step(): echo(json.dumps(1))")))
    assert found.parts == (f"{PACKAGE}.main.step", "click.utils.echo", "json.dumps")


def double(x: int) -> int:
    return 2 * x


@pytest.mark.parametrize("fn", [len, str.upper, "x".join, int, partial(double, 1), double, lambda: 1, dict.fromkeys])
def test_plain_callables_have_an_identity(fn: Callable[..., object]) -> None:
    assert identity(fn) == identity(fn)


def test_plain_callables_differ() -> None:
    fns: list[object] = [len, max, str.upper, str.lower, bytes.upper, "x".join, "y".join, int, float, double, lambda: 1]
    assert len({identity(fn).digest for fn in fns}) == len(fns)


@pytest.mark.parametrize("called", ["msgspec.json.encode(1)", "msgspec.json.decode(b'1')", "pydantic_core.to_json(1)"])
def test_a_function_of_an_installed_package_that_is_written_in_c_counts_by_its_name(
    called: str, program: Program
) -> None:
    found = [
        identify(program.load(f"import msgspec.json, pydantic_core\ndef step(): return {text}").step)
        for text in (called, called, "msgspec.json.Encoder")
    ]
    assert all(isinstance(each, CodeIdentity) for each in found)
    digests = [each.digest for each in found if isinstance(each, CodeIdentity)]
    assert digests[0] == digests[1] != digests[2]
