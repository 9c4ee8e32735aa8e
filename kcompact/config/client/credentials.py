"""How a client authenticates, by Kafka's settings `sasl.*`. Rule: SaslChannelBuilder, LoginManager.

The value of `sasl.jaas.config` is a login module of Java with its options:

    org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="alice's secret";

Errors name options, never their values.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field

from kcompact.config.client.tokens import TOKEN_SECRETS, TokenSource, token_source
from kcompact.errors import ConfigError
from kcompact.values import dataclass

# The value of `sasl.jaas.config`

_TOKEN = re.compile(
    r"""(?P<skip>[\x00-\x20]+ | //[^\r\n]* | /\*.*?\*/ | /[^\r\n]*)
      | (?P<word>[A-Za-z_$\u00a0-\U0010ffff][A-Za-z0-9._$\u00a0-\U0010ffff-]*)
      | "(?P<double>(?:\\.|[^"\\\r\n])*)"? | '(?P<single>(?:\\.|[^'\\\r\n])*)'?
      | (?P<number>-?[0-9.]+)
      | (?P<sign>.)""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\([0-3][0-7]{0,2}|[0-7]{1,2}|.)", re.DOTALL)
_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_FLAGS = ("required", "requisite", "sufficient", "optional")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginModule:
    """The class name of a login module, and its options, which hold secrets."""

    name: str
    options: Mapping[str, str] = field(repr=False)


def parse_jaas(text: str) -> LoginModule:
    """Return the only login module of a `sasl.jaas.config`.

    Raises ValueError with what is wrong, without any value of the text. Rule: JaasConfig, and java.io.StreamTokenizer
    with which Kafka reads the text: a value that is no word, such as one with `!` or one that begins with a digit,
    needs quotation marks.
    """
    tokens = [match for match in _TOKEN.finditer(text) if match.lastgroup != "skip"]
    words = iter([_word(match) for match in tokens])
    signs = [match["sign"] for match in tokens]
    if not tokens or signs[0]:
        raise ValueError("has no login module")
    name = next(words) or ""
    flag = next(words, None)
    if flag is None or flag.lower() not in _FLAGS:
        raise ValueError(f"needs one of {', '.join(_FLAGS)} after the login module")
    options: dict[str, str] = {}
    at = 2
    while at < len(tokens) and signs[at] != ";":
        key = _word(tokens[at])
        value = _word(tokens[at + 2]) if at + 2 < len(tokens) and signs[at + 1] == "=" else None
        if key is None or value is None:
            of = f"the option '{key}'" if key else "one of its options"
            raise ValueError(f"{of} has no value, or one that needs quotation marks")
        options[key] = value
        at += 3
    if at == len(tokens):
        raise ValueError("does not end with a semicolon")
    if at + 1 < len(tokens):
        raise ValueError("has more than one login module")
    return LoginModule(name=name, options=options)


def _word(match: re.Match[str]) -> str | None:
    """Return the text of a word or of a quoted string, None for a number or a sign."""
    quoted = match["double"] if match["single"] is None else match["single"]
    return match["word"] if quoted is None else _ESCAPE.sub(_unescaped, quoted)


def _unescaped(match: re.Match[str]) -> str:
    escape = match[1]
    return chr(int(escape, 8)) if escape.isdigit() and escape[0] < "8" else _ESCAPES.get(escape, escape)


# The credentials

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
