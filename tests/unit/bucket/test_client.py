"""The settings of the client are those of the AWS tools, and a wrong one is an error that names it."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from kcompact.bucket.client import Client
from kcompact.bucket.mirror import MIRROR
from kcompact.bucket.remote import Bucket
from kcompact.errors import RefusedError
from tests.support.command_line import kcompact
from tests.support.fault_proxy import NO_ANSWER, Answer, Proxy, in_front_of
from tests.unit.bucket.conftest import ONLY_MOTO, Store

CONFIG = """
[default]
region = eu-west-1
[profile other]
region = eu-central-1
endpoint_url = http://127.0.0.1:9000
[profile with-services]
services = of-minio
[services of-minio]
s3 =
  endpoint_url = http://127.0.0.1:9001
[profile without-services]
services = gone
[profile bad-endpoint]
endpoint_url = 127.0.0.1:9000
[profile ftp]
endpoint_url = ftp://127.0.0.1
[profile from-program]
credential_process = PROGRAM
[profile from-false]
credential_process = false
[profile no-program]
credential_process = /nonexistent
[profile expired]
credential_process = EXPIRED
[profile bad-style]
credential_process = PROGRAM
s3 =
  addressing_style = wrong
[profile accelerate]
credential_process = PROGRAM
s3 =
  use_accelerate_endpoint = true
[profile from-true]
credential_process = true
[profile no-authority]
ca_bundle = /nonexistent.pem
[profile sso]
sso_session = company
sso_account_id = 123456789012
sso_role_name = reader
[sso-session company]
sso_start_url = https://company.example/start
sso_region = eu-west-1
[profile role]
role_arn = arn:aws:iam::123456789012:role/reader
source_profile = nobody
"""
CREDENTIALS = """
[default]
aws_access_key_id = ID1
aws_secret_access_key = SECRET1
[other]
aws_access_key_id = ID2
aws_secret_access_key = SECRET2%x
aws_session_token = TOKEN2
[with-services]
aws_access_key_id = ID3
aws_secret_access_key = SECRET3
[without-services]
aws_access_key_id = ID3
aws_secret_access_key = SECRET3
[bad-endpoint]
aws_access_key_id = ID3
aws_secret_access_key = SECRET3
[ftp]
aws_access_key_id = ID3
aws_secret_access_key = SECRET3
[half]
aws_access_key_id = ID4
[no-authority]
aws_access_key_id = ID3
aws_secret_access_key = SECRET3
[line-break]
aws_access_key_id = ID5é
aws_secret_access_key = SECRET5
"""
PROGRAM = """#!/bin/sh
echo '{"Version": 1, "AccessKeyId": "ID6", "SecretAccessKey": "SECRET6"}'
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with settings and credentials, no variable of AWS, and no machine whose role could be asked for."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    program = tmp_path / "program"
    program.write_text(PROGRAM)
    program.chmod(stat.S_IRWXU)
    (tmp_path / ".aws").mkdir()
    expired = tmp_path / "expired"
    expired.write_text(PROGRAM.replace('"SECRET6"', '"SECRET6", "Expiration": "2020-01-01T00:00:00Z"'))
    expired.chmod(stat.S_IRWXU)
    config = CONFIG.replace("PROGRAM", str(program)).replace("EXPIRED", str(expired))
    (tmp_path / ".aws" / "config").write_text(config)
    (tmp_path / ".aws" / "credentials").write_text(CREDENTIALS)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    return tmp_path


