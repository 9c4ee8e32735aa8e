"""A proxy of HTTP on loopback that counts requests, cuts connections, answers with errors, and changes answers."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum, auto
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit


class Fault(Enum):
    """What happens to a request."""

    CUT_BEFORE = auto()
    """The connection ends, and the server sees nothing."""
    CUT_AFTER = auto()
    """The server answers, and the connection ends without the answer."""
    HALF = auto()
    """The connection ends in the middle of the answer."""
    SLOW_DOWN = auto()
    """503 SlowDown: the store asks for fewer requests."""
    DENIED = auto()
    """403, with the access key in the answer, as AWS does."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request. `number` counts from 0."""

    number: int
    method: str
    path: str
    headers: dict[str, str]


@dataclass(slots=True)
class Proxy:
    """A running proxy: `decide` chooses the fault of a request, `change` the body of an answer."""

    url: str
    requests: list[Request] = field(default_factory=list)
    decide: Callable[[Request], Fault | None] = lambda request: None
    change: Callable[[Request, bytes], bytes] = lambda request, body: body
    drop_conditions: bool = False
    """Whether If-Match and If-None-Match do not reach the server."""
    guard: threading.Lock = field(default_factory=threading.Lock)

    def gets_of(self, key: str) -> int:
        """Return how many times an object was asked for."""
        return sum(each.method == "GET" and each.path.endswith(key) for each in self.requests)


def _error(code: str) -> bytes:
    return f"<Error><Code>{code}</Code><AWSAccessKeyId>AKIDLOOPBACKONLY</AWSAccessKeyId></Error>".encode()


@contextmanager
def in_front_of(url: str) -> Iterator[Proxy]:
    """Run a proxy in front of a server for the block."""
    target = urlsplit(url)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        # Otherwise the body of an answer waits 40 ms, until its headers are acknowledged.
        disable_nagle_algorithm = True

        def log_message(self, format: str, *args: object) -> None:
            pass

        def handle_one_request(self) -> None:
            try:
                super().handle_one_request()
            except OSError:
                self.close_connection = True

        def _forward(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            headers = dict(self.headers.items())
            with proxy.guard:
                request = Request(len(proxy.requests), self.command, self.path, headers)
                proxy.requests.append(request)
            fault = proxy.decide(request)
            if fault is Fault.CUT_BEFORE:
                self.close_connection = True
                return
            if fault in (Fault.SLOW_DOWN, Fault.DENIED):
                code, words = (503, "SlowDown") if fault is Fault.SLOW_DOWN else (403, "InvalidAccessKeyId")
                self._answer(code, {}, _error(words))
                return
            if proxy.drop_conditions:
                headers = {name: value for name, value in headers.items() if name.lower() not in _CONDITIONS}
            server = http.client.HTTPConnection(target.hostname or "", target.port)
            server.request(self.command, self.path, body, headers)
            answer = server.getresponse()
            content = answer.read()
            server.close()
            if fault is Fault.CUT_AFTER:
                self.close_connection = True
                return
            changed = proxy.change(request, content)
            passed = {name: value for name, value in answer.getheaders() if name.lower() not in _OF_CONNECTION}
            if self.command == "HEAD":
                passed["Content-Length"] = answer.getheader("Content-Length") or "0"
            half = len(changed) // 2 if fault is Fault.HALF else None
            self._answer(answer.status, passed, changed, only=half)

        def _answer(self, code: int, headers: dict[str, str], body: bytes, *, only: int | None = None) -> None:
            self.send_response(code)
            for name, value in headers.items():
                self.send_header(name, value)
            if "Content-Length" not in headers:
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body[:only])
            self.wfile.flush()
            if only is not None:
                self.close_connection = True

        do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = _forward  # noqa: N815 - names of the library

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    proxy = Proxy(f"http://127.0.0.1:{server.server_address[1]}")
    # A block ends only after such an interval.
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        server.shutdown()
        server.server_close()


_CONDITIONS = {"if-match", "if-none-match"}
_OF_CONNECTION = {"content-length", "connection", "transfer-encoding", "date", "server"}
