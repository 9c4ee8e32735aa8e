"""The token of OAUTHBEARER: from a token endpoint, from a file, or unsecured, for tests. Rules: KIP-255, KIP-768.

`sasl.login.callback.handler.class` says which, as in Kafka: without it the token is an unsecured one made from options
of the login module. With Kafka's OAuthBearerLoginCallbackHandler it comes from `sasl.oauthbearer.token.endpoint.url`,
which is a file or a token endpoint that is asked with the client's id and secret. The endpoint is asked once, without
proxies and redirects.
"""

from __future__ import annotations

import base64
import json
import ssl
from collections.abc import Callable, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus, unquote, urlsplit

from kcompact.config.client.tls import ssl_context
from kcompact.errors import ClusterUnreachableError, ConfigError
from kcompact.format.java_values import read_double, read_integer
from kcompact.host.machine import clock_ms
from kcompact.log.files import read_file
from kcompact.values import dataclass

_ENDPOINT = "sasl.oauthbearer.token.endpoint.url"
_CLIENT = "sasl.oauthbearer.client.credentials.client"
_RETRIEVER = "sasl.oauthbearer.jwt.retriever.class"
_HANDLER = "sasl.login.callback.handler.class"
TOKEN_SECRETS = {f"{_CLIENT}.secret", "sasl.oauthbearer.assertion.private.key.passphrase"}

_PACKAGE = "org.apache.kafka.common.security.oauthbearer."
_HANDLERS = (f"{_PACKAGE}OAuthBearerLoginCallbackHandler", f"{_PACKAGE}secured.OAuthBearerLoginCallbackHandler")
"""The second one is the name before Kafka 4."""
_UNSECURED = f"{_PACKAGE}internals.unsecured.OAuthBearerUnsecuredLoginCallbackHandler"
_RETRIEVERS = {f"{_PACKAGE}{name}JwtRetriever" for name in ("Default", "ClientCredentials", "File")}

_MAX_ANSWER_BYTES = 1 << 20
_LIFETIME_S = 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenSource:
    """Where the token comes from. `fetch` returns it, and takes a limit of time in seconds.

    `fetch` raises ConfigError, StorageError, ClusterUnreachableError.
    """

    fetch: Callable[[float], str] = field(repr=False)
    extensions: Mapping[str, str] = field(repr=False)


def token_source(settings: Mapping[str, str], options: Mapping[str, str], *, where: str) -> TokenSource:
    """Return the source of the token. `options` are those of the login module. Raises ConfigError."""
    handler = settings.get(_HANDLER, _UNSECURED)
    if handler == _UNSECURED:
        claims = _claims(options, where)
        return TokenSource(
            fetch=lambda _: _unsecured(claims), extensions=_starting(options, "unsecuredLoginExtension_")
        )
    if handler not in _HANDLERS:
        problem = f"{_HANDLER} is '{handler}', and kcompact cannot run classes of Java"
        raise ConfigError(path=where, problem=problem, hint=f"Supported is {_HANDLERS[0]}.")
    if settings.get(_RETRIEVER, next(iter(_RETRIEVERS))) not in _RETRIEVERS:
        problem = f"{_RETRIEVER} is '{settings[_RETRIEVER]}', which kcompact does not support"
        raise ConfigError(path=where, problem=problem, hint=f"Supported are {', '.join(sorted(_RETRIEVERS))}.")
    if any(name.startswith("sasl.oauthbearer.assertion.") for name in settings):
        problem = "sasl.oauthbearer.assertion.* are set, and kcompact does not sign assertions"
        raise ConfigError(path=where, problem=problem, hint="Supported are a client's id and secret, or a file.")
    extensions = _starting(options, "extension_")
    url = settings.get(_ENDPOINT, "")
    parts = urlsplit(url)
    if parts.scheme == "file":
        path = Path(unquote(parts.path))
        return TokenSource(fetch=lambda _: _from_file(path), extensions=extensions)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(path=where, problem=f"{_ENDPOINT} is missing, or no URL with http, https or file")
    return TokenSource(fetch=_endpoint(url, settings, options, where), extensions=extensions)


def _starting(options: Mapping[str, str], prefix: str) -> dict[str, str]:
    return {name.removeprefix(prefix): value for name, value in options.items() if name.startswith(prefix)}


# A file


def _from_file(path: Path) -> str:
    if not path.exists():
        raise ConfigError(path=path, problem=f"no such file ({_ENDPOINT})")
    token = read_file(path.resolve(), max_bytes=_MAX_ANSWER_BYTES).decode("utf-8", "replace").strip()
    if not _is_token(token):
        raise ConfigError(path=path, problem=f"has no token ({_ENDPOINT})")
    return token


def _is_token(text: str) -> bool:
    return bool(text) and text.isascii() and text.isprintable() and " " not in text


# A token endpoint


