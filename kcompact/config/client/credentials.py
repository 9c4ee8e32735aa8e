"""How a client authenticates, by Kafka's settings `sasl.*`. Rule: SaslChannelBuilder, LoginManager."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kcompact.config.client.jaas import LoginModule, parse_jaas
from kcompact.config.client.tokens import TOKEN_SECRETS, TokenSource, token_source
from kcompact.errors import ConfigError

SASL_SECRETS = {"sasl.jaas.config", *TOKEN_SECRETS}
_JAAS_SECRETS = ("password", "clientSecret")

_SECURITY = "org.apache.kafka.common.security."
_MODULES = {
    "PLAIN": f"{_SECURITY}plain.PlainLoginModule",
    "SCRAM-SHA-256": f"{_SECURITY}scram.ScramLoginModule",
    "SCRAM-SHA-512": f"{_SECURITY}scram.ScramLoginModule",
    "OAUTHBEARER": f"{_SECURITY}oauthbearer.OAuthBearerLoginModule",
}
"""The mechanisms that kcompact supports, and the login module of each."""
_FOREIGN_CODE = ("sasl.client.callback.handler.class", "sasl.login.class")
"""Settings that name a class of Java, whose effect kcompact cannot have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """A mechanism of SASL with user and password, or with the source of a token."""

    mechanism: str
    user: str = ""
    password: str = field(default="", repr=False)
    tokens: TokenSource | None = None


def parse_credentials(settings: Mapping[str, str], *, where: str) -> Credentials:
    """Return the credentials of a client. `where` names the file of the settings in errors. Raises ConfigError."""
    mechanism = settings.get("sasl.mechanism")
    if mechanism not in _MODULES:
        is_kafkas = "is GSSAPI (Kerberos), Kafka's default" if mechanism is None else f"is '{mechanism}'"
        raise ConfigError(
            path=where,
            problem=f"sasl.mechanism {is_kafkas}, which kcompact does not support",
            hint=f"Supported are {', '.join(_MODULES)}.",
        )
    for name in _FOREIGN_CODE:
        if name in settings:
            raise ConfigError(path=where, problem=f"{name} is set, and kcompact cannot run classes of Java")
    module = _login_module(settings, mechanism, where)
    if mechanism == "OAUTHBEARER":
        return Credentials(mechanism=mechanism, tokens=token_source(settings, module.options, where=where))
    if "sasl.login.callback.handler.class" in settings:
        problem = "sasl.login.callback.handler.class is set, and kcompact cannot run classes of Java"
        raise ConfigError(path=where, problem=problem)
    if module.options.get("tokenauth", "").lower() == "true":
        problem = "sasl.jaas.config has tokenauth=true, and kcompact does not support delegation tokens"
        raise ConfigError(path=where, problem=problem)
    missing = [name for name in ("username", "password") if name not in module.options]
    if missing:
        raise ConfigError(path=where, problem=f"sasl.jaas.config has no {' and no '.join(missing)}")
    return Credentials(mechanism=mechanism, user=module.options["username"], password=module.options["password"])


def _login_module(settings: Mapping[str, str], mechanism: str, where: str) -> LoginModule:
    text, expected = settings.get("sasl.jaas.config"), _MODULES[mechanism]
    if text is None:
        options = "" if mechanism == "OAUTHBEARER" else ' username="USER" password="PASSWORD"'
        raise ConfigError(
            path=where,
            problem=f"sasl.mechanism is {mechanism}, but sasl.jaas.config is missing",
            hint=f"Add the line: sasl.jaas.config={expected} required{options};",
        )
    try:
        module = parse_jaas(text)
    except ValueError as error:
        raise ConfigError(path=where, problem=f"sasl.jaas.config {error}") from None
    if module.name != expected:
        problem = f"sasl.jaas.config has the login module '{module.name}', but {mechanism} needs {expected}"
        raise ConfigError(path=where, problem=problem)
    return module


def holds_password(jaas: str) -> bool:
    """Return whether a `sasl.jaas.config` has a password itself, and not only variables."""
    try:
        options = parse_jaas(jaas).options
    except ValueError:
        return False
    return any(options.get(name) for name in _JAAS_SECRETS)
