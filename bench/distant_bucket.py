"""How long the reading of one large object of a distant store takes: each request waits before it is answered.

    python -m bench.distant_bucket [MIB [DELAY_MS]]

The server is a process of its own, and has as much of S3 as the reading needs. Prints the seconds of reading piece by
piece (`read`) and of fetching the whole (`whole`), the requests, and the processor seconds of the client.
"""

from __future__ import annotations

import os
import re
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from kcompact.bucket.mirror import MIRROR
from kcompact.bucket.path import BucketPath
from kcompact.log.files import files_in
from tests.support.s3_server import ENVIRONMENT, free_port, running

MIB = 1 << 20
NAME = f"{0:020d}.log"
READ_BYTES = 4 * MIB
_LISTING = "<ListBucketResult><Name>b</Name><IsTruncated>false</IsTruncated>{contents}</ListBucketResult>"
_CONTENTS = (
    "<Contents><Key>{key}</Key><LastModified>2024-01-01T00:00:00.000Z</LastModified>"
    '<ETag>"e"</ETag><Size>{size}</Size></Contents>'
)


def serve(port: int, size_bytes: int, delay_s: float) -> None:
    """Serve one object below each of many prefixes."""
    content = memoryview(os.urandom(MIB) * (size_bytes // MIB))

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:
            pass

        def do_GET(self) -> None:
            if "list-type=2" in self.path:
                prefix = re.search(r"prefix=((read|whole)-0)", self.path)
                contents = "" if prefix is None else _CONTENTS.format(key=f"{prefix[1]}/{NAME}", size=size_bytes)
                self._answer(200, memoryview(_LISTING.format(contents=contents).encode()), "")
                return
            time.sleep(delay_s)
            start, last = map(int, self.headers["Range"].removeprefix("bytes=").split("-"))
            self._answer(206, content[start : last + 1], f"bytes {start}-{last}/{size_bytes}")

        def _answer(self, code: int, body: memoryview, of: str) -> None:
            self.send_response(code)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("ETag", '"e"')
            self.send_header("Last-Modified", "Mon, 01 Jan 2024 00:00:00 GMT")
            if of:
                self.send_header("Content-Range", of)
            self.end_headers()
            self.wfile.write(body)

    ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()


def measure(size_mib: int, delay_s: float) -> None:
    """Print the figures of both ways."""
    port = free_port()
    command = [sys.executable, "-m", "bench.distant_bucket", "serve", str(port), str(size_mib), str(delay_s)]
    url = f"http://127.0.0.1:{port}"
    os.environ.update({**ENVIRONMENT, "AWS_ENDPOINT_URL": url})
    with running(command, f"{url}/?list-type=2"):
        for way in ("read", "whole"):
            path = MIRROR.mirrored(f"s3://distant/{way}-0")
            assert isinstance(path, BucketPath)
            wall, used = time.monotonic(), time.process_time()
            if way == "whole":
                with MIRROR.whole(path):
                    pass
            else:
                with files_in(path).file(NAME).open() as opened:
                    for position in range(0, size_mib * MIB, READ_BYTES):
                        assert len(opened.read(READ_BYTES, position)) == READ_BYTES
            wall, used = time.monotonic() - wall, time.process_time() - used
            print(f"{way}: {wall:.1f} s, {used:.2f} processor seconds")


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        serve(int(sys.argv[2]), int(sys.argv[3]) * MIB, float(sys.argv[4]))
    else:
        measure(int((sys.argv[1:2] or ["512"])[0]), int((sys.argv[2:3] or ["200"])[0]) / 1000)
