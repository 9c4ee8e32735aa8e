"""The S3 of moto, which keeps objects in memory, with one request more: it loads a directory at once.

    python -m tests.support.moto_server PORT

A request to `LOAD` has a JSON object with `directory`, `bucket` and `prefix`. Afterwards the objects are there that a
request for each file makes; a test compares them. One request for each file takes most of a short test.

Requests that write are answered one after the other: moto looks whether an object is there, as `If-None-Match` asks,
and then stores it, and two requests at once could both be the first.
"""

from __future__ import annotations

import contextlib
import json
import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

LOAD = "/load directory"
"""The path. It is that of no bucket."""


def files_to_upload(directory: Path, prefix: str) -> Iterable[tuple[str, Path]]:
    """Yield the key and the path of each file below a directory."""
    for path in sorted(directory.rglob("*")):
        if path.is_file():
            yield f"{prefix}/{path.relative_to(directory)}".lstrip("/"), path


def _load(*, directory: str, bucket: str, prefix: str) -> None:
    from moto.core.models import DEFAULT_ACCOUNT_ID
    from moto.s3.models import s3_backends

    backend = s3_backends[DEFAULT_ACCOUNT_ID]["aws"]
    for key, path in files_to_upload(Path(directory), prefix):
        backend.put_object(bucket, key, path.read_bytes(), storage="STANDARD")


def serve(port: int) -> None:
    """Serve on a port of loopback until the process is killed."""
    from moto.moto_server.werkzeug_app import create_backend_app
    from werkzeug.serving import make_server

    # Without the choice of a service, which looks for the directories of all of them at each request.
    application = create_backend_app("s3")
    writing = threading.Lock()

    def answer(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if environ["PATH_INFO"] != LOAD:
            answered: Iterable[bytes]
            with contextlib.nullcontext() if environ["REQUEST_METHOD"] in ("GET", "HEAD") else writing:
                answered = application(environ, start_response)
            return answered
        _load(**json.loads(environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"]))))
        start_response("204 No Content", [])
        return []

    make_server("127.0.0.1", port, answer, threaded=True).serve_forever()


if __name__ == "__main__":
    serve(int(sys.argv[1]))
