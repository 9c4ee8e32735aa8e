"""What an answer of a store, or the lack of one, means: the error to raise, with its cause and what to do.

Each cause has its own sentence, because what helps differs: another region, a new login, the clock, a restored object.
"Run the same command again" is said only where that can help. Nothing of an answer is quoted but its status, its error
code, and names that cannot be secret: servers quote the access key.
Source: "Amazon S3 API Reference", error responses; `botocore.exceptions`.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Mapping
from http import HTTPStatus
from http.client import responses
from typing import Any
from urllib.parse import urlsplit

from kcompact.bucket.path import SCHEME
from kcompact.errors import KcompactError, LogChangedError, RefusedError, StorageError
from kcompact.readable import shell_word, shown
from kcompact.values import dataclass

CREDENTIALS_HINT = (
    "Set the credentials as for the AWS tools: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE, or the role "
    "of the machine. For a store that is not AWS, set AWS_ENDPOINT_URL."
)
_OTHER_REGION = frozenset(
    {"PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException", "TemporaryRedirect"}
)
_EXPIRED = frozenset(
    {"ExpiredToken", "ExpiredTokenException", "InvalidToken", "TokenRefreshRequired", "RequestExpired"}
)
_DAMAGED_ON_THE_WAY = frozenset(
    {"BadDigest", "InvalidDigest", "XAmzContentSHA256Mismatch", "XAmzContentChecksumMismatch", "IncompleteBody"}
)
_CODE = re.compile(r"\w{1,60}(\.\w{1,60})?", re.ASCII)
_REGION = re.compile(r"[a-z0-9-]{2,40}", re.ASCII)
_SERVER_TIME = re.compile(r"[0-9TZ:.+-]{10,40}", re.ASCII)
_AGAIN = "run the same command again"


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    """What messages say of a store: its address, the setting that names it (empty for AWS), region and profile."""

    bucket: str
    url: str
    named_by: str
    region: str
    profile: str

    @property
    def endpoint_hint(self) -> str:
        """Where to look if the store is not the one that was meant."""
        return f"Check {self.named_by}." if self.named_by else "Check the network. A store elsewhere: AWS_ENDPOINT_URL."


class BrokenAnswerError(StorageError):
    """An answer whose end did not arrive, or whose bytes are not those that were stored. It can be asked for again."""

    def __init__(self, address: str, words: str = "an answer of the store was damaged on its way") -> None:
        super().__init__(path=address, problem=OSError(errno.ECONNABORTED, f"{words}; {_AGAIN}"))


class NoConditionalWritesError(RefusedError):
    """The store has no conditional writes, by which one of several writers wins."""

    def __init__(self, bucket: str) -> None:
        super().__init__(
            path=f"{SCHEME}{bucket}",
            problem="this store has no conditional writes (If-None-Match: *), which a copy needs; there is no copy",
            hint="Copy to a local directory with --output DIR, and upload that with the tools of the store.",
        )


class MissingObjectError(LogChangedError):
    """There is no such object."""


def changed(address: str, kind: type[LogChangedError] = LogChangedError) -> LogChangedError:
    """Return the error for an object that is another one by now, or none."""
    return kind(
        path=address,
        problem="was replaced or removed since it was listed",
        hint="kcompact stopped and changes nothing. Wait until the backup is complete, then run again.",
    )


def failed(address: str, words: str) -> StorageError:
    """Return the error for a request that failed, which another try can cure."""
    return StorageError(path=address, problem=OSError(errno.ECONNABORTED, f"{words}; {_AGAIN}"))


def no_s3(store: Store, detail: str = "") -> RefusedError:
    """Return the error for a server that answers otherwise than S3 does, such as a login page."""
    return RefusedError(
        path=f"{SCHEME}{store.bucket}",
        problem=f"{store.url} answers, but not as S3 does" + (f" ({detail})" if detail else ""),
        hint=f"A proxy, a login page or another service may answer there. {store.endpoint_hint}",
    )


def no_parts(address: str) -> RefusedError:
    """Return the error for a store that answers with another part of an object than it was asked for, or with all."""
    return RefusedError(
        path=address,
        problem="the store does not answer with the part of an object that is asked for (Range)",
        hint="Copy the log directory to a local one with the tools of the store.",
    )


def error_of(problem: Exception, address: str, store: Store) -> KcompactError:
    """Return the error for an exception of the client, or of what it is made of."""
    from botocore import exceptions
    from botocore.parsers import ResponseParserError

    if isinstance(problem, KcompactError):
        return problem
    if isinstance(problem, exceptions.ClientError):
        return _error_of_answer(problem, address, store)
    if isinstance(problem, ResponseParserError):
        return no_s3(store)
    if isinstance(problem, exceptions.IncompleteReadError | exceptions.ResponseStreamingError):
        return BrokenAnswerError(address)
    if isinstance(problem, exceptions.InvalidRegionError):
        return _other_region({}, {}, "a region without a name", store)
    if (error := credentials_error(problem, store.bucket, store.profile)) is not None:
        return error
    if isinstance(problem, exceptions.HTTPClientError | exceptions.ConnectionError | OSError):
        return _error_of_connection(problem, address, store)
    if isinstance(problem, exceptions.EndpointProviderError | exceptions.ParamValidationError):
        return RefusedError(
            path=f"{SCHEME}{store.bucket}",
            problem=f"the settings of the profile {store.profile} do not fit together ({type(problem).__name__})",
            hint=store.endpoint_hint,
        )
    # The client cannot make anything of the answer: a field is missing, or no number.
    return no_s3(store, type(problem).__name__)


def origin_of(problem: Any) -> str:
    """Return the server that an error of a connection is about, which can be one of credentials; empty if unknown."""
    parts = urlsplit(str(getattr(problem, "kwargs", {}).get("endpoint_url", "")))
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}" if parts.netloc else ""


def is_untrusted(problem: Exception) -> bool:
    """Return whether the certificate of a store is not trusted."""
    return "CERTIFICATE_VERIFY_FAILED" in str(problem)


def is_unknown_host(problem: Any) -> bool:
    """Return whether an EndpointConnectionError says that its host has no address."""
    return "Failed to resolve" in str(problem.kwargs.get("error", ""))


def is_refused_port(problem: Any) -> bool:
    """Return whether an EndpointConnectionError says that nothing listens at its port."""
    return "Connection refused" in str(problem.kwargs.get("error", ""))


def credentials_error(problem: Exception, bucket: str, profile: str) -> RefusedError | None:
    """Return the error for credentials that are not there or cannot be got, None for another exception."""
    from botocore import exceptions

    command = f"--profile {shell_word(profile)}"
    words, hint = "", CREDENTIALS_HINT
    if isinstance(problem, exceptions.SSOError | exceptions.TokenRetrievalError):
        words, hint = f"the login of the profile {profile} has ended", f"Run: aws sso login {command}"
    elif isinstance(problem, exceptions.CredentialRetrievalError):
        words = f"the credentials of the profile {profile} could not be got"
        hint = f"See why: aws configure export-credentials {command}"
    elif isinstance(problem, exceptions.MissingDependencyException):
        words = f"a setting of the profile {profile} needs the library awscrt, which kcompact does not support"
        hint = f'Run: eval "$(aws configure export-credentials {command} --format env)"'
    elif isinstance(problem, exceptions.NoCredentialsError):
        words = "no credentials were found"
    elif isinstance(problem, exceptions.PartialCredentialsError):
        words = f"a part of the credentials is missing: {problem.kwargs.get('cred_var', '')}"
    elif isinstance(problem, exceptions.InvalidConfigError):
        words, hint = f"the profile {profile}: {problem.kwargs.get('error_msg', problem)}", "Mend the profile."
    elif isinstance(problem, RuntimeError) and "expired" in str(problem):
        words = f"the credentials of the profile {profile} have expired"
    return RefusedError(path=f"{SCHEME}{bucket}", problem=words, hint=hint) if words else None


def _error_of_connection(problem: Exception, address: str, store: Store) -> KcompactError:
    from botocore import exceptions

    host, url = f"{SCHEME}{store.bucket}", origin_of(problem) or store.url
    if isinstance(problem, exceptions.SSLError):
        if is_untrusted(problem):
            return RefusedError(
                path=host,
                problem=f"the certificate of {url} is not trusted",
                hint="Set AWS_CA_BUNDLE, or ca_bundle in the profile, to the file of its certificate authority.",
            )
        return RefusedError(path=host, problem=f"{url} does not speak TLS", hint=store.endpoint_hint)
    if isinstance(problem, exceptions.ProxyConnectionError):
        return RefusedError(path=host, problem="the proxy does not answer", hint="Check HTTPS_PROXY and HTTP_PROXY.")
    if isinstance(problem, exceptions.EndpointConnectionError):
        if is_unknown_host(problem):
            return RefusedError(path=host, problem=f"the host of {url} is unknown", hint=store.endpoint_hint)
        if is_refused_port(problem):
            return RefusedError(path=host, problem=f"nothing listens at {url}", hint=store.endpoint_hint)
    if isinstance(problem, exceptions.ConnectTimeoutError | exceptions.ReadTimeoutError):
        return failed(address, f"{url} does not answer in time")
    return failed(address, f"no answer from {url}")


def _error_of_answer(problem: Any, address: str, store: Store) -> KcompactError:
    """Return the error for an answer with a status or an error code. `problem` is a ClientError."""
    error: Mapping[str, Any] = problem.response.get("Error", {})
    metadata = problem.response.get("ResponseMetadata", {})
    status, headers = int(metadata.get("HTTPStatusCode") or 0), metadata.get("HTTPHeaders", {})
    code = str(error.get("Code", ""))
    words = _words(status, code)
    if code == "NoSuchBucket":
        return RefusedError(path=f"{SCHEME}{store.bucket}", problem="no such bucket")
    if code in _EXPIRED:
        return RefusedError(
            path=f"{SCHEME}{store.bucket}",
            problem=f"the session of the credentials has ended ({words})",
            hint=f"Log in again, for example: aws sso login --profile {shell_word(store.profile)}; or set "
            "AWS_SESSION_TOKEN and its keys anew.",
        )
    if code == "RequestTimeTooSkewed":
        theirs = str(error.get("ServerTime", ""))
        at = f", where it is {theirs}" if _SERVER_TIME.fullmatch(theirs) else ""
        return RefusedError(
            path=f"{SCHEME}{store.bucket}",
            problem=f"the clock of this machine differs from that of the store{at}",
            hint="Set the clock of this machine. Credentials are not the cause.",
        )
    if code in _OTHER_REGION or ("x-amz-bucket-region" in headers and status in (301, 307)):
        return _other_region(error, headers, words, store)
    if code == "InvalidObjectState":
        return RefusedError(
            path=address,
            problem=f"is in an archive{_storage_class(error)}, from which it cannot be read at once",
            hint="Restore it first: aws s3api restore-object. Then run again.",
        )
    if code == "NoSuchKey":
        return changed(address, MissingObjectError)
    if status == HTTPStatus.PRECONDITION_FAILED:
        return changed(address)
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        hint = CREDENTIALS_HINT
        if "kms:" in str(error.get("Message", "")):
            hint = "The object is encrypted, and these credentials may not use its key (kms:Decrypt)."
        return RefusedError(path=address, problem=f"access denied ({words})", hint=hint)
    if code in _DAMAGED_ON_THE_WAY:
        return BrokenAnswerError(address, f"what was sent was damaged on its way ({words})")
    if status < 400 or (status == HTTPStatus.NOT_FOUND and not code.isalpha()):
        return no_s3(store)
    is_passing = status >= 500 or status in (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.CONFLICT, 429)
    if is_passing and status != HTTPStatus.NOT_IMPLEMENTED:
        return failed(address, words)
    return RefusedError(path=address, problem=f"the store refuses the request ({words})")


def _other_region(error: Mapping[str, Any], headers: Mapping[str, str], words: str, store: Store) -> RefusedError:
    region = str(error.get("Region") or headers.get("x-amz-bucket-region") or "")
    if not _REGION.fullmatch(region) or region == store.region:
        problem, hint = (
            f"the bucket is in another region than {store.region} ({words})",
            "Set AWS_REGION to its region.",
        )
    else:
        problem, hint = f"the bucket is in the region {region}, not in {store.region}", f"Set AWS_REGION={region}."
    return RefusedError(path=f"{SCHEME}{store.bucket}", problem=problem, hint=hint)


def _storage_class(error: Mapping[str, Any]) -> str:
    storage_class = str(error.get("StorageClass", ""))
    return f" (storage class {storage_class})" if _CODE.fullmatch(storage_class) else ""


def _words(status: int, code: str) -> str:
    """Return the status and the error code of an answer."""
    phrase = responses.get(status, "")
    known = code if _CODE.fullmatch(code) and not code.isdigit() else ""
    return shown(", ".join(filter(None, (f"{status} {phrase}".strip(), known))))