def _endpoint(url: str, settings: Mapping[str, str], options: Mapping[str, str], where: str) -> Callable[[float], str]:
    """Return a function that asks a token endpoint. Rules: HttpJwtRetriever, ClientSecretRequestFormatter; RFC 6749."""

    def value(name: str, option: str) -> str:
        setting = settings.get(name, options.get(option, "")).strip()
        return (
            quote_plus(setting) if settings.get("sasl.oauthbearer.header.urlencode", "").lower() == "true" else setting
        )

    client, secret = value(f"{_CLIENT}.id", "clientId"), value(f"{_CLIENT}.secret", "clientSecret")
    scope = value("sasl.oauthbearer.scope", "scope")
    missing = [name for name, each in ((f"{_CLIENT}.id", client), (f"{_CLIENT}.secret", secret)) if not each]
    if missing:
        problem = f"{' and '.join(missing)} {'are' if len(missing) > 1 else 'is'} missing"
        raise ConfigError(path=where, problem=problem, hint=f"{_ENDPOINT} needs the id and the secret of a client.")
    authorization = base64.b64encode(f"{client}:{secret}".encode()).decode()
    body = "grant_type=client_credentials" + (f"&scope={scope}" if scope else "")
    # The endpoint has TLS settings of its own, in the options of the login module. Rule: JaasOptionsUtils.
    own = {name: each for name, each in options.items() if name.startswith("ssl.")}
    context = ssl_context(own, where=where) if url.lower().startswith("https:") else None

    def fetch(timeout_s: float) -> str:
        try:
            answer = _post(url, body, authorization, context, timeout_s)
        except OSError as problem:  # Every error of urllib, of a socket and of TLS is one.
            raise _refused(url, problem) from None
        return _token_in(url, answer)

    return fetch


def _post(url: str, body: str, authorization: str, context: ssl.SSLContext | None, timeout_s: float) -> bytes:
    from urllib import request

    class NoRedirect(request.HTTPRedirectHandler):
        """The secret goes to the endpoint that the user has named, and to no other."""

        def redirect_request(self, *_: object, **__: object) -> None:
            return None

    headers = {
        "Accept": "application/json",
        "Authorization": f"Basic {authorization}",
        "Cache-Control": "no-cache",
        "Content-Type": "application/x-www-form-urlencoded",
    }
    opener = request.build_opener(request.ProxyHandler({}), request.HTTPSHandler(context=context), NoRedirect)
    with opener.open(request.Request(url, body.encode(), headers), timeout=timeout_s) as response:
        answer: bytes = response.read(_MAX_ANSWER_BYTES)
        return answer


def _refused(url: str, problem: OSError) -> ClusterUnreachableError:
    """Return the error for a token endpoint that gave no token. An answer's body has no secret by RFC 6749, 5.2."""
    from urllib.error import HTTPError

    if isinstance(problem, HTTPError):
        with problem:
            detail = _error_in(problem.read(_MAX_ANSWER_BYTES))
        why = f"the token endpoint answered {problem.code} {problem.reason}{detail}"
        hint = f"Check {_CLIENT}.id and {_CLIENT}.secret." if problem.code in (400, 401, 403) else ""
    else:
        why, hint = f"the token endpoint cannot be asked ({getattr(problem, 'reason', None) or problem})", ""
    return ClusterUnreachableError(address=_without_user(url), problem=why, hint=hint or f"Check {_ENDPOINT}.")


def _error_in(body: bytes) -> str:
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        return ""
    words = [answer.get(name) for name in ("error", "error_description")] if isinstance(answer, dict) else []
    text = " - ".join(each for each in words if isinstance(each, str))
    return f": {text[:200]}" if text else ""


def _token_in(url: str, answer: bytes) -> str:
    """Return the token in an answer. Rule: JwtResponseParser."""
    try:
        document = json.loads(answer)
    except (ValueError, RecursionError):
        document = None
    candidates = [document.get(name) for name in ("access_token", "id_token")] if isinstance(document, dict) else []
    token = next((each.strip() for each in candidates if isinstance(each, str) and each.strip()), "")
    if not _is_token(token):
        problem = "the token endpoint's answer has no access_token"
        raise ClusterUnreachableError(address=_without_user(url), problem=problem, hint=f"Check {_ENDPOINT}.")
    return token


def _without_user(url: str) -> str:
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


# An unsecured token


def _claims(options: Mapping[str, str], where: str) -> dict[str, Any]:
    """Return the claims of an unsecured token without its times. Rule: OAuthBearerUnsecuredLoginCallbackHandler."""
    claims: dict[str, Any] = dict(_starting(options, "unsecuredLoginStringClaim_"))
    numbers = {name: read_double(text) for name, text in _starting(options, "unsecuredLoginNumberClaim_").items()}
    lifetime_s = read_integer(options.get("unsecuredLoginLifetimeSeconds", str(_LIFETIME_S)))
    if lifetime_s is None or None in numbers.values():
        problem = (
            "sasl.jaas.config has an unsecuredLoginNumberClaim_ or unsecuredLoginLifetimeSeconds that is no number"
        )
        raise ConfigError(path=where, problem=problem)
    claims |= numbers
    for name, text in _starting(options, "unsecuredLoginListClaim_").items():
        claims[name] = text[1:].split(text[0]) if len(text) > 1 else []
    if not claims.get(options.get("unsecuredLoginPrincipalClaimName", "sub").strip() or "sub"):
        raise ConfigError(
            path=where,
            problem="sasl.mechanism is OAUTHBEARER, but nothing says where the token comes from",
            hint=f"Set {_HANDLER}={_HANDLERS[0]} and {_ENDPOINT}, or for a test cluster the option "
            "unsecuredLoginStringClaim_sub of sasl.jaas.config.",
        )
    return claims | {"exp": lifetime_s}


def _unsecured(claims: Mapping[str, Any]) -> str:
    now_s = clock_ms() / 1000
    parts = ({"alg": "none"}, {**claims, "iat": now_s, "exp": now_s + claims["exp"]})
    encoded = [base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts]
    return ".".join((*encoded, ""))
