"""A server of S3 on loopback, as its own process, and a client to put objects there that kcompact has not made."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tests.support import moto_server

KEY_ID = "AKIDLOOPBACKONLY"
SECRET = "not-to-be-printed-9f3c"
ENVIRONMENT = {"AWS_ACCESS_KEY_ID": KEY_ID, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": "us-east-1"}
VERSITYGW = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"
_START_S = 60
_ROOT = Path(__file__).parents[2]


def free_port() -> int:
    """Return a port of loopback that nothing listens on."""
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@cache
def _client(url: str) -> Any:
    import boto3

    return boto3.client(
        "s3", endpoint_url=url, aws_access_key_id=KEY_ID, aws_secret_access_key=SECRET, region_name="us-east-1"
    )


@dataclass(frozen=True, slots=True)
class Server:
    """A running server."""

    url: str

    @property
    def environment(self) -> dict[str, str]:
        """The variables with which kcompact finds the server."""
        return {**ENVIRONMENT, "AWS_ENDPOINT_URL": self.url}

    def client(self) -> Any:
        """Return a client that is not kcompact's."""
        return _client(self.url)

    def make_bucket(self, name: str) -> None:
        """Make a bucket."""
        self.client().create_bucket(Bucket=name)

    def upload(self, directory: Path, bucket: str, prefix: str) -> None:
        """Upload what is below a directory, as `aws s3 cp --recursive` does."""
        client = self.client()
        for key, path in moto_server.files_to_upload(directory, prefix):
            client.put_object(Bucket=bucket, Key=key, Body=path.read_bytes())

    def keys(self, bucket: str, prefix: str = "") -> list[str]:
        """Return the keys with a prefix in a bucket."""
        pages = self.client().get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
        return sorted(each["Key"] for page in pages for each in page.get("Contents", ()))


class Moto(Server):
    """A running moto of `tests.support.moto_server`."""

    __slots__ = ()

    def make_bucket(self, name: str) -> None:
        """Make a bucket without a client, whose library takes long to import."""
        request = urllib.request.Request(f"{self.url}/{name}", method="PUT")
        urllib.request.urlopen(request, timeout=_START_S).close()

    def upload(self, directory: Path, bucket: str, prefix: str) -> None:
        """Upload what is below a directory in one request."""
        content = json.dumps({"directory": str(directory.resolve()), "bucket": bucket, "prefix": prefix})
        urllib.request.urlopen(self.url + quote(moto_server.LOAD), content.encode(), timeout=_START_S).close()


@contextmanager
def running(
    command: list[str], url: str, *, environment: Mapping[str, str] | None = None, directory: Path | None = None
) -> Iterator[None]:
    """Run a server for the block. Any answer shows that it has started."""
    process = subprocess.Popen(
        command,
        cwd=directory,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=None if environment is None else dict(environment),
    )
    try:
        deadline = time.monotonic() + _START_S
        while True:
            try:
                urllib.request.urlopen(url, timeout=5).close()
                break
            except urllib.error.HTTPError:
                break
            except OSError:
                assert process.poll() is None, f"{command[0]} has ended"
                assert time.monotonic() < deadline, f"{command[0]} does not answer"
                time.sleep(0.05)
        yield
    finally:
        process.kill()
        process.wait()


@contextmanager
def moto() -> Iterator[Server]:
    """Run moto for the block. It keeps objects in memory."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with running([sys.executable, "-m", moto_server.__name__, str(port)], url, directory=_ROOT):
        yield Moto(url)


@contextmanager
def versitygw(directory: Path) -> Iterator[Server]:
    """Run the Versity S3 gateway for the block, with its objects below a directory. It needs Go, which builds it.

    It is independent of moto, and decides between several writers of an object in the file system.
    """
    built, objects, port = directory / "bin", directory / "objects", free_port()
    objects.mkdir()
    go = shutil.which("go") or Path(sys.executable).with_name("go")
    subprocess.run([go, "install", VERSITYGW], check=True, env={**os.environ, "GOBIN": str(built)})
    environment = {**os.environ, "ROOT_ACCESS_KEY": KEY_ID, "ROOT_SECRET_KEY": SECRET}
    command = [str(built / "versitygw"), "--port", f"127.0.0.1:{port}", "posix", str(objects)]
    url = f"http://127.0.0.1:{port}"
    with running(command, url, environment=environment):
        yield Server(url)
