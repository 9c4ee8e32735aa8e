"""The client of a bucket: botocore, with the settings and the credentials that the AWS tools use.

The environment, the files in `~/.aws` and the roles of machines mean what they mean for these tools, because the same
library reads them. Settings are checked before anything is sent: a wrong one is an error that names it.
Source: "AWS SDKs and Tools Reference Guide", settings reference; `botocore.configprovider`, `botocore.credentials`.
"""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from functools import cache
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

from kcompact.bucket.answers import (
    CREDENTIALS_HINT,
    Store,
    credentials_error,
    is_refused_port,
    is_unknown_host,
    is_untrusted,
    origin_of,
)
from kcompact.bucket.path import SCHEME
from kcompact.errors import KcompactError, RefusedError
from kcompact.host.installation import how_to_add
from kcompact.readable import shell_word, shown

_SAY_THE_SETTING = frozenset(
    {
        *("InvalidMaxRetryAttemptsError", "InvalidRetryConfigurationError", "InvalidRetryModeError"),
        *("InvalidS3AddressingStyleError", "InvalidDefaultsMode"),
    }
)
"""Errors of botocore whose own words name the setting, and hold no secret."""
_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
"""The variables that name the store, the first of them first."""
_PAYER = "AWS_REQUEST_PAYER"
_DEFAULT_REGION = "us-east-1"
MAX_RETRIES = 8
_CONNECT_TIMEOUT_S = 10
_READ_TIMEOUT_S = 60
"""Without a byte for so long, a connection counts as broken."""
_CONNECTIONS = 8
_CREDENTIALS = ("access key id", "secret access key", "session token")
_OF_AWS = re.compile(r"([a-z0-9-]+\.)*(amazonaws\.com(\.cn)?|api\.aws|amazonaws\.eu)")

_OF_OTHER_TOOLS = {
    "AWS_ALLOW_HTTP": "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT": "AWS_ENDPOINT_URL",
    "AWS_S3_ENDPOINT": "AWS_ENDPOINT_URL",
    "AWS_METADATA_ENDPOINT": "AWS_EC2_METADATA_SERVICE_ENDPOINT",
    "AWS_TOKEN": "AWS_SESSION_TOKEN",
    "AWS_SERVER_SIDE_ENCRYPTION": "",
    "AWS_SKIP_SIGNATURE": "",
    "AWS_SSE_BUCKET_KEY_ENABLED": "",
    "AWS_SSE_CUSTOMER_KEY_BASE64": "",
    "AWS_SSE_KMS_KEY_ID": "",
    "AWS_UNSIGNED_PAYLOAD": "",
    "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "",
}
"""Variables that other clients of S3 read and the AWS tools do not, and which one is set instead; empty: none.

If they were passed over, keys could go to a store that they are not for, or objects be written as nobody wanted them.
"""


class Client:
    """The client of S3 for one bucket. Safe for several threads.

    `s3` is botocore's, `extra` are the parameters that every request has.
    """

    def __init__(self, bucket: str) -> None:
        """Read the settings, and find the credentials. Raises RefusedError for a setting that is wrong or missing."""
        _require_usable_settings(os.environ, bucket)
        try:
            import botocore.session
        except ImportError:
            raise RefusedError(
                path=f"{SCHEME}{bucket}", problem=f"a bucket needs the library botocore; {how_to_add('s3')}"
            ) from None
        session = botocore.session.Session()
        with _settings_errors(bucket, session):
            session.register_component("data_loader", _loader(session.get_config_variable("data_path")))
            _require_certificates(session.get_config_variable("ca_bundle"), bucket)
            region = os.environ.get("AWS_REGION") or session.get_config_variable("region") or _DEFAULT_REGION
            session.set_config_variable("region", region)
            _require_credentials(session, bucket)
            self.s3 = _made(session, bucket)
        url = str(self.s3.meta.endpoint_url)
        named_by = ""
        if not _OF_AWS.fullmatch(urlsplit(url).hostname or ""):
            of_profile = f"endpoint_url of the profile {_profile(session)}"
            named_by = next((name for name in _ENDPOINTS if os.environ.get(name)), of_profile)
            _require_url(named_by, url, bucket)
        self.store = Store(bucket=bucket, url=url, named_by=named_by, region=region, profile=_profile(session))
        self.extra = {"RequestPayer": "requester"} if os.environ.get(_PAYER) else {}
        self._has_answered = False
        self.s3.meta.events.register_first("needs-retry.s3", self._give_up_early)

    def _give_up_early(
        self,
        response: tuple[Any, dict[str, Any]] | None = None,
        caught_exception: Exception | None = None,
        operation: Any = None,
        **_: object,
    ) -> None:
        """Raise an error that trying again does not cure, before botocore decides whether it tries again."""
        from botocore.exceptions import ClientError
        from botocore.parsers import ResponseParserError

        if caught_exception is not None:
            if _is_final(caught_exception, has_answered=self._has_answered):
                raise caught_exception
        elif response is not None:
            self._has_answered = True
            parsed = response[1]
            if response[0].raw.status == HTTPStatus.OK and parsed.get("Error", {}).get("Code") == "500":
                raise ResponseParserError  # What botocore cannot parse of a listing becomes this code.
            headers = parsed.get("ResponseMetadata", {}).get("HTTPHeaders", {})
            has_region = "x-amz-bucket-region" in headers or "Region" in parsed.get("Error", {})
            if 300 <= response[0].status_code < 400 and not has_region:
                # botocore would ask this server for the region, and what is no S3 answers that in the same way.
                raise ClientError(parsed, operation.name)


