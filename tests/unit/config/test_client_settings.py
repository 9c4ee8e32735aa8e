"""`config.client`: the settings of a client under Kafka's names."""

from __future__ import annotations

import json
import re
import ssl
import sys
import threading
from base64 import b64decode, urlsafe_b64decode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from kcompact.config.client.settings import ClientConfig
from kcompact.config.client.stores import certificates_in
from kcompact.config.client.tls import openssl_name
from kcompact.errors import ClusterUnreachableError, ConfigError, KcompactError
from kcompact.host.installation import how_to_add
from tests.support.certificates import PASSWORD, authority, jks, sign, trust_store
from tests.support.command_line import kcompact, partition

SECURITY = "org.apache.kafka.common.security."
SCRAM = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "SCRAM-SHA-512",
    "sasl.jaas.config": f'{SECURITY}scram.ScramLoginModule required username="alice" password="pass word";',
}
SSL = {"security.protocol": "SSL"}
OAUTH = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.jaas.config": f"{SECURITY}oauthbearer.OAuthBearerLoginModule required;",
}
HANDLER = {"sasl.login.callback.handler.class": f"{SECURITY}oauthbearer.OAuthBearerLoginCallbackHandler"}
CLIENT = "sasl.oauthbearer.client.credentials.client"


def written(file: Path, properties: Mapping[str, object], *, mode: int = 0o600) -> Path:
    file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    file.chmod(mode)
    return file


# What is read


def test_nothing_is_plain() -> None:
    assert ClientConfig.of({}) == ClientConfig()


def test_user_and_password() -> None:
    client = ClientConfig.of(SCRAM | {"client.id": "me", "request.timeout.ms": "5000"})
    assert client.credentials is not None
    assert (client.credentials.mechanism, client.credentials.user) == ("SCRAM-SHA-512", "alice")
    assert client.credentials.password == "pass word"
    assert (client.client_id, client.request_timeout_ms, client.connection_timeout_ms) == ("me", 5000, 3000)
    assert "pass word" not in repr(client)


def test_unknown_names_get_one_note() -> None:
    client = ClientConfig.of(
        {"ssl.trustore.location": "x", "acks": "all", "client.id": "me"}, where="client.properties"
    )
    (note,) = client.notes
    assert note.text.startswith("client.properties: Kafka's admin client has no such setting")
    assert note.text.endswith("ssl.trustore.location (did you mean ssl.truststore.location?), acks")


