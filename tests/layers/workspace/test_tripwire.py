"""What the tripwire tells of a body, what it leaves out, and what it says that it cannot see."""

from __future__ import annotations

import _thread
import asyncio
import ctypes
import json
import linecache
import os
import shutil
import socket
import sqlite3
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import chdir, suppress
from contextvars import copy_context
from functools import partial
from pathlib import Path

import pytest

from stepwell.core.evidence import Ambient, AmbientKind
from stepwell.layers.workspace.audit_events import DETAIL_LENGTH
from stepwell.layers.workspace.tripwire import EVENTS, Watch, unwatched, watch

HOSTNAME = "/etc/hostname"
READ_HOSTNAME = Ambient("ambient_read", HOSTNAME)


def read(path: str | Path) -> None:
    with open(path, "rb") as file:
        file.read()


def watched(body: Callable[[], object], *roots: Path) -> Watch:
    with watch(map(str, roots)) as seen:
        body()
    return seen


def opened(path: str | Path, flags: int) -> None:
    os.close(os.open(path, flags, 0o600))


in_shell: Callable[[str], int] = vars(os)["system"]
"""`os.system`, of which a checker would say that there is something better."""


def in_interpreter(script: str, folder: Path) -> object:
    """What a script prints as JSON, executed by an interpreter of its own which finds modules in the folder."""
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


# --- who is watched -------------------------------------------------------------


def test_b_05_a_file_of_the_host_that_a_body_opens_is_told() -> None:
    seen = watched(lambda: read(HOSTNAME))
    assert (seen.events, seen.reads, seen.level, seen.more) == (
        (READ_HOSTNAME,),
        frozenset({HOSTNAME}),
        "tripwire",
        False,
    )


def test_a_body_that_does_nothing_outside_leaves_no_event() -> None:
    seen = watched(lambda: sorted(range(10)))
    assert (seen.events, seen.reads, seen.level) == ((), frozenset(), "tripwire")


def test_nothing_is_told_before_and_after_a_watch(tmp_path: Path) -> None:
    read(HOSTNAME)
    seen = watched(lambda: None)
    read(HOSTNAME)
    assert seen.events == ()


def test_each_event_is_told_once() -> None:
    def body() -> None:
        for _ in range(3):
            read(HOSTNAME)

    assert watched(body).events == (READ_HOSTNAME,)


async def test_a_body_on_a_thread_is_watched_by_a_copy_of_the_context() -> None:
    with ThreadPoolExecutor(1) as threads:
        threads.submit(int).result()  # the thread is there, with a context of its own
        with watch() as seen:
            within = copy_context()
            await asyncio.get_running_loop().run_in_executor(threads, lambda: within.run(read, HOSTNAME))
    assert (seen.events, seen.level) == ((READ_HOSTNAME,), "tripwire")


async def test_an_async_body_is_watched_and_no_other_task_is() -> None:
    others_turn, ours = asyncio.Event(), asyncio.Event()

    async def other() -> None:
        await others_turn.wait()
        read("/etc/passwd")
        ours.set()

    task = asyncio.create_task(other())
    with watch() as seen:
        others_turn.set()
        await ours.wait()
        read(HOSTNAME)
    await task
    assert seen.events == (READ_HOSTNAME,)


async def test_a_task_that_a_body_makes_is_watched_until_the_body_ends() -> None:
    go_on = asyncio.Event()

    async def left_behind() -> None:
        read(HOSTNAME)
        await go_on.wait()
        read("/etc/passwd")

    with watch() as seen:
        task = asyncio.create_task(left_behind())
        await asyncio.sleep(0)
    go_on.set()
    await task
    assert seen.events == (READ_HOSTNAME,)


async def test_async_bodies_at_the_same_time_see_their_own(tmp_path: Path) -> None:
    together = asyncio.Barrier(3)

    async def body(name: str) -> frozenset[str]:
        with watch() as seen:
            for number in range(5):
                await together.wait()
                with suppress(FileNotFoundError):
                    read(tmp_path / f"{name}-{number}")
        return seen.reads

    found = await asyncio.gather(*map(body, "abc"))
    assert found == [frozenset(str(tmp_path / f"{name}-{number}") for number in range(5)) for name in "abc"]