def _made(session: Any, bucket: str) -> Any:
    """Return botocore's client. Raises RefusedError for an `endpoint_url` of the profile that is no URL."""
    try:
        return session.create_client("s3", config=_config(session))
    except ValueError as problem:
        if "endpoint" not in str(problem).lower():
            raise
        raise _no_url(f"endpoint_url of the profile {_profile(session)}", bucket) from None


@cache
def _loader(data_path: str | None) -> Any:
    """Return what has read the model of S3, which takes most of the time: all clients of a process share it."""
    from botocore.loaders import create_loader

    return create_loader(data_path)


@contextmanager
def _settings_errors(bucket: str, session: Any) -> Iterator[None]:
    """Raise each error of the settings as an error of kcompact. The library's own words can quote a secret."""
    try:
        yield
    except KcompactError:
        raise
    except Exception as problem:
        raise _settings_error(problem, bucket, session) from None


def _settings_error(problem: Exception, bucket: str, session: Any) -> RefusedError:
    from botocore import exceptions

    profile, files = _profile(session), " or ".join(_settings_files())
    not_got = f"the credentials of the profile {profile} could not be got"
    if isinstance(problem, exceptions.ProfileNotFound):
        words, hint = f"there is no profile {shown(str(problem.kwargs['profile']))} in {files}", "Check AWS_PROFILE."
    elif isinstance(problem, exceptions.ConfigParseError):
        file = shown(str(problem.kwargs.get("path", files)))
        words, hint = f"the file of AWS settings {file} cannot be parsed", "Mend that file."
    elif origin := origin_of(problem):
        words, hint = f"{not_got}: no answer from {origin}", CREDENTIALS_HINT
    elif isinstance(problem, exceptions.InvalidRegionError):
        words = f"'{shown(str(session.get_config_variable('region')))}' is the name of no region"
        hint = "Check AWS_REGION, and region in the profile."
    elif isinstance(problem, exceptions.ClientError):
        code = shown(str(problem.response.get("Error", {}).get("Code", "")))
        words, hint = f"{not_got}: {problem.operation_name} answered {code}", CREDENTIALS_HINT
    elif isinstance(problem, OSError) and problem.filename:
        words = f"{shown(os.fsdecode(problem.filename))}: {problem.strerror}"
        hint = "A setting of AWS names this file, as AWS_WEB_IDENTITY_TOKEN_FILE or credential_process does."
    elif isinstance(problem, exceptions.BotoCoreError) and type(problem).__name__ in _SAY_THE_SETTING:
        words, hint = shown(str(problem)), f"See the environment and {files}."
    elif error := credentials_error(problem, bucket, profile):
        return error
    else:
        words = f"a setting of the profile {profile}, or of AWS in the environment, cannot be used"
        words, hint = f"{words} ({type(problem).__name__})", f"See {files}."
    return RefusedError(path=f"{SCHEME}{bucket}", problem=words, hint=hint)


def _profile(session: Any) -> str:
    return str(session.profile or "default")


