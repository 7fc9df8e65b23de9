"""A small server of the HTTP cache protocol on the loopback address, which can misbehave, one request at a time."""

from __future__ import annotations

import asyncio
import shutil
import socket
import subprocess
from collections import deque
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import TypeAlias

WAIT_S = 60


class Handler(BaseHTTPRequestHandler):
    """Keeps what is PUT and gives it back, unless the next act of the server's script is to do something else."""

    protocol_version = "HTTP/1.1"

    @property
    def state(self) -> Server:
        assert isinstance(self.server, Listener)
        return self.server.state

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()
        except ConnectionError:  # the other side broke it off, as is tried here
            self.close_connection = True

    def log_message(self, format: str, *args: object) -> None: ...

    def _serve(self) -> None:
        state = self.state
        state.seen.append((self.command, self.path))
        state.headers.append({name.lower(): value for name, value in self.headers.items()})
        if state.script:
            state.script.popleft()(self)
        else:
            self.behave()

    do_GET = do_HEAD = do_PUT = do_DELETE = _serve

    def behave(self) -> None:
        kept = self.state.kept
        match self.command:
            case "PUT":
                new = self.path not in kept
                kept[self.path] = self.body()
                self.answer(201 if new else 204)
            case "DELETE":
                self.answer(404 if kept.pop(self.path, None) is None else 204)
            case _:
                data = kept.get(self.path)
                self.answer(404 if data is None else 200, data or b"")

    def body(self) -> bytes:
        return self.rfile.read(int(self.headers["Content-Length"]))

    def answer(self, status: int, data: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        for name, value in {"Content-Length": str(len(data)), **named}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)


class Listener(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, state: Server) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.state = state


Act: TypeAlias = Callable[[Handler], object]


@dataclass
class Server:
    """What it keeps, what it was asked, and what it does next in place of behaving."""

    kept: dict[str, bytes] = field(default_factory=dict[str, bytes])
    seen: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    headers: list[dict[str, str]] = field(default_factory=list[dict[str, str]])
    script: deque[Act] = field(default_factory=deque[Act])
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def then(self, *acts: Act) -> None:
        self.script.extend(acts)


@contextmanager
def serving() -> Generator[Server]:
    state = Server()
    with Listener(state) as listener:
        state.port = listener.server_address[1]
        thread = Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield state
        finally:
            listener.shutdown()
            thread.join()


# --- acts -------------------------------------------------------------------


def status(number: int, data: bytes = b"", **headers: str) -> Act:
    """Reads what is sent, and answers with a status."""

    def act(handler: Handler) -> None:
        if handler.command == "PUT":
            _ = handler.body()
        handler.answer(number, data, **headers)

    return act


def raw(data: bytes) -> Act:
    """Sends these bytes in place of an answer, and closes the connection."""

    def act(handler: Handler) -> None:
        handler.close_connection = True
        handler.wfile.write(data)

    return act


@dataclass
class Held:
    """Sends some bytes, and nothing more until it is let go, or the other side breaks the connection off."""

    data: bytes = b""
    reached: Event = field(default_factory=Event)
    broken_off: Event = field(default_factory=Event)

    def __call__(self, handler: Handler) -> None:
        handler.close_connection = True
        handler.wfile.write(self.data)
        self.reached.set()
        try:
            while handler.connection.recv(1 << 16):
                pass
        except OSError:
            pass
        self.broken_off.set()

    async def is_reached(self) -> None:
        assert await asyncio.to_thread(self.reached.wait, WAIT_S)

    async def is_broken_off(self) -> None:
        assert await asyncio.to_thread(self.broken_off.wait, WAIT_S)


# --- a server of other people's ----------------------------------------------

NGINX = shutil.which("nginx")

CONFIGURATION = """
daemon off; user root; worker_processes 1; pid {root}/pid; error_log {root}/error.log;
events {{ worker_connections 64; }}
http {{
    access_log off; client_max_body_size 0; client_body_temp_path {root}/body;
    fastcgi_temp_path {root}/f; proxy_temp_path {root}/p; scgi_temp_path {root}/s; uwsgi_temp_path {root}/u;
    server {{
        listen 127.0.0.1:{port};
        location / {{ root {root}/kept; dav_methods PUT DELETE; create_full_put_path on; }}
    }}
}}
"""


@contextmanager
def nginx(root: Path) -> Generator[str]:
    """nginx as a cache server, by its address. It is handed a socket that listens already: nobody waits for it."""
    assert NGINX is not None
    (root / "kept").mkdir(parents=True)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
        (root / "conf").write_text(CONFIGURATION.format(root=root, port=port))
        descriptor = listening.fileno()
        process = subprocess.Popen(
            [NGINX, "-p", str(root), "-c", str(root / "conf"), "-e", str(root / "error.log")],
            env={"NGINX": f"{descriptor};"},
            pass_fds=[descriptor],
            stderr=subprocess.DEVNULL,
        )
    try:
        # An answer says that it is up: a signal that comes before that is lost on it.
        asked = HTTPConnection("127.0.0.1", port, timeout=WAIT_S)
        asked.request("HEAD", "/")
        asked.getresponse().close()
        asked.close()
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        try:
            _ = process.wait(WAIT_S)
        finally:
            process.kill()
