"""An SSL context of Python by Kafka's settings `ssl.*`. Rule: DefaultSslEngineFactory.

Differences to Java:

- Without a trust store Java trusts its own `cacerts`, kcompact the certificates of the operating system.
- Python cannot choose among the three suites of TLS 1.3: `ssl.cipher.suites` only says whether TLS 1.3 is used.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from pathlib import Path

from kcompact.config.client.stores import Identity, certificates_in, identity_in, read_identity, read_trust
from kcompact.errors import ConfigError
from kcompact.host.descriptors import closed_after

SSL_SECRETS = {"ssl.truststore.password", "ssl.keystore.password", "ssl.keystore.key", "ssl.key.password"}

_OF_JAVA = ("ssl.engine.factory.class", "ssl.provider", "security.providers")
_STORE_TYPES = ("JKS", "PKCS12", "PEM")
_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_OLD_VERSIONS = ("TLSv1", "TLSv1.1", "SSLv3", "SSLv2Hello")
_SUITES_OF_TLS_1_3 = ("TLS_AES_256_GCM_SHA384", "TLS_AES_128_GCM_SHA256", "TLS_CHACHA20_POLY1305_SHA256")


def ssl_context(settings: Mapping[str, str], *, where: str) -> ssl.SSLContext:
    """Return the context of a client. `where` names the file of the settings in errors. Raises ConfigError."""
    for name in _OF_JAVA:
        if name in settings:
            raise ConfigError(path=where, problem=f"{name} is set, and kcompact cannot run classes of Java")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # Java trusts whatever certificate is in the trust store, also one that is not an authority's own.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.check_hostname = _checks_hostname(settings, where)
    _restrict(context, settings, where)
    trust = _trust(settings, where)
    try:
        if trust is None:
            context.load_default_certs()
        else:
            context.load_verify_locations(cadata=trust)
    except ssl.SSLError as problem:
        raise ConfigError(
            path=where, problem=f"the trust store has an unusable certificate ({_reason(problem)})"
        ) from None
    identity = _identity(settings, where)
    if identity is not None:
        _load_identity(context, identity, where)
    return context


def _reason(problem: ssl.SSLError) -> str:
    return problem.reason or problem.strerror or type(problem).__name__


def _checks_hostname(settings: Mapping[str, str], where: str) -> bool:
    algorithm = settings.get("ssl.endpoint.identification.algorithm", "https")
    if algorithm.lower() not in ("", "https"):
        problem = f"ssl.endpoint.identification.algorithm is '{algorithm}'; Kafka has https, and nothing for no check"
        raise ConfigError(path=where, problem=problem)
    return bool(algorithm)


# Versions and suites


def _restrict(context: ssl.SSLContext, settings: Mapping[str, str], where: str) -> None:
    """Restrict the versions of TLS and the suites."""
    named = _list(settings.get("ssl.enabled.protocols", "")) or list(_VERSIONS)
    for name in named:
        if name not in (*_VERSIONS, *_OLD_VERSIONS):
            raise ConfigError(path=where, problem=f"ssl.enabled.protocols has '{name}', which is no version of TLS")
    versions = {_VERSIONS[name] for name in named if name in _VERSIONS}
    suites = _list(settings.get("ssl.cipher.suites", ""))
    if suites:
        old = [suite for suite in suites if suite not in _SUITES_OF_TLS_1_3]
        versions -= set() if old else {ssl.TLSVersion.TLSv1_2}
        versions -= set() if len(old) < len(suites) else {ssl.TLSVersion.TLSv1_3}
        if old:
            _set_suites(context, old, where)
    if not versions:
        names = "ssl.enabled.protocols" + (" and ssl.cipher.suites" if suites else "")
        raise ConfigError(path=where, problem=f"{names} leave neither TLSv1.2 nor TLSv1.3; others are not safe")
    context.minimum_version, context.maximum_version = min(versions), max(versions)


def _list(text: str) -> list[str]:
    return [each.strip() for each in text.split(",") if each.strip()]


def _set_suites(context: ssl.SSLContext, suites: list[str], where: str) -> None:
    """Set the suites of TLS 1.2. Kafka takes Java's names, OpenSSL has its own."""
    for suite in suites:
        try:
            context.set_ciphers(openssl_name(suite))
        except ssl.SSLError:
            problem = f"ssl.cipher.suites has '{suite}', which is unknown here or not safe"
            raise ConfigError(path=where, problem=problem) from None
    context.set_ciphers(":".join(map(openssl_name, suites)))


def openssl_name(suite: str) -> str:
    """Return OpenSSL's name of a suite of TLS 1.2: `TLS_RSA_WITH_AES_128_CBC_SHA` is `AES128-SHA`."""
    exchange, _, rest = suite.removeprefix("TLS_").partition("_WITH_")
    rest = rest.replace("AES_128_", "AES128-").replace("AES_256_", "AES256-")
    rest = rest.replace("CHACHA20_POLY1305_SHA256", "CHACHA20-POLY1305").replace("CBC_", "").replace("_", "-")
    exchange = exchange.replace("_", "-")
    return rest if exchange == "RSA" else f"{exchange}-{rest}"


# Stores


def _trust(settings: Mapping[str, str], where: str) -> str | None:
    """Return the certificates to trust in PEM, None for those of the operating system."""
    inline, location = settings.get("ssl.truststore.certificates"), _location(settings, "ssl.truststore", where)
    if inline is None:
        if location is None:
            return None
        password = settings.get("ssl.truststore.password")
        return read_trust(location, password=password, name="ssl.truststore.location")
    _exclude(where, "ssl.truststore.certificates", location)
    try:
        return certificates_in(inline)
    except ValueError as problem:
        raise ConfigError(path=where, problem=f"ssl.truststore.certificates {problem}") from None


