"""A real cluster with TLS and authentication, whose settings are read with a client's file that Kafka takes too."""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

import kcompact
from fixtures.broker import create_topics
from kcompact.config.client.settings import ClientConfig
from kcompact.config.kafka_names import KAFKA_CLIENT_NAMES
from tests.oracle.clients import config_command
from tests.oracle.driver import class_path
from tests.oracle.real_kafka import JVM_OPTIONS, java
from tests.oracle.secured_broker import ALICE, BOB, STORE_PASSWORD, SecuredBroker, client_file, jaas
from tests.support.command_line import kcompact as command_line
from tests.support.command_line import note_texts, process

pytestmark = [pytest.mark.oracle, pytest.mark.slow]

RATIO = "min.cleanable.dirty.ratio"
OAUTH_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
HANDLER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    running = SecuredBroker(tmp_path_factory.mktemp("secured"))
    with running:
        create_topics(running.address, {"orders": {"cleanup.policy": "compact", RATIO: "0.25"}})
        yield running


def trust(broker: SecuredBroker, name: str = "trust.pkcs12") -> dict[str, object]:
    found: dict[str, object] = {"ssl.truststore.location": broker.keys / name}
    if name.endswith(".pem"):
        return found | {"ssl.truststore.type": "PEM"}
    return found | {"ssl.truststore.type": name.rpartition(".")[2].upper(), "ssl.truststore.password": STORE_PASSWORD}


def inline(broker: SecuredBroker, name: str) -> str:
    """Return a PEM file as the value of a property."""
    return (broker.keys / name).read_text().strip().replace("\n", "\\n\\\n")


def sasl(mechanism: str, **user: str) -> dict[str, object]:
    return {"sasl.mechanism": mechanism, "sasl.jaas.config": jaas(mechanism, **user)}


def settings_of(name: str, broker: SecuredBroker) -> tuple[str, dict[str, object]]:
    """Return a listener and the settings of a client that may use it."""
    ssl: dict[str, object] = {"security.protocol": "SSL"}
    key_store = {"ssl.keystore.location": broker.keys / "client.p12", "ssl.keystore.password": STORE_PASSWORD}
    pem = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": inline(broker, "client.enc.key"),
        "ssl.keystore.certificate.chain": inline(broker, "client.pem"),
        "ssl.key.password": STORE_PASSWORD,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": inline(broker, "ca.pem"),
    }
    oauth = {
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.jaas.config": f'{OAUTH_MODULE} unsecuredLoginStringClaim_sub="alice";',
    }
    return {
        "tls, jks": ("SSL", ssl | trust(broker, "trust.jks")),
        "tls, pkcs12": ("SSL", ssl | trust(broker)),
        "tls, pem": ("SSL", ssl | trust(broker, "ca.pem")),
        "tls 1.2, one suite": (
            "SSL",
            ssl
            | trust(broker)
            | {"ssl.enabled.protocols": "TLSv1.2", "ssl.cipher.suites": "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"},
        ),
        "other name": ("OTHER", ssl | trust(broker) | {"ssl.endpoint.identification.algorithm": ""}),
        "mtls, pkcs12": ("MTLS", ssl | trust(broker) | {"ssl.keystore.type": "PKCS12"} | key_store),
        "mtls, pem": ("MTLS", ssl | pem),
        "tls, scram-sha-512": ("SASL_SSL", {"security.protocol": "SASL_SSL"} | trust(broker) | sasl("SCRAM-SHA-512")),
        "scram-sha-256": ("SASL_PLAINTEXT", {"security.protocol": "SASL_PLAINTEXT"} | sasl("SCRAM-SHA-256")),
        "plain": ("SASL_PLAINTEXT", {"security.protocol": "SASL_PLAINTEXT"} | sasl("PLAIN")),
        "tls, oauth": ("SASL_SSL", {"security.protocol": "SASL_SSL"} | trust(broker) | oauth),
    }[name]


WAYS = """\
tls, jks | tls, pkcs12 | tls, pem | tls 1.2, one suite | other name | mtls, pkcs12 | mtls, pem | tls, scram-sha-512
scram-sha-256 | plain | tls, oauth""".replace("\n", " | ").split(" | ")


