"""Real brokers that keep what they know elsewhere than beside each partition: in ZooKeeper, or on one of two disks."""

from __future__ import annotations

import subprocess
from pathlib import Path
from types import TracebackType

from fixtures.broker import Broker, free_ports
from kcompact.release import KAFKA_3_9, RELEASES
from tests.oracle.driver import NEWEST, build, class_path
from tests.oracle.real_kafka import JVM_OPTIONS, copy_log_dir, java
from tests.support.patience import PATIENCE_S

KAFKA_4_3 = RELEASES["4.3"].version
OWN_HANDS_OFF = """\
log.cleaner.min.cleanable.ratio=1.0
log.initial.task.delay.ms=1000000000
"""
"""With these the broker neither cleans nor deletes a segment when it starts on what kcompact has left."""
_ZOOKEEPER = """\
clientPort={port}
clientPortAddress=127.0.0.1
dataDir={directory}
admin.enableServer=false
"""
_WITH_ZOOKEEPER = """\
broker.id=1
zookeeper.connect=127.0.0.1:{zookeeper}
zookeeper.connection.timeout.ms=300000
listeners=PLAINTEXT://127.0.0.1:{port}
log.dirs={log_dir}
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
offsets.topic.num.partitions=1
group.initial.rebalance.delay.ms=0
log.cleaner.dedupe.buffer.size=16777216
log.cleaner.backoff.ms=1000000000
log.retention.check.interval.ms=1000000000
"""


class BrokerWithZooKeeper(Broker):
    """A broker of Kafka 3.9 whose metadata is in ZooKeeper, which stays until the end of the `with`."""

    def __init__(self, home: Path, *, properties: str = "", version: str = KAFKA_3_9.version) -> None:
        super().__init__(home, properties=properties, version=version)
        self._directory = home / "zookeeper"
        self._zookeeper: subprocess.Popen[bytes] | None = None
        (self._zookeeper_port,) = free_ports(1)

    @property
    def server_properties(self) -> str:
        """The text of `server.properties`, without the lines to add."""
        return _WITH_ZOOKEEPER.format(zookeeper=self._zookeeper_port, **self.places)

    def prepare(self) -> None:
        """Write `server.properties`, and start ZooKeeper."""
        if self._zookeeper is None:
            self.write_properties(self.server_properties)
            file = self.log_dir.with_name("zookeeper.properties")
            file.write_text(_ZOOKEEPER.format(port=self._zookeeper_port, directory=self._directory), encoding="utf-8")
            self._zookeeper = self.run("org.apache.zookeeper.server.ZooKeeperServerMain", str(file))

    def __enter__(self) -> Broker:
        try:
            return super().__enter__()
        except BaseException:
            self._end_zookeeper()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            super().__exit__(kind, error, trace)
        finally:
            self._end_zookeeper()

    def _end_zookeeper(self) -> None:
        if self._zookeeper is not None:
            self._zookeeper.terminate()
            self._zookeeper.wait(PATIENCE_S)
            self._zookeeper = None


class BrokerWithDisks(Broker):
    """A broker of Kafka 4.3 with two log directories, `d1` with the metadata log and `d2`."""

    def __init__(self, home: Path, *, properties: str = "") -> None:
        super().__init__(home, properties=OWN_HANDS_OFF + properties, version=KAFKA_4_3)
        self.disks = (home / "d1", home / "d2")
        self.log_dir = self.disks[0]

    @property
    def places(self) -> dict[str, object]:
        """What `server.properties` says of where the broker is."""
        return {**super().places, "log_dir": ",".join(map(str, self.disks))}

    def directory(self, partition: str) -> Path:
        """Return where a partition is, or a part of its name."""
        (found,) = [path for disk in self.disks for path in disk.glob(partition)]
        return found


def copy_of_home(home: Path, target: Path) -> Path:
    """Copy what a stopped broker has in its home, without what it has logged; return the copy."""
    copy_log_dir(home, target)
    (target / "broker.out").unlink()
    return target


def described_by(tool: str, address: str, *arguments: str, version: str = NEWEST) -> str:
    """Return what one of Kafka's own tools prints with `--describe`."""
    build(version)
    command = [java(), *JVM_OPTIONS, "-cp", class_path(version), tool, "--bootstrap-server", address, "--describe"]
    return subprocess.run([*command, *arguments], capture_output=True, text=True, check=True).stdout