def test_bodies_on_threads_at_the_same_time_see_their_own(tmp_path: Path) -> None:
    together = threading.Barrier(4)

    def body(name: str) -> frozenset[str]:
        with watch() as seen:
            for number in range(50):
                together.wait()
                with suppress(FileNotFoundError):
                    read(tmp_path / f"{name}-{number}")
        return seen.reads

    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(body, "abcd"))
    assert found == [frozenset(str(tmp_path / f"{name}-{number}") for number in range(50)) for name in "abcd"]


def test_threads_of_one_body_are_told_together(tmp_path: Path) -> None:
    def body(name: str) -> None:
        for number in range(20):
            with suppress(FileNotFoundError):
                read(tmp_path / f"{name}-{number}")

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(int, range(4)))
        with watch() as seen:
            contexts = [(copy_context(), name) for name in "abcd"]
            with unwatched():
                working = [threads.submit(within.run, body, name) for within, name in contexts]
            for each in working:
                each.result()
    assert (len(seen.reads), len(seen.events), seen.level) == (80, 80, "tripwire")


def test_a_watch_within_a_watch_is_seen_by_both(tmp_path: Path) -> None:
    with watch() as outer:
        read(HOSTNAME)
        with watch() as inner:
            read("/etc/passwd")
        read("/etc/group")
    told = [Ambient("ambient_read", path) for path in (HOSTNAME, "/etc/passwd", "/etc/group")]
    assert (outer.events, inner.events) == (tuple(told), (told[1],))


def test_a_thread_that_is_started_within_lowers_the_outer_level_too() -> None:
    with watch() as outer, watch() as inner:
        threading.Thread(target=int).start()
    assert (outer.level, inner.level) == ("cooperative", "cooperative")


def test_own_work_on_behalf_of_a_body_belongs_to_nobody() -> None:
    @unwatched()
    def own_work() -> None:
        read("/etc/group")

    def body() -> None:
        with unwatched():
            read("/etc/passwd")
            threading.Thread(target=int).start()
        own_work()
        read(HOSTNAME)

    seen = watched(body)
    assert (seen.events, seen.level) == ((READ_HOSTNAME,), "tripwire")


def test_a_body_that_raises_is_told_of_and_raises() -> None:
    def body() -> None:
        read(HOSTNAME)
        raise ZeroDivisionError

    with watch() as outer, pytest.raises(ZeroDivisionError):
        watched(body)
    assert outer.events == (READ_HOSTNAME,)


# --- what is told -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "kinds"),
    [
        ("rb", ["ambient_read"]),
        ("r+b", ["ambient_read", "ambient_write"]),
        ("wb", ["ambient_write"]),
        ("w+b", ["ambient_write"]),
        ("ab", ["ambient_write"]),
        ("a+b", ["ambient_read", "ambient_write"]),
    ],
)
def test_the_mode_says_whether_a_file_is_read_or_written(tmp_path: Path, mode: str, kinds: list[AmbientKind]) -> None:
    path = tmp_path / "file"
    path.touch()
    seen = watched(lambda: open(path, mode).close())
    assert seen.events == tuple(Ambient(kind, str(path)) for kind in kinds)
    assert seen.reads == (frozenset({str(path)}) if "ambient_read" in kinds else frozenset())


@pytest.mark.parametrize(
    ("flags", "kinds"),
    [
        (os.O_RDONLY, ["ambient_read"]),
        (os.O_RDWR, ["ambient_read", "ambient_write"]),
        (os.O_WRONLY, ["ambient_write"]),
        (os.O_RDONLY | os.O_CREAT, ["ambient_read", "ambient_write"]),
        (os.O_RDWR | os.O_CREAT, ["ambient_read", "ambient_write"]),
        (os.O_RDWR | os.O_TRUNC, ["ambient_write"]),
    ],
)
def test_flags_say_whether_a_file_is_read_or_written(tmp_path: Path, flags: int, kinds: list[AmbientKind]) -> None:
    path = tmp_path / "file"
    path.touch()
    assert watched(lambda: opened(path, flags)).events == tuple(Ambient(kind, str(path)) for kind in kinds)


def test_a_file_that_is_made_is_written_and_not_read(tmp_path: Path) -> None:
    path = tmp_path / "new"
    seen = watched(lambda: opened(path, os.O_RDWR | os.O_CREAT | os.O_EXCL))
    assert (seen.events, seen.reads) == ((Ambient("ambient_write", str(path)),), frozenset())