@pytest.mark.parametrize("name", WAYS)
def test_a_file_that_kafkas_own_tool_takes(name: str, broker: SecuredBroker, tmp_path: Path) -> None:
    listener, settings = settings_of(name, broker)
    file = client_file(tmp_path / "client.properties", settings)
    address = broker.secured(listener)
    told = kafkas_tool(address, file)
    assert (told.returncode, f"{RATIO}=0.25" in told.stdout) == (0, True), told.stderr
    ran = command_line(
        "plan", "--json", "--topic", "orders", "--bootstrap-server", address, "--command-config", file, broker.log_dir
    )
    assert (ran.code, [line for line in ran.err.splitlines() if "is running on" not in line]) == (0, [])
    found = {each: (value["value"], value["origin"]) for each, value in ran.partition["config"].items()}
    assert found[RATIO] == (0.25, "bootstrap-server")
    assert found["log.cleaner.dedupe.buffer.size"] == (16777216, "bootstrap-server")


def kafkas_tool(address: str, file: Path) -> subprocess.CompletedProcess[str]:
    """Run Kafka's own tool for settings with a client's file."""
    described = ("--describe", "--entity-type", "topics", "--entity-name", "orders")
    return config_command(address, "--command-config", str(file), *described, check=False)


def failure(broker: SecuredBroker, tmp_path: Path, listener: str, settings: Mapping[str, object] | None) -> str:
    """Return the error of a run that must not show a secret."""
    options: list[str | Path] = ["--bootstrap-server", broker.secured(listener)]
    if settings is not None:
        options += ["--command-config", client_file(tmp_path / "client.properties", settings)]
    ran = process("plan", "--debug", *options, broker.log_dir)
    assert (ran.returncode, ran.stdout) == (1, "")
    assert not any(secret in ran.stderr for secret in (ALICE, BOB, STORE_PASSWORD, "hush"))
    return ran.stderr


@pytest.mark.parametrize(
    ("listener", "protocol", "more", "problem"),
    [
        ("SSL", None, {}, "the listener requires TLS\nPass --command-config FILE"),
        (
            "SASL_PLAINTEXT",
            None,
            {},
            "requires authentication (OAUTHBEARER, PLAIN, SCRAM-SHA-256, SCRAM-SHA-512)\nPass",
        ),
        ("SSL", "PLAINTEXT", {"client.id": "me"}, "the listener requires TLS, but security.protocol is PLAINTEXT\nSet"),
        ("SASL_PLAINTEXT", "SSL", {}, "the listener has no TLS, but security.protocol is SSL\nPass"),
        ("SASL_SSL", "SSL", {}, "SCRAM-SHA-512), but security.protocol is SSL\nSet security.protocol=SASL_SSL"),
        ("SSL", "SASL_SSL", sasl("SCRAM-SHA-256"), "has no authentication, but security.protocol is SASL_SSL\nSet"),
        (
            "SASL_SSL",
            "SASL_SSL",
            sasl("PLAIN", password="hush"),
            "the authentication of alice with PLAIN failed: Authen",
        ),
        (
            "SASL_SSL",
            "SASL_SSL",
            sasl("SCRAM-SHA-512", password="hush"),
            "the authentication of alice with SCRAM-SHA-512 failed: Authentication failed during authentication due to "
            "invalid credentials with SASL mechanism SCRAM-SHA-512\nCheck sasl.jaas.config.",
        ),
        ("OTHER", "SSL", {}, "the broker's certificate is not for 127.0.0.1\nPass the broker under a name"),
        ("EXPIRED", "SSL", {}, "the broker's certificate is not trusted (self-signed certificate)\nssl.truststore"),
        ("EXPIRED", "SSL", {"expired.pem": True}, "the broker's certificate has expired"),
        ("MTLS", "SSL", {}, "the listener requires a certificate of the client\nSet ssl.keystore.location"),
        ("MTLS", "SSL", {"ssl.enabled.protocols": "TLSv1.2"}, "the listener requires a certificate of the client\nSet"),
        ("MTLS", "SSL", {"expired.p12": True}, "the listener refuses the client's certificate (certificate unknown)"),
    ],
)
def test_what_is_wrong(
    listener: str,
    protocol: str | None,
    more: dict[str, object],
    problem: str,
    broker: SecuredBroker,
    tmp_path: Path,
) -> None:
    settings: dict[str, object] | None = None
    if protocol is not None:
        settings = {"security.protocol": protocol} | trust(broker) | more
    if settings is not None and settings.pop("expired.pem", None):
        settings |= {"ssl.truststore.location": broker.keys / "expired.pem", "ssl.truststore.type": "PEM"}
        del settings["ssl.truststore.password"]
    if settings is not None and settings.pop("expired.p12", None):
        own = {"ssl.keystore.location": broker.keys / "expired.p12", "ssl.keystore.password": STORE_PASSWORD}
        settings |= {"ssl.keystore.type": "PKCS12"} | own
    assert problem in failure(broker, tmp_path, listener, settings)


