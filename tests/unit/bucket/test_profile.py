"""Which credentials and region are taken from the files of the AWS tools."""

from __future__ import annotations

from pathlib import Path

import pytest

from kcompact.bucket.profile import settings_of_profile
from kcompact.errors import RefusedError

CREDENTIALS = """
[default]
aws_access_key_id = ID1
aws_secret_access_key = SECRET1
[other]
aws_access_key_id = ID2
aws_secret_access_key = SECRET2%x
aws_session_token = TOKEN2
"""
CONFIG = """
[default]
region = eu-west-1
[profile other]
region = eu-central-1
[profile sso]
sso_session = company
"""
FIRST = {"access_key_id": "ID1", "secret_access_key": "SECRET1"}
SECOND = {"access_key_id": "ID2", "secret_access_key": "SECRET2%x", "token": "TOKEN2"}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "credentials").write_text(CREDENTIALS)
    (tmp_path / ".aws" / "config").write_text(CONFIG)
    return tmp_path


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, FIRST | {"region": "eu-west-1"}),
        ({"AWS_PROFILE": "other"}, SECOND | {"region": "eu-central-1"}),
        ({"AWS_REGION": "us-east-1"}, FIRST),
        ({"AWS_DEFAULT_REGION": "us-east-1"}, FIRST),
        ({"AWS_ACCESS_KEY_ID": "ID3"}, {"region": "eu-west-1"}),
        ({"AWS_SHARED_CREDENTIALS_FILE": "/nonexistent"}, {"region": "eu-west-1"}),
        ({"HOME": "/nonexistent"}, {}),
    ],
)
def test_settings(environment: dict[str, str], expected: dict[str, str], home: Path) -> None:
    assert settings_of_profile({"HOME": str(home), **environment}) == expected


@pytest.mark.parametrize(("name", "words"), [("missing", "has no profile missing"), ("sso", "export-credentials")])
def test_a_profile_without_credentials(name: str, words: str, home: Path) -> None:
    with pytest.raises(RefusedError) as caught:
        settings_of_profile({"HOME": str(home), "AWS_PROFILE": name})
    assert words in str(caught.value)


def test_a_damaged_file_is_ignored(home: Path) -> None:
    (home / ".aws" / "credentials").write_text("no section\n")
    assert settings_of_profile({"HOME": str(home)}) == {"region": "eu-west-1"}
