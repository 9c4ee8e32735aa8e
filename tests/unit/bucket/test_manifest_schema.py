"""`docs/schema/bucket-manifest.json` is what kcompact writes and what it reads."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from kcompact.bucket.manifest import MANIFEST, DirectoryManifest
from kcompact.errors import CorruptCheckpointError
from kcompact.format.sealed_json import sealed
from tests.support.command_line import COMPACT, ROOT, kcompact
from tests.unit.bucket.conftest import ONLY_MOTO, Store

SCHEMA = json.loads((ROOT / "docs" / "schema" / "bucket-manifest.json").read_text())
VALIDATOR = Draft202012Validator(SCHEMA)


def _file(**other: Any) -> dict[str, Any]:
    return {"name": "a.log", "size_bytes": 1, "mtime_ns": 2, "crc32c": 3, "etag": '"4"', **other}


def _manifest(**other: Any) -> dict[str, Any]:
    made = DirectoryManifest(attempt=".kcompact-0123456789abcdef", written_by="kcompact 1", files=())
    return {**json.loads(made.encoded()), "files": [_file()], **other}


def _encoded(manifest: dict[str, Any]) -> bytes:
    return sealed({name: value for name, value in manifest.items() if name != "crc32c"})


@ONLY_MOTO
def test_what_is_written(log_dir: Path, store: Store) -> None:
    Draft202012Validator.check_schema(SCHEMA)
    source = store.upload(log_dir, "eu")
    for number, path in enumerate((str(log_dir), source)):
        assert kcompact("clean", path, "--output", store.address(f"copies/{number}"), *COMPACT).code == 0
    keys = [key for key in store.all_keys("copies") if key.endswith(MANIFEST)]
    assert len(keys) == 6, "of two partitions and of their log directory, twice"
    for key in keys:
        written = json.loads(store.server.client().get_object(Bucket=store.bucket, Key=key)["Body"].read())
        VALIDATOR.validate(written)
        assert written.keys() == SCHEMA["properties"].keys()


@pytest.mark.parametrize(
    "changed",
    [
        lambda manifest: manifest.update(version=2),
        lambda manifest: manifest.update(more=1),
        lambda manifest: manifest.update(attempt="../x"),
        lambda manifest: manifest.update(clean_shutdown=1),
        lambda manifest: manifest.update(offsets={"cleaner-offset-checkpoint": -1}),
        lambda manifest: manifest.update(files=[_file(name="../a")]),
        lambda manifest: manifest.update(files=[_file(name="..")]),
        lambda manifest: manifest.update(files=[_file(size_bytes=-1)]),
        lambda manifest: manifest.update(files=[_file(etag=1)]),
        lambda manifest: manifest.update(files=[_file(crc32c=1 << 32)]),
        lambda manifest: manifest.update(files=[_file(more=1)]),
        lambda manifest: manifest.pop("attempt"),
        lambda manifest: manifest.pop("directories"),
        lambda manifest: manifest["files"][0].pop("crc32c"),
    ],
)
def test_what_the_schema_refuses_is_refused(changed: Callable[[dict[str, Any]], object]) -> None:
    manifest = _manifest()
    VALIDATOR.validate(manifest)
    DirectoryManifest.parse(_encoded(manifest), address="s3://b/orders-0")
    changed(manifest)
    assert not VALIDATOR.is_valid(manifest)
    with pytest.raises(CorruptCheckpointError):
        DirectoryManifest.parse(_encoded(manifest), address="s3://b/orders-0")
