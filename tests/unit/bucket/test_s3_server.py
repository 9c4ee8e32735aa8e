"""A directory that is loaded into moto at once is there as if each file had been uploaded by a request of its own."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from tests.support.s3_server import Server
from tests.unit.bucket.conftest import ONLY_MOTO, Store

FILES = {
    "meta.properties": b"version=1\n",
    "orders-0/00000000000000000000.log": bytes(range(256)) * 5000,
    "orders-0/.lock": b"",
    "orders-0/nested/a b+c%20é&=?#": b"x",
}


@ONLY_MOTO
def test_a_directory_that_is_loaded_is_one_that_is_uploaded(store: Store, tmp_path: Path) -> None:
    for name, content in FILES.items():
        path = tmp_path / "loaded" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    (tmp_path / "loaded" / "empty-0").mkdir()
    assert type(store.server) is not Server
    for server, prefix in ((store.server, "loaded"), (Server(store.server.url), "put"), (store.server, "")):
        server.upload(tmp_path / "loaded", store.bucket, prefix)
    expected = _objects(store, "put/")
    assert {name: content for name, (content, *_) in expected.items()} == FILES
    assert _objects(store, "loaded/") == expected
    assert sorted(store.all_keys()) == sorted(f"{prefix}{name}" for prefix in ("", "loaded/", "put/") for name in FILES)


def _objects(store: Store, prefix: str) -> dict[str, tuple[bytes, dict[str, Any], dict[str, Any]]]:
    """Return, by name below a prefix, content, entry of the listing, and answer to a request for it.

    Without their times, which are checked, and without the checksum that this client adds to a request.
    """
    client, found = store.server.client(), {}
    for entry in client.list_objects_v2(Bucket=store.bucket, Prefix=prefix)["Contents"]:
        key = entry.pop("Key")
        answer = client.get_object(Bucket=store.bucket, Key=key)
        content = answer.pop("Body").read()
        del answer["ResponseMetadata"]
        for time in (entry.pop("LastModified"), answer.pop("LastModified")):
            assert timedelta(0) <= datetime.now(time.tzinfo) - time < timedelta(minutes=5)
        found[key.removeprefix(prefix)] = content, _without_checksum(entry), _without_checksum(answer)
    return found


def _without_checksum(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if not name.startswith("Checksum")}