@pytest.mark.skipif(sys.platform != "linux", reason="there only can a file be without a name, or a place be held")
def test_a_nameless_file_is_written_and_a_place_that_is_held_is_neither(tmp_path: Path) -> None:
    assert watched(lambda: opened(tmp_path, os.O_PATH)).events == ()
    nameless = watched(lambda: opened(tmp_path, os.O_TMPFILE | os.O_RDWR))
    assert (nameless.events, nameless.reads) == ((Ambient("ambient_write", str(tmp_path)),), frozenset())


def changing(folder: Path) -> dict[str, tuple[Callable[[], object], list[str]]]:
    """By name, calls that change the host, and the names that they change. The folder holds `file` and `other/`."""
    file, other, new = folder / "file", folder / "other", folder / "new"
    return {
        "chmod": (lambda: file.chmod(0o600), ["file"]),
        "link": (lambda: os.link(file, new), ["file", "new"]),
        "mkdir": (new.mkdir, ["new"]),
        "remove": (file.unlink, ["file"]),
        "rename": (lambda: file.rename(new), ["file", "new"]),
        "replace": (lambda: file.replace(new), ["file", "new"]),
        "rmdir": (other.rmdir, ["other"]),
        "symlink": (lambda: new.symlink_to(file), ["new"]),
        "truncate": (lambda: os.truncate(file, 0), ["file"]),
        "utime": (lambda: os.utime(file), ["file"]),
        "bytes": (lambda: os.mkdir(os.fsencode(new)), ["new"]),
    }


@pytest.mark.parametrize("name", list(changing(Path())))
def test_a_change_of_the_host_is_told(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "other").mkdir()
    change, names = changing(tmp_path)[name]
    seen = watched(change)
    assert set(seen.events) == {Ambient("ambient_write", str(tmp_path / each)) for each in names}
    assert seen.reads == frozenset()


def walk(path: str) -> None:
    assert list(os.walk(path))


def iterate(path: str) -> None:
    list(Path(path).iterdir())


def scan(path: str) -> None:
    os.scandir(path).close()


@pytest.mark.parametrize("look", [os.listdir, scan, walk, iterate])
def test_a_directory_that_is_listed_is_read(tmp_path: Path, look: Callable[[str], object]) -> None:
    seen = watched(lambda: look(str(tmp_path)))
    assert (seen.events, seen.reads) == ((Ambient("ambient_read", str(tmp_path)),), frozenset({str(tmp_path)}))


