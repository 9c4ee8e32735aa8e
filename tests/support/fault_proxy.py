"""A proxy of HTTP on loopback that counts requests, cuts connections, answers with errors, and changes answers."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
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
    body: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a client receives. After `sent_bytes` of the body the connection ends; None: all of it is sent."""

    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    sent_bytes: int | None = None


NO_ANSWER = Answer(0)
"""The connection ends."""
Ask = Callable[[Request], Answer]


@dataclass(slots=True)
class Proxy:
    """A running proxy: `decide` chooses the fault of a request, `change` the body of an answer.

    `meddle` does more: it gets each request and the function that asks the server, and returns the answer.
    """

    url: str
    requests: list[Request] = field(default_factory=list)
    decide: Callable[[Request], Fault | None] = lambda request: None
    change: Callable[[Request, bytes], bytes] = lambda request, body: body
    meddle: Callable[[Request, Ask], Answer] = lambda request, ask: ask(request)
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

    def ask(request: Request) -> Answer:
        dropped = {"content-length", *(_CONDITIONS if proxy.drop_conditions else ())}
        headers = {name: value for name, value in request.headers.items() if name.lower() not in dropped}
        with closing(http.client.HTTPConnection(target.hostname or "", target.port)) as server:
            server.request(request.method, request.path, request.body, headers)
            answer = server.getresponse()
            content = answer.read()
        passed = {name: value for name, value in answer.getheaders() if name.lower() not in _OF_CONNECTION}
        if request.method == "HEAD":
            passed["Content-Length"] = answer.getheader("Content-Length") or "0"
        return Answer(answer.status, passed, content)

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
                request = Request(len(proxy.requests), self.command, self.path, headers, body)
                proxy.requests.append(request)
            fault = proxy.decide(request)
            if fault is Fault.CUT_BEFORE:
                self._send(NO_ANSWER)
                return
            if fault in (Fault.SLOW_DOWN, Fault.DENIED):
                code, words = (503, "SlowDown") if fault is Fault.SLOW_DOWN else (403, "InvalidAccessKeyId")
                self._send(Answer(code, {}, _error(words)))
                return
            answer = proxy.meddle(request, ask)
            if fault is Fault.CUT_AFTER:
                answer = NO_ANSWER
            changed = proxy.change(request, answer.body)
            half = len(changed) // 2 if fault is Fault.HALF else answer.sent_bytes
            self._send(replace(answer, body=changed, sent_bytes=half))

        def _send(self, answer: Answer) -> None:
            if answer.status == NO_ANSWER.status:
                self.close_connection = True
                return
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            if "Content-Length" not in answer.headers:
                self.send_header("Content-Length", str(len(answer.body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(answer.body[: answer.sent_bytes])
            self.wfile.flush()
            if answer.sent_bytes is not None:
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


_CONDITIONS = ("if-match", "if-none-match")
_OF_CONNECTION = {"content-length", "connection", "transfer-encoding", "date", "server"}