def _set(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


KEYS = {"AWS_ACCESS_KEY_ID": "ID0", "AWS_SECRET_ACCESS_KEY": "SECRET0"}
OF_AWS = "https://s3.eu-west-1.amazonaws.com"


@pytest.mark.parametrize(
    ("variables", "key_id", "region", "url", "named_by"),
    [
        ({}, "ID1", "eu-west-1", OF_AWS, ""),
        ({"AWS_PROFILE": "other"}, "ID2", "eu-central-1", "http://127.0.0.1:9000", "endpoint_url of the profile other"),
        (
            {"AWS_PROFILE": "with-services", "AWS_REGION": "x-y-1"},
            "ID3",
            "x-y-1",
            "http://127.0.0.1:9001",
            "endpoint_url of the profile with-services",
        ),
        (
            {"AWS_PROFILE": "other", "AWS_ENDPOINT_URL": "http://h:1"},
            "ID2",
            "eu-central-1",
            "http://h:1",
            "AWS_ENDPOINT_URL",
        ),
        (
            {"AWS_ENDPOINT_URL": "http://h:1", "AWS_ENDPOINT_URL_S3": "https://g"},
            "ID1",
            "eu-west-1",
            "https://g",
            "AWS_ENDPOINT_URL_S3",
        ),
        (
            {"AWS_PROFILE": "other", "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS": "true"},
            "ID2",
            "eu-central-1",
            "https://s3.eu-central-1.amazonaws.com",
            "",
        ),
        ({**KEYS}, "ID0", "eu-west-1", OF_AWS, ""),
        ({**KEYS, "AWS_PROFILE": "other", "AWS_ENDPOINT_URL": "http://h"}, "ID0", "eu-central-1", "http://h", None),
        ({"AWS_REGION": "us-west-2"}, "ID1", "us-west-2", None, ""),
        ({"AWS_DEFAULT_REGION": "us-west-2"}, "ID1", "us-west-2", None, ""),
        ({"AWS_DEFAULT_REGION": "us-west-2", "AWS_REGION": "us-west-1"}, "ID1", "us-west-1", None, ""),
        ({"AWS_PROFILE": "from-program"}, "ID6", "us-east-1", None, ""),
        # Empty is not set.
        (
            dict.fromkeys(
                ("AWS_REGION", "AWS_PROFILE", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_CONFIG_FILE"), ""
            ),
            "ID1",
            "eu-west-1",
            OF_AWS,
            "",
        ),
        ({**KEYS, "AWS_SESSION_TOKEN": "", "AWS_CA_BUNDLE": ""}, "ID0", "eu-west-1", OF_AWS, ""),
        # Where the setting of the AWS tools is there, that of another tool is not missed.
        ({"AWS_ENDPOINT": "http://g", "AWS_ENDPOINT_URL": "http://h"}, "ID1", "eu-west-1", "http://h", None),
    ],
)
def test_settings(
    variables: dict[str, str],
    key_id: str,
    region: str,
    url: str | None,
    named_by: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _set(monkeypatch, variables)
    client = Client("backups")
    signer = client.s3._request_signer
    assert (signer._credentials.access_key, client.store.region) == (key_id, region)
    assert url in (None, client.store.url)
    assert named_by in (None, client.store.named_by)
    assert client.extra == {}
    assert signer._credentials.token == ("TOKEN2" if key_id == "ID2" else None)


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"AWS_PROFILE": "missing"}, "there is no profile missing in "),
        (
            {"AWS_PROFILE": "without-services"},
            "the profile without-services: The profile is configured to use",
        ),
        ({"AWS_PROFILE": "bad-endpoint"}, "endpoint_url of the profile bad-endpoint has no http:// or https://"),
        ({"AWS_PROFILE": "ftp"}, "endpoint_url of the profile ftp has no http:// or https://"),
        ({"AWS_PROFILE": "half"}, "a part of the credentials is missing: aws_secret_access_key"),
        ({"AWS_PROFILE": "line-break"}, "the access key id has a line break"),
        ({"AWS_PROFILE": "no-authority"}, "ca_bundle names no file of certificates: /nonexistent.pem"),
        ({"AWS_PROFILE": "from-false"}, "the credentials of the profile from-false could not be got"),
        ({"AWS_PROFILE": "from-true"}, "credential_process of the profile from-true has printed no credentials"),
        ({"AWS_PROFILE": "sso"}, "the login of the profile sso has ended\nRun: aws sso login --profile sso"),
        ({"AWS_PROFILE": "role"}, 'the profile role: The source_profile "nobody"'),
        ({"AWS_PROFILE": "no-program"}, "/nonexistent: No such file or directory\nA setting of AWS names this file"),
        ({"AWS_PROFILE": "expired"}, "the credentials of the profile expired have expired"),
        (
            {
                "AWS_ROLE_ARN": "arn:aws:iam::123456789012:role/r",
                "AWS_WEB_IDENTITY_TOKEN_FILE": "/nonexistent",
                "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent",
            },
            "/nonexistent: No such file or directory",
        ),
        ({"AWS_RETRY_MODE": "bogus"}, 'Invalid value provided to "mode": "bogus"'),
        ({"AWS_MAX_ATTEMPTS": "0"}, 'Value provided to "max_attempts": 0'),
        ({"AWS_PROFILE": "bad-style"}, "S3 addressing style wrong is invalid"),
        ({"AWS_CA_BUNDLE": "/nonexistent.pem"}, "AWS_CA_BUNDLE names no file of certificates"),
        (
            {"AWS_ENDPOINT_URL": "127.0.0.1:9000"},
            "AWS_ENDPOINT_URL has no http:// or https://\nSet AWS_ENDPOINT_URL as",
        ),
        ({"AWS_ENDPOINT_URL_S3": "localhost"}, "AWS_ENDPOINT_URL_S3 has no http:// or https://"),
        ({"AWS_ENDPOINT_URL": "http://"}, "AWS_ENDPOINT_URL is no address of a store"),
        ({"AWS_ENDPOINT_URL": "http://h:port"}, "AWS_ENDPOINT_URL is no address of a store"),
        ({"AWS_ENDPOINT_URL": "http://user:secret@h"}, "AWS_ENDPOINT_URL is no address of a store"),
        ({"AWS_ENDPOINT_URL": "http://h h"}, "AWS_ENDPOINT_URL is no address of a store"),
        ({"AWS_ENDPOINT_URL": "http://h\n"}, "AWS_ENDPOINT_URL has a line break"),
        ({"AWS_ACCESS_KEY_ID": "ID\n", "AWS_SECRET_ACCESS_KEY": "x"}, "AWS_ACCESS_KEY_ID has a line break"),
        ({**KEYS, "AWS_SESSION_TOKEN": "x\r"}, "AWS_SESSION_TOKEN has a line break"),
        ({"AWS_ACCESS_KEY_ID": "ID0"}, "a part of the credentials is missing: AWS_SECRET_ACCESS_KEY"),
        ({"AWS_SHARED_CREDENTIALS_FILE": "/nonexistent"}, "no credentials were found\nSet the credentials"),
        ({"AWS_REQUEST_PAYER": "me"}, "AWS_REQUEST_PAYER is not requester"),
        ({"AWS_REGION": "no region"}, "'no region' is the name of no region\nCheck AWS_REGION"),
        ({"AWS_MAX_ATTEMPTS": "many"}, "AWS_MAX_ATTEMPTS is no number"),
        ({"AWS_ENDPOINT_URL": "http://h/?x=y"}, "AWS_ENDPOINT_URL is no address of a store"),
        ({"AWS_ENDPOINT": "http://h"}, "does not support the setting AWS_ENDPOINT\nSet AWS_ENDPOINT_URL in its place"),
        ({"AWS_ALLOW_HTTP": "true"}, "does not support the setting AWS_ALLOW_HTTP"),
        ({"AWS_SKIP_SIGNATURE": "true"}, "does not support the setting AWS_SKIP_SIGNATURE\nUnset it."),
        ({"AWS_SSE_KMS_KEY_ID": "x"}, "does not support the setting AWS_SSE_KMS_KEY_ID"),
    ],
)
def test_a_setting_that_cannot_be_used(variables: dict[str, str], words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _set(monkeypatch, variables)
    with pytest.raises(RefusedError) as caught:
        Client("backups")
    assert words in str(caught.value)
    assert str(caught.value).startswith("s3://backups: ")
    assert caught.value.exit_code == 4
    assert "secret" not in str(caught.value).replace("aws_secret", "").replace("AWS_SECRET", "").replace(
        "the secret", ""
    )


def test_settings_that_do_not_fit_together(monkeypatch: pytest.MonkeyPatch) -> None:
    _set(monkeypatch, {"AWS_PROFILE": "accelerate", "AWS_ENDPOINT_URL": "http://127.0.0.1:9"})
    with pytest.raises(RefusedError, match="the settings of the profile accelerate do not fit together"):
        Bucket("backups").below("")


@pytest.mark.parametrize("text", ["no section\n", "[profile w]\na = 1\n[profile w]\nb = 2\n[broken\n"])
@pytest.mark.parametrize("file", ["config", "credentials"])
def test_a_file_that_cannot_be_parsed(text: str, file: str, home: Path) -> None:
    (home / ".aws" / file).write_text(text)
    with pytest.raises(RefusedError, match=rf"{file} cannot be parsed\nMend that file"):
        Client("backups")


@pytest.fixture
def services() -> Iterator[Proxy]:
    """A server that a test has answer as services of AWS do."""
    with in_front_of("http://127.0.0.1:1") as proxy:
        yield proxy


def test_a_role_by_a_web_identity(services: Proxy, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "token").write_text("a.b.c")
    _set(
        monkeypatch,
        {
            "AWS_ROLE_ARN": "arn:aws:iam::123456789012:role/reader",
            "AWS_WEB_IDENTITY_TOKEN_FILE": str(home / "token"),
            "AWS_ENDPOINT_URL_STS": services.url,
            "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent",
        },
    )
    name = "AssumeRoleWithWebIdentity"
    credentials = (
        "<Credentials><AccessKeyId>ID7</AccessKeyId><SecretAccessKey>S</SecretAccessKey><SessionToken>T</SessionToken>"
        "<Expiration>2099-01-01T00:00:00Z</Expiration></Credentials>"
    )
    body = f"<{name}Response><{name}Result>{credentials}</{name}Result></{name}Response>".encode()
    services.meddle = lambda request, ask: Answer(200, {"Content-Type": "text/xml"}, body)
    client = Client("backups")
    assert client.s3._request_signer._credentials.access_key == "ID7"
    services.meddle = lambda request, ask: Answer(
        403, {}, b"<ErrorResponse><Error><Code>AccessDenied</Code></Error></ErrorResponse>"
    )
    with pytest.raises(RefusedError, match="could not be got: AssumeRoleWithWebIdentity answered AccessDenied"):
        Client("backups")
    services.meddle = lambda request, ask: NO_ANSWER
    with pytest.raises(RefusedError, match=f"could not be got: no answer from {services.url}"):
        Client("backups")


def test_an_address_of_credentials_is_shown_without_its_password(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "token").write_text("a.b.c")
    variables = {"AWS_ROLE_ARN": "arn:aws:iam::123456789012:role/r", "AWS_WEB_IDENTITY_TOKEN_FILE": str(home / "token")}
    _set(monkeypatch, {**variables, "AWS_ENDPOINT_URL_STS": "http://user:pass-word@127.0.0.1:9"})
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
    with pytest.raises(RefusedError, match=r"no answer from http://127\.0\.0\.1:9"):
        Client("backups")


def test_the_role_of_a_container(services: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    _set(
        monkeypatch,
        {
            "AWS_CONTAINER_CREDENTIALS_FULL_URI": f"{services.url}/role",
            "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent",
        },
    )
    body = b'{"AccessKeyId": "ID8", "SecretAccessKey": "S", "Token": "T", "Expiration": "2099-01-01T00:00:00Z"}'
    services.meddle = lambda request, ask: Answer(200, {}, body)
    assert Client("backups").s3._request_signer._credentials.access_key == "ID8"


@ONLY_MOTO
def test_who_requests_pays(store: Store, log_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    address = store.upload(log_dir, "eu")
    for value, expected in (("", {None}), ("requester", {"requester"})):
        monkeypatch.setenv("AWS_REQUEST_PAYER", value)
        MIRROR._buckets.clear()
        store.proxy.requests.clear()
        assert kcompact("clean", f"{address}/orders-0", "--output", store.address(f"to{value}"), "--force").code in (
            0,
            4,
        )
        headers = ({name.lower(): value for name, value in each.headers.items()} for each in store.proxy.requests)
        assert {each.get("x-amz-request-payer") for each in headers} == expected