@pytest.mark.parametrize(
    ("properties", "problem"),
    [
        ({"security.protocol": "TLS"}, "security.protocol is 'TLS', not one of PLAINTEXT, SSL"),
        ({"request.timeout.ms": "8s"}, "request.timeout.ms is '8s', not a number of milliseconds"),
        ({"request.timeout.ms": "0"}, "request.timeout.ms is '0'"),
        ({"request.timeout.ms": "5\xa0"}, "request.timeout.ms is"),
        ({"client.dns.lookup": "resolve_canonical_bootstrap_servers_only"}, "client.dns.lookup is"),
        (
            SCRAM | {"sasl.mechanism": "GSSAPI"},
            "sasl.mechanism is 'GSSAPI', which kcompact does not support\nSupported",
        ),
        ({"security.protocol": "SASL_SSL"}, r"sasl.mechanism is GSSAPI \(Kerberos\), Kafka's default"),
        (
            {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"},
            "is PLAIN, but sasl.jaas.config is missing\nAdd",
        ),
        (SCRAM | {"sasl.mechanism": "PLAIN"}, "has the login module '.*ScramLoginModule', but PLAIN needs"),
        (SCRAM | {"sasl.jaas.config": f"{SECURITY}scram.ScramLoginModule required;"}, "no username and no password"),
        (SCRAM | {"sasl.login.class": "x.Y"}, "sasl.login.class is set, and kcompact cannot run classes of Java"),
        (SCRAM | {"sasl.login.callback.handler.class": "x.Y"}, "kcompact cannot run classes of Java"),
        (SSL | {"ssl.engine.factory.class": "x.Y"}, "ssl.engine.factory.class is set, and kcompact cannot run"),
        (SSL | {"ssl.truststore.type": "BCFKS"}, "ssl.truststore.type is 'BCFKS', which kcompact does not support"),
        (SSL | {"ssl.truststore.location": "/no/such"}, r"/no/such: no such file \(ssl.truststore.location\)"),
        (SSL | {"ssl.truststore.password": "x"}, "ssl.truststore.password is set, but not ssl.truststore.location"),
        (SSL | {"ssl.truststore.certificates": "none"}, "ssl.truststore.certificates has no certificate in PEM"),
        (SSL | {"ssl.keystore.key": "x"}, "need each other, one is missing"),
        (SSL | {"ssl.endpoint.identification.algorithm": "ldap"}, "Kafka has https, and nothing for no check"),
        (SSL | {"ssl.enabled.protocols": "TLSv1.1,TLSv1"}, "leave neither TLSv1.2 nor TLSv1.3"),
        (SSL | {"ssl.enabled.protocols": "TLSv1.2,TLS2"}, "ssl.enabled.protocols has 'TLS2'"),
        (SSL | {"ssl.cipher.suites": "TLS_RSA_WITH_RC4_128_MD5"}, "which is unknown here or not safe"),
        (
            SSL | {"ssl.cipher.suites": "TLS_AES_256_GCM_SHA384", "ssl.enabled.protocols": "TLSv1.2"},
            "ssl.enabled.protocols and ssl.cipher.suites leave neither",
        ),
    ],
)
def test_what_is_refused(properties: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as raised:
        ClientConfig.of(properties, where="client.properties")
    assert raised.value.exit_code == 2


# Files


def test_a_file_is_read_as_kafka_reads_it(tmp_path: Path) -> None:
    jaas = SCRAM["sasl.jaas.config"].replace("pass word", "p\\u00e4ss")
    client = ClientConfig.read(written(tmp_path / "client.properties", SCRAM | {"sasl.jaas.config": jaas}))
    assert client.credentials is not None
    assert (client.credentials.password, client.notes) == ("päss", ())


@pytest.mark.parametrize(
    ("mode", "properties", "noted"),
    [
        (0o644, SCRAM, True),
        (0o640, SCRAM, False),
        (0o644, {"client.id": "me"}, False),
        (0o644, SCRAM | {"sasl.jaas.config": SCRAM["sasl.jaas.config"].replace("pass word", "${env:SECRET}")}, False),
        (0o644, {"ssl.key.password": "x"}, True),
    ],
)
def test_a_password_that_everyone_can_read(mode: int, properties: dict[str, str], noted: bool, tmp_path: Path) -> None:
    file = written(tmp_path / "client.properties", properties, mode=mode)
    note = f"{file} has a password, and every user of this machine can read it: chmod 600 {file}"
    assert [each.text for each in ClientConfig.read(file).notes] == ([note] if noted else [])


@pytest.mark.parametrize(
    "text",
    [
        "ssl.key.password=secret\\u00g\n",
        "sasl.jaas.config=secret\nsasl.mechanism=PLAIN\nsecurity.protocol=SASL_SSL\n",
        "sasl.jaas.config=a required password=secret!;\nsasl.mechanism=PLAIN\nsecurity.protocol=SASL_SSL\n",
        "ssl.keystore.key=secret\nssl.keystore.certificate.chain=secret\nsecurity.protocol=SSL\n",
        "ssl.truststore.location=client.properties\nssl.truststore.password=secret\nsecurity.protocol=SSL\n",
    ],
)
def test_no_message_has_a_secret(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("client.properties").write_text(text)
    partition(tmp_path / "logs")
    ran = kcompact(
        "plan", "--debug", "--json", "--bootstrap-server", "host:1", "--command-config", "client.properties", "logs"
    )
    assert (ran.code, ran.out) == (2, "")
    assert "error: " in ran.err
    assert "secret" not in ran.err


@pytest.mark.parametrize("command", ["inspect", "plan", "doctor"])
def test_notes_are_printed(command: str, tmp_path: Path) -> None:
    file = written(tmp_path / "client.properties", {"ssl.key.password": "x", "acks": "all"}, mode=0o644)
    partition(tmp_path / "logs")
    ran = kcompact(command, "--bootstrap-server", "127.0.0.1:1", "--command-config", file, tmp_path / "logs")
    first, second = [line for line in ran.err.splitlines() if line.startswith("note: ")]
    assert first.startswith(f"note: {file} has a password, and every user")
    assert second.startswith(f"note: {file}: Kafka's admin client has no such setting")


def test_the_option_needs_a_cluster(tmp_path: Path) -> None:
    file = written(tmp_path / "client.properties", SCRAM)
    ran = kcompact("plan", "--command-config", file, tmp_path)
    assert (ran.code, "--command-config needs --bootstrap-server" in ran.err) == (2, True)


@pytest.mark.parametrize("command", ["inspect", "plan", "clean", "doctor", "report"])
def test_every_command_that_asks_a_cluster_takes_it(command: str) -> None:
    text = kcompact(command, "--help").out
    assert ("--bootstrap-server" in text, "--command-config FILE" in text) == (True, True)


# Variables

PROVIDERS = {
    "config.providers": "env, file,dir",
    "config.providers.env.class": "org.apache.kafka.common.config.provider.EnvVarConfigProvider",
    "config.providers.file.class": "org.apache.kafka.common.config.provider.FileConfigProvider",
    "config.providers.dir.class": "org.apache.kafka.common.config.provider.DirectoryConfigProvider",
}


def test_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KC_ID", "from the environment")
    written(tmp_path / "secrets.properties", {"key": "from a file"})
    (tmp_path / "name").write_text("from a directory")
    values = {
        "${env:KC_ID}": "from the environment",
        "a ${env:KC_ID} b": "a from the environment b",
        f"${{file:{tmp_path}/secrets.properties:key}}": "from a file",
        f"${{dir:{tmp_path}:name}}": "from a directory",
        f"${{dir:{tmp_path}:../name}}": f"${{dir:{tmp_path}:../name}}",
        "${env:KC_NONE}": "${env:KC_NONE}",
        "${vault:path:key}": "${vault:path:key}",
    }
    for text, value in values.items():
        assert ClientConfig.of(PROVIDERS | {"client.id": text}).client_id == value
        assert ClientConfig.of({"client.id": text}).client_id == text


def test_variables_that_are_not_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KC_ID", "secret")
    written(tmp_path / "secrets.properties", {"key": "secret"})
    limits = {
        "config.providers.env.param.allowlist.pattern": "OTHER_.*",
        "config.providers.file.param.allowed.paths": f"/elsewhere,{tmp_path}/other",
    }
    for text in ("${env:KC_ID}", f"${{file:{tmp_path}/secrets.properties:key}}"):
        assert ClientConfig.of(PROVIDERS | limits | {"client.id": text}).client_id == text
    with pytest.raises(
        ConfigError, match=r"config.providers.vault.class is 'x.Vault', which kcompact does not support"
    ):
        ClientConfig.of({"config.providers": "vault", "config.providers.vault.class": "x.Vault"})
    with pytest.raises(ConfigError, match=r"names .*no such, which does not exist"):
        ClientConfig.of(PROVIDERS | {"client.id": f"${{file:{tmp_path}/no such:key}}"})


# Certificates


def store(name: str, tmp_path: Path) -> dict[str, str]:
    """Return the settings of a trust store with the authority, of a kind."""
    kinds = {"jks": jks(authority()), "p12": trust_store(authority()), "pem": authority().pem.encode()}
    if name == "inline":
        return {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": " ".join(authority().pem.split("\n"))}
    file = tmp_path / f"trust.{name}"
    file.write_bytes(kinds[name])
    found = {"ssl.truststore.location": str(file)}
    return found if name == "pem" else found | {"ssl.truststore.password": PASSWORD}


@pytest.mark.parametrize("name", ["jks", "p12", "pem", "inline"])
def test_trust_stores(name: str, tmp_path: Path) -> None:
    context = ClientConfig.of(SSL | store(name, tmp_path)).tls
    assert context is not None
    assert context.get_ca_certs(binary_form=True) == [authority().der]
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)


@pytest.mark.parametrize("name", ["jks", "p12"])
@pytest.mark.parametrize("change", ["password", "cut"])
def test_trust_stores_that_cannot_be_read(name: str, change: str, tmp_path: Path) -> None:
    settings = SSL | store(name, tmp_path)
    if change == "password":
        settings["ssl.truststore.password"] = "other"
    else:
        file = Path(settings["ssl.truststore.location"])
        file.write_bytes(file.read_bytes()[:-30])
    with pytest.raises(
        ConfigError, match=r"the password is wrong.* or the file is damaged \(ssl.truststore.location\)"
    ):
        ClientConfig.of(settings)


def test_pkcs12_without_the_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = SSL | store("p12", tmp_path)
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.serialization", None)
    convert = f"openssl pkcs12 -in {tmp_path}/trust.p12 -nokeys -out ca.pem"
    added = re.escape(how_to_add("live"))
    with pytest.raises(ConfigError, match=rf"(?s)cryptography; {added}\n.*{convert}\n.*without ssl.truststore.pass"):
        ClientConfig.of(settings)


def test_no_certificate_is_asked_for_on_the_terminal(tmp_path: Path) -> None:
    own = sign("client", by=authority(), names=["client"])
    keys = {"ssl.keystore.key": own.key_pem("key secret"), "ssl.keystore.certificate.chain": own.pem}
    for password in ({}, {"ssl.key.password": "other"}):
        with pytest.raises(
            ConfigError, match=r"the private key of the key store: ssl.key.password is wrong or missing"
        ):
            ClientConfig.of(SSL | keys | password)
    client = ClientConfig.of(SSL | keys | {"ssl.key.password": "key secret"})
    assert client.has_certificate


def test_key_stores(tmp_path: Path) -> None:
    own = sign("client", by=authority(), names=["client"])
    pem, p12, old = tmp_path / "client.pem", tmp_path / "client.p12", tmp_path / "my client.jks"
    pem.write_text("Bag Attributes\n    friendlyName: client\n" + own.key_pem("key secret") + own.pem)
    p12.write_bytes(own.key_store())
    old.write_bytes(jks(keys=[own]))
    for settings in (
        {"ssl.keystore.location": str(pem), "ssl.key.password": "key secret"},
        {"ssl.keystore.location": str(p12), "ssl.keystore.password": PASSWORD},
    ):
        assert ClientConfig.of(SSL | settings).has_certificate
    with pytest.raises(ConfigError, match=f"keytool -importkeystore -srckeystore '{old}' -destkeystore client.p12"):
        ClientConfig.of(SSL | {"ssl.keystore.location": str(old), "ssl.keystore.password": PASSWORD})
    p12.write_bytes(trust_store(authority()))
    with pytest.raises(ConfigError, match="has no private key with a certificate"):
        ClientConfig.of(SSL | {"ssl.keystore.location": str(p12), "ssl.keystore.password": PASSWORD})


def test_pem_of_one_line() -> None:
    assert certificates_in(" ".join(authority().pem.split("\n"))) == authority().pem


def test_versions_and_suites() -> None:
    def of(settings: dict[str, str]) -> ssl.SSLContext:
        context = ClientConfig.of(SSL | settings).tls
        assert context is not None
        return context

    both = of({})
    assert (both.minimum_version, both.maximum_version) == (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)
    assert of({"ssl.enabled.protocols": "TLSv1.2,TLSv1.1"}).maximum_version == ssl.TLSVersion.TLSv1_2
    assert of({"ssl.cipher.suites": "TLS_AES_256_GCM_SHA384"}).minimum_version == ssl.TLSVersion.TLSv1_3
    only = of({"ssl.cipher.suites": "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"})
    assert only.maximum_version == ssl.TLSVersion.TLSv1_2
    names = [each["name"] for each in only.get_ciphers() if each["protocol"] != "TLSv1.3"]
    assert names == ["ECDHE-RSA-AES256-GCM-SHA384"]
    assert not of({"ssl.endpoint.identification.algorithm": ""}).check_hostname


@pytest.mark.parametrize(
    ("java", "openssl"),
    [
        ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "ECDHE-RSA-AES256-GCM-SHA384"),
        ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-ECDSA-CHACHA20-POLY1305"),
        ("TLS_DHE_RSA_WITH_AES_128_GCM_SHA256", "DHE-RSA-AES128-GCM-SHA256"),
        ("TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256", "ECDHE-RSA-AES128-SHA256"),
        ("TLS_RSA_WITH_AES_128_CBC_SHA", "AES128-SHA"),
    ],
)
def test_names_of_suites(java: str, openssl: str) -> None:
    assert openssl_name(java) == openssl
    ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).set_ciphers(openssl)


# Tokens


@contextmanager
def token_endpoint(answers: list[tuple[int, dict[str, str], object]]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Answer each request with the next status, headers and document; give the URL and what was asked."""
    asked: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            asked.append({"path": self.path, "body": body, "headers": dict(self.headers)})
            status, headers, document = answers[min(len(asked), len(answers)) - 1]
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(json.dumps(document).encode())

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/token", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def fetched(settings: Mapping[str, str]) -> str:
    credentials = ClientConfig.of(settings).credentials
    assert credentials is not None
    assert credentials.tokens is not None
    return credentials.tokens.fetch(5)


@pytest.mark.parametrize("inside", [True, False], ids=["in the login module", "as settings"])
def test_a_token_endpoint(inside: bool) -> None:
    module = f"{SECURITY}oauthbearer.OAuthBearerLoginModule required"
    if inside:
        settings = {"sasl.jaas.config": f'{module} clientId="me" clientSecret="hush:" scope="kafka" extension_x="1";'}
    else:
        settings = {"sasl.jaas.config": f"{module};", f"{CLIENT}.id": "me", f"{CLIENT}.secret": "hush:"}
        settings["sasl.oauthbearer.scope"] = "kafka"
    with token_endpoint([(200, {}, {"access_token": "a.b.c"})]) as (url, asked):
        assert fetched(OAUTH | HANDLER | settings | {"sasl.oauthbearer.token.endpoint.url": url}) == "a.b.c"
    (one,) = asked
    assert (one["path"], one["body"]) == ("/token", "grant_type=client_credentials&scope=kafka")
    assert b64decode(one["headers"]["Authorization"].removeprefix("Basic ")) == b"me:hush:"


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ((401, {}, {"error": "invalid_client", "error_description": "who?"}), "answered 401 .*: invalid_client - who?"),
        ((200, {}, {"token": "a.b.c"}), "answer has no access_token"),
        ((200, {}, []), "answer has no access_token"),
        ((302, {"Location": "/elsewhere"}, {}), "the token endpoint answered 302"),
    ],
)
def test_a_token_endpoint_that_refuses(answer: tuple[int, dict[str, str], object], problem: str) -> None:
    client = {f"{CLIENT}.id": "me", f"{CLIENT}.secret": "hush"}
    with token_endpoint([answer]) as (url, asked), pytest.raises(ClusterUnreachableError, match=problem) as raised:
        fetched(OAUTH | HANDLER | client | {"sasl.oauthbearer.token.endpoint.url": url})
    assert len(asked) == 1
    assert "hush" not in str(raised.value)


def test_a_token_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "my token"
    settings = OAUTH | HANDLER | {"sasl.oauthbearer.token.endpoint.url": file.as_uri()}
    with pytest.raises(ConfigError, match="no such file"):
        fetched(settings)
    file.write_text("a.b.c\n")
    assert fetched(settings) == "a.b.c"
    file.write_text("two words")
    with pytest.raises(ConfigError, match="has no token"):
        fetched(settings)


def test_an_unsecured_token() -> None:
    options = 'unsecuredLoginStringClaim_sub="alice" unsecuredLoginNumberClaim_n="2" unsecuredLoginListClaim_l="|a|b"'
    token = fetched(OAUTH | {"sasl.jaas.config": f"{SECURITY}oauthbearer.OAuthBearerLoginModule required {options};"})
    header, claims = (json.loads(urlsafe_b64decode(part + "==")) for part in token.split(".")[:2])
    assert (header, token.endswith(".")) == ({"alg": "none"}, True)
    assert (claims["sub"], claims["n"], claims["l"], claims["exp"] - claims["iat"]) == ("alice", 2, ["a", "b"], 3600)


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({}, "nothing says where the token comes from\nSet sasl.login.callback.handler.class"),
        (HANDLER, "sasl.oauthbearer.token.endpoint.url is missing, or no URL"),
        (HANDLER | {"sasl.oauthbearer.token.endpoint.url": "http://x/"}, "client.id and .*client.secret are missing"),
        (HANDLER | {"sasl.oauthbearer.assertion.file": "x"}, "kcompact does not sign assertions"),
        ({"sasl.login.callback.handler.class": "x.Y"}, "kcompact cannot run classes of Java"),
    ],
)
def test_tokens_that_are_refused(settings: dict[str, str], problem: str) -> None:
    with pytest.raises(KcompactError, match=problem):
        ClientConfig.of(OAUTH | settings)