def test_a_token_that_has_expired(broker: SecuredBroker, tmp_path: Path) -> None:
    settings = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}
    module = f'{OAUTH_MODULE} unsecuredLoginStringClaim_sub="alice" unsecuredLoginLifetimeSeconds="-10";'
    said = failure(broker, tmp_path, "SASL_PLAINTEXT", settings | {"sasl.jaas.config": module})
    assert "the authentication with OAUTHBEARER failed" in said
    assert "Check sasl.jaas.config and sasl.oauthbearer.*." in said


def test_a_token_endpoint(broker: SecuredBroker, tmp_path: Path) -> None:
    unsecured = ClientConfig.of(
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.jaas.config": f'{OAUTH_MODULE} unsecuredLoginStringClaim_sub="alice";',
        }
    ).credentials
    assert unsecured is not None
    assert unsecured.tokens is not None
    token = unsecured.tokens.fetch(1)

    class Endpoint(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps({"access_token": token, "token_type": "bearer"}).encode())

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Endpoint)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        settings = {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.jaas.config": f"{OAUTH_MODULE};",
            "sasl.login.callback.handler.class": HANDLER,
            "sasl.oauthbearer.token.endpoint.url": f"http://127.0.0.1:{server.server_address[1]}/token",
            "sasl.oauthbearer.client.credentials.client.id": "me",
            "sasl.oauthbearer.client.credentials.client.secret": "hush",
        }
        client = ClientConfig.read(client_file(tmp_path / "client.properties", settings))
        assert planned(broker, client)["value"] == 0.25
    finally:
        server.shutdown()
        server.server_close()


def planned(broker: SecuredBroker, client: ClientConfig, listener: str = "SASL_PLAINTEXT") -> dict[str, Any]:
    """Return the ratio that a plan from Python has."""
    options = kcompact.PlanOptions(now_ms=0, bootstrap_server=broker.secured(listener), client=client)
    directory = broker.log_dir / "orders-0"
    config = options.configs_of([directory])[directory].config
    return {"value": config.min_cleanable_dirty_ratio}


def test_a_user_without_rights(broker: SecuredBroker, tmp_path: Path) -> None:
    settings = {"security.protocol": "SASL_PLAINTEXT"} | sasl("SCRAM-SHA-512", user="bob", password=BOB)
    options = ["--bootstrap-server", broker.secured("SASL_PLAINTEXT")]
    options += ["--command-config", str(client_file(tmp_path / "client.properties", settings))]
    beside = command_line("plan", "--json", "--topic", "orders", *options, broker.log_dir)
    assert beside.code == 0
    assert beside.partition["config"][RATIO] == {"value": 0.25, "source": "topic-override", "origin": "metadata-log"}
    assert f"{options[1]} does not let this user read the settings of this topic" in note_texts(beside.partition)
    shutil.copytree(broker.log_dir / "orders-0", tmp_path / "elsewhere" / "orders-0")
    alone = command_line("plan", "--json", *options, tmp_path / "elsewhere")
    assert (alone.code, alone.partition["exit_code"]) == (1, 1)
    assert "this user may not read the settings of the topic\nTo allow it: kafka-acls.sh" in alone.partition["error"]


def test_the_names_of_all_settings_of_a_client() -> None:
    """Kafka prints its documentation, which has all names but the internal ones."""
    command = [java(), *JVM_OPTIONS, "-cp", class_path(), "org.apache.kafka.clients.admin.AdminClientConfig"]
    page = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    names = {part.partition('"')[0] for part in page.split('<a id="')[1:]}
    assert {name for name in names if not name.startswith("adminclientconfigs_")} <= KAFKA_CLIENT_NAMES