def test_a_tree_that_is_removed_is_told_by_its_path(tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree/file").touch()
    seen = watched(lambda: shutil.rmtree(tmp_path / "tree"))
    assert Ambient("ambient_write", str(tmp_path / "tree")) in seen.events


@pytest.mark.parametrize("spelling", ["{}/one.db", "file:{}/one.db?mode=rwc", "file:///{}/one%2Edb"])
def test_a_database_is_read_and_written(tmp_path: Path, spelling: str) -> None:
    path = str(tmp_path / "one.db")
    seen = watched(lambda: sqlite3.connect(spelling.format(tmp_path), uri=True).close())
    assert set(seen.events) == {Ambient("ambient_read", path), Ambient("ambient_write", path)}
    assert seen.reads == {path}


def test_a_database_in_memory_is_no_file() -> None:
    def body() -> None:
        for name in (":memory:", "", "file:shared?mode=memory"):
            sqlite3.connect(name, uri=True).close()

    assert watched(body).events == ()


@pytest.mark.parametrize(
    ("start", "detail"),
    [
        (lambda: subprocess.run(["/bin/true", "secret"], check=True), "/bin/true"),
        (lambda: subprocess.run([Path("/bin/true")], check=True), "/bin/true"),
        (lambda: os.waitpid(os.posix_spawn("/bin/true", ["true", "secret"], {}), 0), "/bin/true"),
        (lambda: in_shell("true secret"), "/bin/sh"),
    ],
    ids=["run", "path", "posix_spawn", "system"],
)
def test_a_process_is_told_without_its_arguments(start: Callable[[], object], detail: str) -> None:
    assert watched(start).events == (Ambient("ambient_process", detail),)


def test_a_fork_and_an_exec_are_told(tmp_path: Path) -> None:
    script = """
import json, os
from stepwell.layers.workspace.tripwire import watch
with watch() as seen:
    if (child := os.fork()) == 0:
        os._exit(0)
    os.waitpid(child, 0)
    try:
        os.execv("/nowhere/at/all", ["all"])
    except OSError:
        pass
print(json.dumps([[each.kind, each.detail] for each in seen.events]))
"""
    assert in_interpreter(script, tmp_path) == [["ambient_process", "fork"], ["ambient_process", "/nowhere/at/all"]]


def test_sockets_are_told_by_what_they_reach() -> None:
    def body() -> None:
        with socket.socket() as one:
            one.bind(("127.0.0.1", 0))
        socket.getaddrinfo("127.0.0.1", 80, type=socket.SOCK_STREAM)

    made, bound, asked = watched(body).events
    assert made == Ambient("ambient_socket", f"socket {int(socket.AF_INET)}")
    assert bound == Ambient("ambient_socket", "bind 127.0.0.1 0")
    assert asked.detail.startswith("getaddrinfo 127.0.0.1 80")


def test_an_event_loop_of_a_body_reaches_nobody() -> None:
    async def nothing() -> None:
        await asyncio.sleep(0)

    def body() -> None:
        asyncio.run(nothing())

    seen = watched(body)
    assert (seen.events, seen.level) == ((), "tripwire")


def test_a_socket_of_this_host_is_told_when_it_is_bound(tmp_path: Path) -> None:
    def body() -> None:
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(str(tmp_path / "s"))

    assert watched(body).events == (Ambient("ambient_socket", f"bind {tmp_path / 's'}"),)


def test_b_08_native_code_is_told_when_it_is_loaded_and_what_it_reads_is_not() -> None:
    loaded = watched(lambda: ctypes.CDLL(None))
    assert (loaded.events, loaded.level) == ((Ambient("ambient_native", "the interpreter itself"),), "tripwire")

    libc = ctypes.CDLL(None)
    found: list[int] = []

    def body() -> None:
        descriptor = libc.open(HOSTNAME.encode(), os.O_RDONLY)
        found.append(len(os.read(descriptor, 100)))
        os.close(descriptor)

    seen = watched(body)
    assert found[0] > 0
    assert (seen.events, seen.reads, seen.level) == ((), frozenset(), "tripwire")


def test_what_raises_no_event_is_not_seen() -> None:
    seen = watched(lambda: (os.stat(HOSTNAME), os.path.exists(HOSTNAME), os.readlink("/proc/self/exe")))
    assert (seen.events, seen.level) == ((), "tripwire")


# --- how paths are told -------------------------------------------------------------


def test_a_relative_path_is_told_where_it_leads(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with chdir(tmp_path):
        assert watched(lambda: read("./file")).reads == {str(tmp_path / "file")}
        assert watched(os.listdir).reads == {str(tmp_path)}


def test_a_path_below_a_working_directory_that_is_gone_stays_relative(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()

    def body() -> None:
        with suppress(FileNotFoundError):
            read("file")

    with chdir(gone):
        gone.rmdir()
        try:
            seen = watched(body)
        finally:
            os.chdir(tmp_path)
    assert (seen.events, seen.reads, seen.level) == ((Ambient("ambient_read", "file"),), frozenset(), "tripwire")


def test_a_path_below_a_directory_that_is_not_told_stays_relative(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    directory = os.open(tmp_path, os.O_RDONLY)

    def body() -> None:
        os.close(os.open("file", os.O_RDONLY, dir_fd=directory))
        os.mkdir("new", dir_fd=directory)
        os.listdir(directory)

    seen = watched(body)
    os.close(directory)
    assert seen.events == (Ambient("ambient_read", "file"), Ambient("ambient_write", "new"))
    assert seen.reads == frozenset()


def test_a_descriptor_that_is_opened_again_is_no_path(tmp_path: Path) -> None:
    descriptor = os.open(HOSTNAME, os.O_RDONLY)
    assert watched(lambda: open(descriptor, "rb").close()).events == ()


def test_the_device_that_holds_nothing_is_no_event() -> None:
    assert watched(lambda: read(os.devnull)).events == ()


def test_a_name_that_is_no_text_can_be_told(tmp_path: Path) -> None:
    path = os.fsencode(tmp_path) + b"/\xff"
    seen = watched(lambda: os.mkdir(path))
    assert seen.events == (Ambient("ambient_write", f"{tmp_path}/\\udcff"),)
    json.dumps(seen.events[0].detail).encode()


# --- the toolchain --------------------------------------------------------------------


def test_b_10_a_first_import_of_the_library_is_no_event(tmp_path: Path) -> None:
    script = """
import json, sys
from stepwell.layers.workspace.tripwire import watch
gone = [sys.modules.pop(name, None) for name in ("decimal", "_decimal", "_pydecimal")]
with watch(["."]) as seen:
    import decimal, wave, zipfile
print(json.dumps([[each.detail for each in seen.events], sorted(seen.reads), seen.level, "wave" in sys.modules]))
"""
    assert in_interpreter(script, tmp_path) == [[], [], "tripwire", True]


def test_what_is_read_of_the_interpreter_is_no_event_and_what_is_written_there_is() -> None:
    library = Path(os.__file__)
    assert watched(lambda: read(library)).events == ()
    assert watched(lambda: os.utime(library)).events == (Ambient("ambient_write", str(library)),)


def test_the_nearest_of_workspace_and_toolchain_decides() -> None:
    library = Path(os.__file__)
    assert watched(lambda: read(library), library.parent / "json").reads == frozenset()
    assert watched(lambda: read(json.__file__), library.parent / "json").reads == {json.__file__}
    assert watched(lambda: read(library), Path("/")).reads == frozenset()


def test_a_module_of_the_workspace_is_no_event_and_its_data_is(tmp_path: Path) -> None:
    (tmp_path / "data.json").write_text("{}")
    (tmp_path / "helper.py").write_text("import pkgutil\ndef look(): return pkgutil.get_data('helper', 'data.json')\n")
    script = """
import json, os, sys
from stepwell.layers.workspace.tripwire import watch
sys.dont_write_bytecode = False
with watch([os.getcwd()]) as imported:
    import helper
with watch([os.getcwd()]) as used:
    helper.look()
print(json.dumps([imported.events, sorted(used.reads)]))
"""
    assert in_interpreter(script, tmp_path) == [[], [str(tmp_path / "data.json")]]
    assert list(tmp_path.glob("__pycache__/helper*.pyc")), "it was compiled and kept"


def test_a_traceback_is_no_event_and_a_line_of_data_is(tmp_path: Path) -> None:
    code, data = tmp_path / "failing.py", tmp_path / "data.txt"
    code.write_text("1 / 0\n")
    data.write_text("one\n")

    def body() -> None:
        try:
            exec(compile("1 / 0\n", str(code), "exec"))
        except ZeroDivisionError:
            assert "1 / 0" in traceback.format_exc()

    assert watched(body, tmp_path).events == ()
    assert watched(lambda: linecache.getline(str(data), 1)).reads == {str(data)}


def test_an_error_of_syntax_is_no_event() -> None:
    def body() -> None:
        with suppress(SyntaxError):
            compile("1 +", "<string>", "exec")

    assert watched(body).events == ()


# --- threads ---------------------------------------------------------------------------


def test_a_thread_that_a_body_starts_is_told_and_what_it_reads_is_not() -> None:
    def body() -> None:
        thread = threading.Thread(target=read, args=(HOSTNAME,), name="reader")
        thread.start()
        thread.join()

    seen = watched(body)
    assert (seen.events, seen.level) == ((Ambient("thread_started", "reader"),), "cooperative")


def test_a_thread_without_an_object_is_told() -> None:
    done = threading.Event()
    seen = watched(lambda: (_thread.start_new_thread(done.set, ()), done.wait()))
    assert (seen.events, seen.level) == ((Ambient("thread_started", "Event.set"),), "cooperative")


def test_a_pool_that_starts_a_thread_is_told() -> None:
    def body() -> None:
        with ThreadPoolExecutor(1, thread_name_prefix="pool") as threads:
            threads.submit(int).result()

    seen = watched(body)
    assert (seen.events, seen.level) == ((Ambient("thread_started", "pool_0"),), "cooperative")


def test_work_for_a_thread_that_was_there_is_not_seen() -> None:
    with ThreadPoolExecutor(1) as threads:
        threads.submit(int).result()
        seen = watched(lambda: threads.submit(read, HOSTNAME).result())
    assert (seen.events, seen.level) == ((), "tripwire")


def test_a_thread_of_somebody_else_lowers_no_level() -> None:
    started, ended = threading.Event(), threading.Event()

    def elsewhere() -> None:
        started.wait()
        threading.Thread(target=int).start()
        ended.set()

    def body() -> None:
        started.set()
        ended.wait()

    thread = threading.Thread(target=elsewhere)
    thread.start()
    seen = watched(body)
    thread.join()
    assert (seen.events, seen.level) == ((), "tripwire")


def test_starting_a_thread_answers_and_raises_as_ever() -> None:
    watched(lambda: None)
    done = threading.Event()
    assert isinstance(_thread.start_new_thread(done.set, (), {}), int)
    assert done.wait()
    for wrong in ((), (1, ()), (done.set, 1)):
        with pytest.raises(TypeError):
            partial(_thread.start_new_thread, *wrong)()


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="there is an event for it from 3.12 on")
def test_where_somebody_else_starts_threads_the_level_is_lowered(tmp_path: Path) -> None:
    script = """
import json, threading
from stepwell.layers.workspace.tripwire import watch
with watch() as before:
    pass
ours, levels = threading._start_new_thread, []
threading._start_new_thread = lambda *arguments: ours(*arguments)
with watch() as replaced:
    pass
print(json.dumps([before.level, replaced.level]))
"""
    assert in_interpreter(script, tmp_path) == ["tripwire", "cooperative"]


# --- staying out of the way ------------------------------------------------------------


def test_what_is_more_than_the_limit_is_said_so(tmp_path: Path) -> None:
    def body(number: int) -> None:
        for each in range(number):
            with suppress(FileNotFoundError):
                read(tmp_path / str(each))

    assert not watched(lambda: body(EVENTS)).more
    seen = watched(lambda: body(EVENTS + 1))
    assert (len(seen.events), seen.more, len(seen.reads)) == (EVENTS, True, EVENTS + 1)


def test_a_long_detail_is_cut() -> None:
    def body() -> None:
        with suppress(OSError):
            read("/" + "x" * 10_000)

    (event,) = watched(body).events
    assert event.detail == "/" + "x" * (DETAIL_LENGTH - 1)


class Broken:
    """A path that cannot say which."""

    def __fspath__(self) -> str:
        raise ZeroDivisionError


def test_an_event_that_is_not_understood_raises_nothing_and_lowers_the_level() -> None:
    with watch() as outer, watch() as inner:
        sys.audit("open", "of another form")
        sys.audit("sqlite3.connect", Broken())
    assert (outer.level, inner.level, outer.events) == ("cooperative", "cooperative", ())


def test_a_body_at_the_end_of_its_stack_raises_what_it_would_raise() -> None:
    def body() -> None:
        read(HOSTNAME)
        body()

    with pytest.raises(RecursionError), watch() as seen:
        body()
    assert READ_HOSTNAME in seen.events


def test_other_hooks_are_heard_and_may_refuse(tmp_path: Path) -> None:
    script = """
import json, sys
from stepwell.layers.workspace.tripwire import watch
heard = []
def other(event, arguments):
    if event == "open" and arguments[0] == "/etc/hostname":
        heard.append(event)
    if event == "open" and arguments[0] == "/etc/passwd":
        raise PermissionError("no")
with watch() as seen:
    pass
sys.addaudithook(other)
with watch() as seen:
    open("/etc/hostname").close()
    try:
        open("/etc/passwd").close()
    except PermissionError as error:
        heard.append(str(error))
print(json.dumps([heard, sorted(seen.reads), seen.level]))
"""
    assert in_interpreter(script, tmp_path) == [["open", "no"], ["/etc/hostname", "/etc/passwd"], "tripwire"]


@pytest.mark.parametrize("error", ["RuntimeError", "PermissionError"])
def test_where_the_hook_is_refused_the_level_is_cooperative(tmp_path: Path, error: str) -> None:
    script = f"""
import json, sys
from stepwell.layers.workspace.tripwire import watch
def other(event, arguments):
    if event == "sys.addaudithook":
        raise {error}
sys.addaudithook(other)
with watch() as seen:
    open("/etc/hostname").close()
print(json.dumps([len(seen.events), seen.level]))
"""
    assert in_interpreter(script, tmp_path) == [0, "cooperative"]


def test_what_ends_with_the_interpreter_opens_files_as_ever(tmp_path: Path) -> None:
    script = """
import os, sys
from stepwell.layers.workspace import tripwire
class Late:
    def __del__(self, open=os.open, tell=os.write, kept=tripwire):  # when the modules have been taken down
        open("/etc/hostname", 0)
        tell(1, b"true")
watching = tripwire.watch()
seen = watching.__enter__()
sys.late = Late()
"""
    assert in_interpreter(script, tmp_path) is True
