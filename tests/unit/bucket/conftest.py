"""A server of S3 for all tests of this folder, and a new bucket for each.

There are two servers, which have nothing in common. The tests on the second one are slow, because Go builds it, and
fail without Go. `ONLY_MOTO` and `ONLY_VERSITYGW` choose one.
"""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from botocore.retries.standard import ExponentialBackoff

from fixtures.checkout import copy_directory
from kcompact.bucket import client
from kcompact.bucket.mirror import MIRROR
from kcompact.log.directory import partition_directories
from tests.support.fault_proxy import Proxy, in_front_of
from tests.support.s3_server import Server, moto, versitygw


@pytest.fixture(scope="session", params=["moto", pytest.param("versitygw", marks=pytest.mark.slow)])
def s3(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    started = moto() if request.param == "moto" else versitygw(tmp_path_factory.mktemp("versitygw"))
    with started as server:
        yield server


@pytest.fixture(scope="session")
def two_partitions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The log directory of `log_dir`, which copies it."""
    directory = copy_directory("several-partitions", "before", tmp_path_factory.mktemp("logs") / "log-dir")
    for partition in partition_directories(directory):
        if partition.name not in ("audit-0", "orders-0"):
            shutil.rmtree(partition)
    return directory


@pytest.fixture
def log_dir(tmp_path: Path, two_partitions: Path) -> Path:
    """A real log directory with two partitions."""
    return shutil.copytree(two_partitions, tmp_path / "log-dir")


ONLY_MOTO = pytest.mark.parametrize("s3", ["moto"], indirect=True)
ONLY_VERSITYGW = pytest.mark.parametrize("s3", ["versitygw"], indirect=True)


@dataclass(frozen=True, slots=True)
class Store:
    """A bucket of a running server, and the proxy in front of it through which kcompact reaches it."""

    server: Server
    bucket: str
    proxy: Proxy

    def upload(self, directory: Path, prefix: str) -> str:
        """Upload a directory, and return its address."""
        self.server.upload(directory, self.bucket, prefix)
        return self.address(prefix)

    def address(self, prefix: str) -> str:
        """Return the address of a prefix."""
        return f"s3://{self.bucket}/{prefix}"

    def put(self, key: str, body: bytes) -> None:
        """Put an object."""
        self.server.client().put_object(Bucket=self.bucket, Key=key, Body=body)

    def all_keys(self, prefix: str = "") -> list[str]:
        """Return all keys, or those with a prefix."""
        return self.server.keys(self.bucket, prefix)


@pytest.fixture
def new_store(s3: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], Store]]:
    MIRROR.take_orphans()  # Of other tests.
    with in_front_of(s3.url) as proxy:
        for name, value in s3.environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)

        def make() -> Store:
            name = f"backups-{secrets.token_hex(6)}"
            s3.make_bucket(name)
            return Store(s3, name, proxy)

        yield make


@pytest.fixture
def store(new_store: Callable[[], Store]) -> Store:
    return new_store()


@pytest.fixture
def one_try(monkeypatch: pytest.MonkeyPatch) -> None:
    """No request is repeated."""
    monkeypatch.setattr(client, "MAX_RETRIES", 0)


@pytest.fixture
def soon_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request is repeated at once, as often as ever."""
    monkeypatch.setattr(ExponentialBackoff, "delay_amount", lambda self, context: 0.001)
