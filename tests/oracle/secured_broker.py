"""A real broker with TLS and authentication on listeners of its own, and the keys of its clients.

The listeners, each on a port of 127.0.0.1: `SSL`, `MTLS` (wants a client's certificate), `SASL_SSL` and
`SASL_PLAINTEXT` (PLAIN, both SCRAM mechanisms, OAUTHBEARER with unsecured tokens), `OTHER` (a certificate for another
name) and `EXPIRED`. Users: alice may do everything, bob nothing.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

from fixtures.broker import Broker, free_ports
from tests.oracle.real_kafka import java

ALICE, BOB = "alice's secret;", "bob=secret"
STORE_PASSWORD = "store-secret"
LISTENERS = ("SSL", "MTLS", "SASL_SSL", "SASL_PLAINTEXT", "OTHER", "EXPIRED")
_PROTOCOLS = {"MTLS": "SSL", "OTHER": "SSL", "EXPIRED": "SSL"}
_MODULES = {
    "plain": 'plain.PlainLoginModule required user_alice="{alice}" user_bob="{bob}"',
    "scram-sha-256": "scram.ScramLoginModule required",
    "scram-sha-512": "scram.ScramLoginModule required",
    "oauthbearer": 'oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker"',
}


class Keys:
    """A certificate authority, the broker's and the client's certificates, and stores of all formats."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True)
        self.directory = directory
        authority = "req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.pem -days 30 -subj /CN=authority"
        self._run(f"openssl {authority} -addext basicConstraints=critical,CA:TRUE")
        self._signed("broker", names="DNS:localhost,IP:127.0.0.1")
        self._signed("other", names="DNS:kafka.example")
        self._signed("client", names="DNS:client")
        stores = f"-noprompt -storepass {STORE_PASSWORD}"
        expired = f"-alias expired {stores} -keystore expired.p12"
        days = "-startdate -10d -validity 1"
        self._run(f"keytool -genkeypair -keyalg RSA -dname CN=expired {days} -ext san=ip:127.0.0.1 {expired}")
        self._run(f"keytool -exportcert -rfc -file expired.pem {expired}")
        for kind in ("JKS", "PKCS12"):
            trust = f"-storetype {kind} -keystore trust.{kind.lower()}"
            self._run(f"keytool -importcert -alias ca -file ca.pem {stores} {trust}")
        self._run(
            f"keytool -importkeystore -noprompt -srckeystore client.p12 -srcstorepass {STORE_PASSWORD} "
            f"-destkeystore client.jks -deststoretype JKS -deststorepass {STORE_PASSWORD}"
        )

    def __truediv__(self, name: str) -> Path:
        return self.directory / name

    def _signed(self, name: str, *, names: str) -> None:
        """Make NAME.key, NAME.enc.key (encrypted), NAME.pem and NAME.p12, signed by the authority."""
        (self / f"{name}.ext").write_text(f"subjectAltName={names}\n")
        key, store = f"{name}.key", f"-passout pass:{STORE_PASSWORD}"
        self._run(f"openssl req -new -newkey rsa:2048 -nodes -keyout {key} -out {name}.csr -subj /CN={name}")
        by = "-CA ca.pem -CAkey ca.key -CAcreateserial"
        self._run(f"openssl x509 -req -in {name}.csr {by} -extfile {name}.ext -days 30 -out {name}.pem")
        self._run(f"openssl pkcs12 -export -in {name}.pem -inkey {key} -certfile ca.pem -out {name}.p12 {store}")
        # Java 17 decrypts no key that is encrypted by PBES2, OpenSSL's default.
        self._run(f"openssl pkcs8 -topk8 -v1 PBE-SHA1-3DES -in {key} -out {name}.enc.key {store}")

    def _run(self, command: str) -> None:
        program, *arguments = command.split()
        program = java().removesuffix("java") + program if program == "keytool" else program
        subprocess.run([program, *arguments], cwd=self.directory, check=True, capture_output=True)


class SecuredBroker(Broker):
    """A broker with these listeners beside its plain one."""

    def __init__(self, home: Path) -> None:
        self.keys = Keys(home / "keys")
        self.ports = dict(zip(LISTENERS, free_ports(len(LISTENERS)), strict=True))
        scram = [f"{kind}=[name={user},password={password}]" for user, password in (("alice", ALICE), ("bob", BOB))
                 for kind in ("SCRAM-SHA-256", "SCRAM-SHA-512")]  # fmt: skip
        options = [word for each in scram for word in ("--add-scram", each)]
        super().__init__(home, properties=self._secured_properties(), format_options=options)

    def _secured_properties(self) -> str:
        from_above = "PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}"
        listeners = "".join(f",{name}://127.0.0.1:{port}" for name, port in self.ports.items())
        protocols = "".join(f",{name}:{_PROTOCOLS.get(name, name)}" for name in LISTENERS)
        lines = [
            f"listeners={from_above}{listeners}",
            f"advertised.listeners=PLAINTEXT://127.0.0.1:{{port}}{listeners}",
            f"listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT{protocols}",
            "inter.broker.listener.name=PLAINTEXT",
            "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users=User:ANONYMOUS;User:alice;User:CN=client",
            "ssl.keystore.type=PKCS12",
            f"ssl.keystore.location={self.keys / 'broker.p12'}",
            f"ssl.keystore.password={STORE_PASSWORD}",
            "ssl.truststore.type=PEM",
            f"ssl.truststore.location={self.keys / 'ca.pem'}",
            "listener.name.mtls.ssl.client.auth=required",
            f"listener.name.other.ssl.keystore.location={self.keys / 'other.p12'}",
            f"listener.name.expired.ssl.keystore.location={self.keys / 'expired.p12'}",
        ]
        for listener in ("sasl_ssl", "sasl_plaintext"):
            lines.append(
                f"listener.name.{listener}.sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER"
            )
            for mechanism, module in _MODULES.items():
                text = module.format(alice=ALICE, bob=BOB)
                lines.append(
                    f"listener.name.{listener}.{mechanism}.sasl.jaas.config=org.apache.kafka.common.security.{text};"
                )
        return "\n".join([*lines, ""])

    def start(self) -> None:
        """Start, with the ports that the base class has chosen."""
        self._more = self._more.replace("{port}", str(self._port)).replace("{controller}", str(self._controller))
        super().start()

    def secured(self, listener: str) -> str:
        """Return the address of a listener."""
        return f"127.0.0.1:{self.ports[listener]}"


def jaas(mechanism: str, user: str = "alice", password: str = ALICE) -> str:
    """Return a client's `sasl.jaas.config`."""
    module = "plain.Plain" if mechanism == "PLAIN" else "scram.Scram"
    return f'org.apache.kafka.common.security.{module}LoginModule required username="{user}" password="{password}";'


def client_file(file: Path, properties: Mapping[str, object]) -> Path:
    """Write the properties of a client for its user only, and return the file."""
    file.touch(mode=0o600)
    file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    return file