def _require_credentials(session: Any, bucket: str) -> None:
    from botocore.exceptions import NoCredentialsError

    try:
        credentials = session.get_credentials()
    except ValueError:  # What it has printed is no JSON, or lacks a field.
        raise RefusedError(
            path=f"{SCHEME}{bucket}",
            problem=f"credential_process of the profile {_profile(session)} has printed no credentials",
            hint=f"See what it prints: aws configure export-credentials --profile {shell_word(_profile(session))}",
        ) from None
    if credentials is None:
        raise NoCredentialsError
    for value, name in zip(credentials.get_frozen_credentials()[:3], _CREDENTIALS, strict=True):
        if value and not (value.isascii() and value.isprintable()):
            problem = f"the {name} has a line break or another character that none has"
            raise RefusedError(path=f"{SCHEME}{bucket}", problem=problem, hint=CREDENTIALS_HINT)


def _require_certificates(file: str | None, bucket: str) -> None:
    if not file:
        return
    try:
        ssl.create_default_context(cafile=file)
    except (OSError, ValueError):
        named_by = "AWS_CA_BUNDLE" if os.environ.get("AWS_CA_BUNDLE") else "ca_bundle"
        raise RefusedError(
            path=f"{SCHEME}{bucket}",
            problem=f"{named_by} names no file of certificates: {shown(file)}",
            hint="Name a file of certificates as PEM.",
        ) from None


def _is_final(problem: Exception, *, has_answered: bool) -> bool:
    """Return whether an error of the connection stays: the host is unknown, not trusted, or nothing listens there."""
    from botocore import exceptions

    if isinstance(problem, exceptions.SSLError):
        return is_untrusted(problem)
    if isinstance(problem, exceptions.EndpointConnectionError) and not has_answered:
        return is_unknown_host(problem) or is_refused_port(problem)
    return False


def _require_usable_settings(environment: MutableMapping[str, str], bucket: str) -> None:
    """Remove empty variables of AWS, which count as not set, and raise RefusedError for one that cannot be used.

    No value is in the error: it can be a secret.
    """
    address = f"{SCHEME}{bucket}"
    for name in [name for name, value in environment.items() if name.startswith("AWS_") and not value]:
        del environment[name]
    for name, value in environment.items():
        instead = _OF_OTHER_TOOLS.get(name)
        if instead is not None and instead not in environment:
            hint = f"Set {instead} in its place." if instead else "Unset it."
            raise RefusedError(path=address, problem=f"kcompact does not support the setting {name}", hint=hint)
        if name.startswith("AWS_") and not value.isprintable():
            problem = f"{name} has a line break or another character that cannot be printed"
            raise RefusedError(path=address, problem=problem, hint="Set it again, without that character.")
    if environment.get(_PAYER, "requester") != "requester":
        raise RefusedError(path=address, problem=f"{_PAYER} is not requester", hint="Set it to requester, or unset it.")
    if not environment.get("AWS_MAX_ATTEMPTS", "1").isdigit():
        raise RefusedError(
            path=address, problem="AWS_MAX_ATTEMPTS is no number", hint="Set it to a number, or unset it."
        )
    for name in _ENDPOINTS:
        if name in environment:
            _require_url(name, environment[name], bucket)


def _require_url(name: str, url: str, bucket: str) -> None:
    """Raise RefusedError if the value of a setting is no address of a store."""
    if not url.startswith(("http://", "https://")):
        raise _no_url(name, bucket)
    if not _is_address(url):
        raise _no_url(name, bucket, "is no address of a store")


def _no_url(name: str, bucket: str, why: str = "has no http:// or https://") -> RefusedError:
    hint = f"Set {name} as https://HOST or http://HOST:PORT."
    return RefusedError(path=f"{SCHEME}{bucket}", problem=f"{name} {why}", hint=hint)


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        has_place = bool(parts.hostname) and parts.port != 0 and parts.username is None
        has_place = has_place and not (parts.query or parts.fragment)
    except ValueError:
        return False
    return has_place and url.isascii() and url.isprintable() and " " not in url


def _settings_files() -> tuple[str, str]:
    config = os.environ.get("AWS_CONFIG_FILE", "~/.aws/config")
    return config, os.environ.get("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials")


def _config(session: Any) -> Any:
    from botocore.config import Config

    retries: dict[str, Any] = {}
    if "AWS_RETRY_MODE" not in os.environ and "retry_mode" not in session.get_scoped_config():
        retries["mode"] = "standard"
    if session.get_config_variable("max_attempts") is None:
        retries["total_max_attempts"] = 1 + MAX_RETRIES
    return Config(
        connect_timeout=_CONNECT_TIMEOUT_S,
        read_timeout=_READ_TIMEOUT_S,
        max_pool_connections=_CONNECTIONS,
        retries=retries,
        tcp_keepalive=True,
        # kcompact sends and compares checksums itself. Some stores do not know the library's own way.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
    )
