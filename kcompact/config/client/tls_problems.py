"""What is wrong with a TLS connection, and what to set, from the errors of OpenSSL."""

from __future__ import annotations

import ssl

from kcompact.config.client.settings import ClientConfig

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


def handshake_problem(error: ssl.SSLError, client: ClientConfig) -> tuple[str, str]:
    """Return why the listener refuses the TLS connection, and what to set."""
    reason = (error.reason or str(error)).upper()
    said = reason.rpartition("ALERT_")[2].replace("_", " ").lower()
    if "PROTOCOL_VERSION" in reason:
        problem = f"the listener and the client have no version of TLS in common ({said})"
        return problem, "kcompact has TLSv1.2 and TLSv1.3, or what ssl.enabled.protocols leaves of them."
    if not client.has_certificate and any(word in reason for word in ("CERTIFICATE_REQUIRED", "BAD_CERTIFICATE")):
        return "the listener requires a certificate of the client", (
            "Set ssl.keystore.location, with ssl.keystore.password or ssl.key.password."
        )
    if client.has_certificate and any(word in reason for word in ("CERTIFICATE", "UNKNOWN_CA")):
        return f"the listener refuses the client's certificate ({said})", (
            "ssl.keystore.location must have a valid one of an authority that the broker trusts."
        )
    return f"the listener refuses the TLS connection ({said})", (
        "Compare ssl.cipher.suites and ssl.enabled.protocols with the broker's"
        + ("." if client.has_certificate else ", and set ssl.keystore.location if it requires a client's certificate.")
    )
