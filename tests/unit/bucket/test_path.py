"""The rule about paths of other stores, and the texts of paths in a bucket."""

from __future__ import annotations

import os
import pickle
from pathlib import Path, PurePosixPath

import pytest

from kcompact.bucket.path import BucketPath, local_path, require_known_store, require_local_path
from kcompact.bucket.scratch import as_path
from kcompact.errors import ConfigError
from tests.support.command_line import CONTROL

ADDRESS = "the address of a bucket is s3://BUCKET/PREFIX"
OTHER = "other stores than s3://BUCKET/PREFIX are neither read nor written"
TOOLS = "The tools of that store copy from and to a local path."


class OnlyLikeAPath:
    """A path that is neither text nor a `Path`, as of a library for stores."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __fspath__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"OnlyLikeAPath({self._text!r})"


REFUSED: list[tuple[str | os.PathLike[str], str, str]] = [
    ("s3a://b/o", ADDRESS, "Pass s3://b/o. A local one of that name: ./s3a:/b/o"),
    ("s3n://b/o", ADDRESS, "Pass s3://b/o. A local one of that name: ./s3n:/b/o"),
    ("S3://b/o/", ADDRESS, "Pass s3://b/o/. A local one of that name: ./S3:/b/o"),
    ("s3:/b/o", ADDRESS, "Pass s3://b/o. A local one of that name: ./s3:/b/o"),
    ("S3A:///b/o", ADDRESS, "Pass s3://b/o. A local one of that name: ./S3A:/b/o"),
    ("s3:/", ADDRESS, "Pass s3://BUCKET/PREFIX. A local one of that name: ./s3:"),
    ("s3a:/it's", ADDRESS, """Pass 's3://it'"'"'s'. A local one of that name: './s3a:/it'"'"'s'"""),
    (
        Path("s3://b/o"),
        ADDRESS,
        "Pass the text s3://b/o, not a Path of it. A local one of that name: its absolute path",
    ),
    (
        PurePosixPath("s3a://b/o"),
        ADDRESS,
        "Pass the text s3://b/o, not a Path of it. A local one of that name: its absolute path",
    ),
    (
        OnlyLikeAPath("s3://b/o"),
        ADDRESS,
        "Pass the text s3://b/o, not a Path of it. A local one of that name: its absolute path",
    ),
    ("gs://b/o", OTHER, f"{TOOLS} A local one of that name: ./gs:/b/o"),
    (Path("gs://b/o"), OTHER, f"{TOOLS} A local one of that name: its absolute path"),
    ("hdfs://nn:8020/o", OTHER, f"{TOOLS} A local one of that name: ./hdfs:/nn:8020/o"),
    ("my_remote:/b/o", OTHER, f"{TOOLS} A local one of that name: ./my_remote:/b/o"),
    ("9p:/b", OTHER, f"{TOOLS} A local one of that name: ./9p:/b"),
    ("HTTPS:/b", OTHER, f"{TOOLS} A local one of that name: ./HTTPS:/b"),
    ("orders:/0", OTHER, f"{TOOLS} A local one of that name: ./orders:/0"),
    ("s3+http://b", OTHER, f"{TOOLS} A local one of that name: ./s3+http:/b"),
    ("a.b-c9://b", OTHER, f"{TOOLS} A local one of that name: ./a.b-c9:/b"),
    ("file:///b", "a local path is written without file:", "A local one of that name: ./file:/b"),
    ("File:/b", "a local path is written without file:", "A local one of that name: ./File:/b"),
    ("C:/b", "a local path does not begin with a drive", "A local one of that name: ./C:/b"),
]


@pytest.mark.parametrize(("path", "problem", "hint"), REFUSED, ids=[repr(path) for path, *_ in REFUSED])
def test_a_word_a_colon_and_a_slash_are_no_local_path(path: str | os.PathLike[str], problem: str, hint: str) -> None:
    with pytest.raises(ConfigError) as raised:
        require_known_store(path, suggests_address=True)
    text = os.fspath(path)
    assert (raised.value.path, raised.value.problem) == (text, f"is no local path: {problem}")
    assert (raised.value.hint, raised.value.exit_code) == (hint, 2)


@pytest.mark.parametrize("path", [path for path, *_ in REFUSED], ids=repr)
def test_where_no_bucket_is_possible_none_is_suggested(path: str | os.PathLike[str]) -> None:
    for refuse in (require_known_store, require_local_path, local_path, as_path):
        with pytest.raises(ConfigError, match=r": is no local path[:;]") as raised:
            refuse(path)
        assert "s3://" not in str(raised.value).removeprefix(os.fspath(path))


def test_a_message_about_a_path_is_shown_on_one_line() -> None:
    with pytest.raises(ConfigError) as raised:
        require_known_store("s3a://b\n\x1b[31m", suggests_address=True)
    assert str(raised.value).count("\n") == 1
    assert not CONTROL.search(str(raised.value).replace("\n", ""))


LOCAL = [
    *("orders-0", "orders:0", "orders:0/", "a:b/c", "gs:", "s3:b", "a/gs:/b", "./a:b", "/gs:/b", "../gs:/b", "~/gs:/b"),
    *("+a:/b", "-a:/b", ".a:/b", ":/b", "a b:/c", " gs:/b", "\ngs:/b", "-", ""),
]


@pytest.mark.parametrize("text", LOCAL)
def test_other_texts_are_local_paths(text: str) -> None:
    for path in (text, Path(text)):
        assert local_path(path) == as_path(path) == Path(text)


@pytest.mark.parametrize("text", ["./gs:/b", "././gs://b", ".//s3:/b", "./file:/b"])
def test_a_local_path_of_such_a_name_stays_one(text: str) -> None:
    path = as_path(text)
    assert path == Path.cwd() / text
    assert local_path(path) is as_path(path) is path


def test_an_address_is_a_path_in_the_scratch_in_any_process() -> None:
    require_known_store("s3://b/o")
    path = as_path("s3://backups/eu")
    assert isinstance(path, BucketPath)
    assert (str(path), as_path(path)) == ("s3://backups/eu", path)
    assert pickle.loads(pickle.dumps(path)) == path
    with pytest.raises(ConfigError, match=r"^s3://b/o: is in a bucket; here only a local path is possible$"):
        require_local_path("s3://b/o")