def _identity(settings: Mapping[str, str], where: str) -> Identity | None:
    """Return the key and certificates of this client, or None."""
    key, chain = settings.get("ssl.keystore.key"), settings.get("ssl.keystore.certificate.chain")
    location = _location(settings, "ssl.keystore", where)
    key_password = settings.get("ssl.key.password")
    if key is None and chain is None:
        if location is None:
            return None
        password = settings.get("ssl.keystore.password")
        return read_identity(location, password=password, key_password=key_password, name="ssl.keystore.location")
    if key is None or chain is None:
        problem = "of ssl.keystore.key and ssl.keystore.certificate.chain, which need each other, one is missing"
        raise ConfigError(path=where, problem=problem)
    _exclude(where, "ssl.keystore.key", location)
    try:
        return identity_in(key, chain, password=key_password)
    except ValueError as problem:
        raise ConfigError(path=where, problem=f"ssl.keystore.key {problem}") from None


def _location(settings: Mapping[str, str], prefix: str, where: str) -> Path | None:
    kind, location = settings.get(f"{prefix}.type", "JKS"), settings.get(f"{prefix}.location")
    if kind.upper() not in _STORE_TYPES:
        problem = f"{prefix}.type is '{kind}', which kcompact does not support"
        raise ConfigError(path=where, problem=problem, hint=f"Supported are {', '.join(_STORE_TYPES)}.")
    if location is None and f"{prefix}.password" in settings:
        raise ConfigError(path=where, problem=f"{prefix}.password is set, but not {prefix}.location")
    return None if location is None else Path(location)


def _exclude(where: str, name: str, location: Path | None) -> None:
    if location is not None:
        problem = f"{name} and {name.rpartition('.')[0]}.location are both set; only one of them can count"
        raise ConfigError(path=where, problem=problem)


def _load_identity(context: ssl.SSLContext, identity: Identity, where: str) -> None:
    """Load a key and its certificates. OpenSSL takes them from a file only: one in memory, which has no name."""
    try:
        with closed_after(os.memfd_create("identity", os.MFD_CLOEXEC)) as descriptor:
            os.write(descriptor, identity.pem.encode())
            # Without a password OpenSSL would ask for one on the terminal.
            context.load_cert_chain(f"/proc/self/fd/{descriptor}", password=identity.password or "")
    except ssl.SSLError as problem:
        is_encrypted = "ENCRYPTED" in identity.pem.partition("\n")[0]
        why = "ssl.key.password is wrong or missing" if is_encrypted else f"unusable ({_reason(problem)})"
        raise ConfigError(path=where, problem=f"the private key of the key store: {why}") from None


# What is wrong with a connection, and what to set, from the errors of OpenSSL

CERTIFICATE_HINT = (
    "If the listener requires a certificate of the client, ssl.keystore.location must have a valid one of an authority "
    "that the broker trusts."
)
_EXPIRED, _NOT_YET_VALID = 10, 9
_OTHER_NAME = (62, 64)
"""Codes of OpenSSL's `X509_V_ERR_*`: hostname mismatch, address mismatch."""


def certificate_problem(error: ssl.SSLCertVerificationError, address: str) -> tuple[str, str]:
    """Return why the broker's certificate at HOST:PORT is refused, and what to do."""
    host = address.rpartition(":")[0]
    show = f"openssl s_client -connect {address} </dev/null | openssl x509 -noout"
    if error.verify_code == _EXPIRED:
        return "the broker's certificate has expired, or that of its authority", f"`{show} -dates` shows until when."
    if error.verify_code == _NOT_YET_VALID:
        return "the broker's certificate is not valid yet", f"Check the clock. `{show} -dates` shows from when."
    if error.verify_code in _OTHER_NAME:
        return f"the broker's certificate is not for {host}", (
            f"Pass the broker under a name of its certificate; `{show} -ext subjectAltName` shows them. An empty "
            "ssl.endpoint.identification.algorithm turns this check off."
        )
    return f"the broker's certificate is not trusted ({error.verify_message})", (
        "ssl.truststore.location must name a store with the certificate of the authority that signed it. "
        f"`{show} -issuer` shows which."
    )


def handshake_problem(error: ssl.SSLError, *, has_certificate: bool) -> tuple[str, str]:
    """Return why the listener refuses the TLS connection, and what to set. `has_certificate`: the client has one."""
    reason = (error.reason or str(error)).upper()
    alert = reason.rpartition("ALERT_")[2].replace("_", " ").lower()
    if "PROTOCOL_VERSION" in reason:
        problem = f"the listener and the client have no version of TLS in common ({alert})"
        return problem, "kcompact has TLSv1.2 and TLSv1.3, or what ssl.enabled.protocols leaves of them."
    if not has_certificate and any(word in reason for word in ("CERTIFICATE_REQUIRED", "BAD_CERTIFICATE")):
        return "the listener requires a certificate of the client", (
            "Set ssl.keystore.location, with ssl.keystore.password or ssl.key.password."
        )
    if has_certificate and any(word in reason for word in ("CERTIFICATE", "UNKNOWN_CA")):
        return f"the listener refuses the client's certificate ({alert})", (
            "ssl.keystore.location must have a valid one of an authority that the broker trusts."
        )
    return f"the listener refuses the TLS connection ({alert})", (
        "Compare ssl.cipher.suites and ssl.enabled.protocols with the broker's"
        + ("." if has_certificate else ", and set ssl.keystore.location if it requires a client's certificate.")
    )
