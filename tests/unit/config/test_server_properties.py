"""`config.server_properties`: where the broker's file is looked for, and which files do not count.

A file on a mounted disk names the log directories of that disk, so each test has a disk of its own: `disk` is its `/`.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from kcompact.config import server_properties
from kcompact.config.broker_config import BrokerConfig
from kcompact.config.server_properties import ENVIRONMENT, SWITCH, BrokerSearch
from kcompact.errors import ConfigError

NODE = 1
KRAFT = "process.roles=broker,controller\nnode.id=1\n"
ZOOKEEPER = "broker.id=1\nzookeeper.connect=host:2181\n"
OFF = "log.cleaner.enable=false\n"
NOBODY = 65534


@pytest.fixture(autouse=True)
def _on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, "auto")


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    (tmp_path / "var" / "lib" / "kafka" / "data").mkdir(parents=True)
    return tmp_path


@pytest.fixture
def anywhere(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file where nobody looks."""
    return tmp_path_factory.mktemp("anywhere") / "broker.conf"


def data(disk: Path) -> Path:
    return disk / "var" / "lib" / "kafka" / "data"


def write(file: Path, text: str = f"{KRAFT}{OFF}log.dirs=/var/lib/kafka/data\n") -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return file


def find(log_dir: Path, environment: Mapping[str, str] | None = None, node_id: int | None = NODE) -> BrokerConfig:
    return BrokerSearch(environment or {}).of(log_dir, node_id=node_id)


def doubts_about(found: BrokerConfig, below: Path) -> list[str]:
    """Return the doubts about files of a test; this machine may have a Kafka too."""
    return [doubt for doubt in found.doubts if str(below) in doubt]


# Where it is


PLACES = {
    "a package": "etc/kafka/server.properties",
    "a package, KRaft": "etc/kafka/kraft/server.properties",
    "an archive": "opt/kafka_2.13-4.3.1/config/server.properties",
    "an archive, only a broker": "opt/kafka/config/broker.properties",
    "an archive before Kafka 4": "usr/local/kafka/config/kraft/broker.properties",
    "apache/kafka": "opt/kafka/config/server.properties",
    "apache/kafka, mounted": "mnt/shared/config/server.properties",
    "apache/kafka, as it comes": "etc/kafka/docker/server.properties",
    "confluentinc/cp-kafka": "etc/kafka/kafka.properties",
    "bitnami/kafka": "opt/bitnami/kafka/config/server.properties",
    "Strimzi": "tmp/strimzi.properties",
    "Strimzi, not started": "opt/kafka/custom-config/server.config",
    "beside the log directory": "var/lib/kafka/server.properties",
    "above it": "var/lib/kafka/config/server.properties",
    "further above it": "var/config/kraft/server.properties",
}


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
def test_the_usual_places(place: str, disk: Path) -> None:
    write(disk / "opt" / "kafka-ui" / "config" / "server.properties", "server.port=8080\n")  # It is not a broker's.
    file = write(disk / place)
    found = find(data(disk))
    assert (found.is_known, found.is_found, found.origin) == (True, True, str(file))
    assert found.properties["log.cleaner.enable"] == "false"


def test_the_real_path_counts(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "link").symlink_to("data")
    file = write(tmp_path / "config" / "server.properties", f"{KRAFT}log.dirs={tmp_path}/x, {tmp_path}/link\n")
    assert find(tmp_path / "data").origin == str(file)
    assert find(tmp_path / "link").origin == str(file)


def test_kafka_home(disk: Path, anywhere: Path) -> None:
    file = write(anywhere.parent / "config" / "server.properties", f"{KRAFT}log.dirs={data(disk)}\n")
    assert not find(data(disk)).is_known
    assert find(data(disk), {"KAFKA_HOME": str(anywhere.parent)}).origin == str(file)


def test_a_file_in_the_encoding_that_java_reads(disk: Path) -> None:
    file = write(disk / PLACES["a package"])
    file.write_bytes(b"# K\xf6nigsberg\n" + file.read_bytes())
    assert find(data(disk)).is_known


def test_a_broker_with_zookeeper(disk: Path) -> None:
    write(disk / "etc/kafka/server.properties", f"{ZOOKEEPER}log.dirs=/var/lib/kafka/data\n")
    assert find(data(disk)).is_known


def test_a_link_to_a_file_is_followed(disk: Path) -> None:
    """Kubernetes mounts files as links."""
    write(disk / "opt/kafka/custom-config/..data/server.config")
    (disk / "opt/kafka/custom-config/server.config").symlink_to("..data/server.config")
    assert find(data(disk)).is_known


def test_it_can_be_turned_off(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(disk / PLACES["a package"])
    monkeypatch.setenv(SWITCH, "off")
    assert not find(data(disk)).is_known
    monkeypatch.setenv(SWITCH, "no")
    with pytest.raises(ConfigError, match="'no' is neither auto nor off"):
        find(data(disk))


# The environment of an image


def image(log_dir: Path, prefix: str = "KAFKA_") -> dict[str, str]:
    settings = {"PROCESS_ROLES": "broker", "NODE_ID": "1", "LOG_DIRS": str(log_dir), "LOG_CLEANER_ENABLE": "false"}
    return {f"{prefix}{name}": value for name, value in settings.items()}


@pytest.mark.parametrize("prefix", ["KAFKA_", "KAFKA_CFG_"])
def test_the_environment_of_a_container(prefix: str, disk: Path) -> None:
    found = find(data(disk), image(data(disk), prefix))
    assert (found.is_known, found.origin) == (True, ENVIRONMENT)
    assert found.properties["log.cleaner.enable"] == "false"


def test_an_environment_that_names_another_directory(disk: Path) -> None:
    assert not find(data(disk), image(disk)).is_known
    without = image(data(disk))
    del without["KAFKA_LOG_DIRS"]
    assert not find(data(disk), without).is_known
    assert not find(data(disk), {"KAFKA_LOG_DIRS": str(data(disk)), "KAFKA_HEAP_OPTS": "-Xmx1g"}).is_known


def test_an_environment_on_top_of_a_mounted_file(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The image appends the environment to the file. Rule: KafkaDockerWrapper.prepareServerConfigs."""
    file = write(disk / PLACES["apache/kafka, mounted"])
    monkeypatch.setattr(server_properties, "_MOUNTED", file)
    found = find(data(disk), {"KAFKA_LOG_CLEANER_ENABLE": "true", "KAFKA_LOG_CLEANER_THREADS": "3"})
    assert found.origin == str(file)
    assert (found.properties["log.cleaner.enable"], found.properties["log.cleaner.threads"]) == ("true", "3")


# A running broker


@contextlib.contextmanager
def running(*arguments: str | Path, cwd: Path | None = None, user: int | None = None) -> Iterator[int]:
    """Run a process with the arguments of a broker; yield its id."""
    program = ["sh", "-c", "echo ready; read line", *map(str, arguments)]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=cwd, user=user) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"  # Before, its arguments may not be visible.
        try:
            yield process.pid
        finally:
            process.stdin.close()
            process.wait()


COMMANDS = [
    ("-Xmx1g", "-cp", "a:b", "kafka.Kafka", "FILE"),
    ("io.confluent.support.metrics.SupportedKafka", "FILE"),
    ("/opt/kafka/kafka.Kafka", "start", "--config", "FILE", "-Dx=y"),
]


@pytest.mark.parametrize("words", COMMANDS, ids=[words[-2] for words in COMMANDS])
def test_the_file_of_a_running_broker(words: tuple[str, ...], disk: Path, anywhere: Path) -> None:
    file = write(anywhere, f"{KRAFT}{OFF}log.dirs={data(disk)}\n")
    with running(*(str(file) if word == "FILE" else word for word in words)) as process:
        found = find(data(disk))
    assert (found.is_known, found.origin, found.process) == (True, str(file), process)
    assert not find(data(disk)).is_known


def test_the_options_of_a_running_broker(disk: Path, anywhere: Path) -> None:
    file = write(anywhere, f"{KRAFT}{OFF}log.dirs=/elsewhere\n")
    options = ("--override", f"log.dirs={data(disk)}", "--override=log.cleaner.threads=3")
    with running("kafka.Kafka", file, *options):
        found = find(data(disk))
    assert found.properties["log.cleaner.threads"] == "3"
    assert found.properties["log.cleaner.enable"] == "false"


def test_a_running_broker_is_stronger_than_other_files(disk: Path, anywhere: Path) -> None:
    write(disk / PLACES["a package"])
    file = write(anywhere, f"{KRAFT}log.dirs={data(disk)}\n")
    with running("kafka.Kafka", file):
        assert find(data(disk)).origin == str(file)


def test_relative_paths_begin_in_the_working_directory(disk: Path) -> None:
    file = write(disk / "var" / "lib" / "b.conf", f"{KRAFT}log.dirs=kafka/data\n")
    with running("kafka.Kafka", file.name, cwd=file.parent) as process:
        found = find(data(disk))
    assert (found.origin, found.process) == (str(file), process)
    assert found.located("kafka/data") is not None
    # Stopped, it cannot be known which directory that was.
    beside = write(data(disk).parent / "server.properties", f"{KRAFT}log.dirs=data\n")
    found = find(data(disk))
    assert not found.is_known
    why = "log.dirs has 'data', a path relative to the directory in which the broker was started"
    assert doubts_about(found, disk) == [f"{beside} may name it, but {why}"]


def test_processes_that_are_no_brokers(disk: Path) -> None:
    file = write(disk / "b.conf", f"{KRAFT}log.dirs={data(disk)}\n")
    for words in (("kafka.KafkaX", file), ("-Dx=kafka.Kafka", file), ("kafka.Kafka",), ("kafka.Kafka", "--version")):
        with running(*words):
            assert not find(data(disk)).is_known


def test_a_broker_of_another_user_does_not_count(disk: Path, anywhere: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("to run a process as another user needs root")
    file = write(anywhere, f"{KRAFT}log.dirs={data(disk)}\n")
    with running("kafka.Kafka", file, cwd=Path("/"), user=NOBODY):
        assert not find(data(disk)).is_known
        os.chown(data(disk), NOBODY, NOBODY)  # The owner of the log directory may.
        assert find(data(disk)).is_known


# Which files do not count


def test_files_of_others_are_passed_over(disk: Path) -> None:
    write(disk / "etc/kafka/server.properties", f"{KRAFT}log.dirs=/var/lib/other\n")
    write(disk / "etc/kafka/kafka.properties", "process.roles=controller\nnode.id=1\nlog.dirs=/var/lib/kafka/data\n")
    write(disk / "opt/kafka/config/server.properties", "version=1\nnode.id=1\ncluster.id=x\n")
    write(disk / "opt/kafka/config/broker.properties", "log.dirs=/var/lib/kafka/data\n")
    found = find(data(disk))
    assert (found.is_known, doubts_about(found, disk)) == (False, [])


def test_a_file_of_another_node(disk: Path) -> None:
    file = write(disk / PLACES["a package"])
    found = find(data(disk), node_id=2)
    why = "names it, but has the node id 1, and meta.properties has 2"
    assert (found.is_known, doubts_about(found, disk)) == (False, [f"{file} {why}"])
    assert find(data(disk), node_id=None).is_known


def test_files_that_differ_decide_nothing(disk: Path) -> None:
    one = write(disk / PLACES["a package"])
    other = write(disk / PLACES["apache/kafka"], f"{KRAFT}log.dirs=/var/lib/kafka/data\nlog.segment.bytes=5000000\n")
    found = find(data(disk))
    assert not found.is_known
    (doubt,) = doubts_about(found, disk)
    assert {*doubt.split(" both name it")[0].split(" and ")} == {str(one), str(other)}
    assert doubt.endswith("both name it, and differ in segment.bytes, log.cleaner.enable")


@pytest.mark.parametrize(
    "lines",
    ["num.io.threads=9\n", "log.retention.hours=168\n", "log.dirs=/var/lib/kafka/data/,/x\n"],
    ids=["a", "b", "c"],
)
def test_files_that_differ_in_nothing_that_is_used(lines: str, disk: Path) -> None:
    write(disk / PLACES["a package"], f"{KRAFT}{OFF}metadata.log.dir=/m\nlog.dirs=/var/lib/kafka/data\n")
    write(disk / PLACES["apache/kafka"], f"{KRAFT}{OFF}metadata.log.dir=/m\nlog.dirs=/var/lib/kafka/data\n{lines}\n")
    assert find(data(disk)).is_known


def test_copies_and_links_of_one_file_agree(disk: Path) -> None:
    file = write(disk / PLACES["a package"])
    (disk / "etc/kafka/broker.properties").symlink_to(file)
    (disk / "etc/kafka/kafka.properties").hardlink_to(file)
    assert find(data(disk)).is_known


def fifo(file: Path) -> str:
    os.mkfifo(file)
    return "is not a regular file"


def directory(file: Path) -> str:
    file.mkdir()
    return "is not a regular file"


def loop(file: Path) -> str:
    file.symlink_to(file)
    return "cannot be read: Too many levels of symbolic links"


def device(file: Path) -> str:
    file.symlink_to("/dev/zero")
    return "is not a regular file"


def large(file: Path) -> str:
    write(file, f"{KRAFT}log.dirs=/var/lib/kafka/data\n" + "#" * (1 << 20))
    return "is too large or malformed"


def malformed(file: Path) -> str:
    write(file, f"{KRAFT}log.dirs=/var/lib/kafka/data\nssl.key.password=se\\ucret\n")
    return "is too large or malformed"


def of_everybody(file: Path) -> str:
    write(file).chmod(0o646)
    return "names it, but other users can write to it"


def of_a_group(file: Path) -> str:
    os.chown(write(file), -1, NOBODY) if os.geteuid() == 0 else pytest.skip("to change the group needs root")
    file.chmod(0o664)
    return "names it, but other users can write to it"


def of_another_user(file: Path) -> str:
    os.chown(write(file), NOBODY, NOBODY) if os.geteuid() == 0 else pytest.skip("to give a file away needs root")
    return "who is neither root, nor this user, nor the owner of the log directory"


def provided(file: Path) -> str:
    write(file, f"{KRAFT}config.providers=env\nlog.dirs=${{env:LOG_DIRS}}\n")
    return "may name it, but log.dirs is '${env:LOG_DIRS}', which only the broker can resolve"


HOSTILE = (
    fifo,
    directory,
    loop,
    device,
    large,
    malformed,
    of_everybody,
    of_a_group,
    of_another_user,
    provided,
)


@pytest.mark.parametrize("make", HOSTILE, ids=[make.__name__ for make in HOSTILE])
def test_a_file_that_is_no_safe_answer_is_named(make: object, disk: Path) -> None:
    file = disk / PLACES["a package"]
    file.parent.mkdir(parents=True)
    assert callable(make)
    why = make(file)
    found = find(data(disk))
    assert not found.is_known
    (doubt,) = doubts_about(found, disk)
    assert doubt.startswith(f"{file} ")
    assert doubt.endswith(why)
    assert "cret" not in doubt
    good = write(disk / PLACES["apache/kafka"])
    assert find(data(disk)).origin == str(good)


def test_the_file_of_the_owner_of_the_log_directory_counts(disk: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("to give files away needs root")
    file = write(disk / PLACES["a package"])
    for path in (file, data(disk)):
        os.chown(path, NOBODY, NOBODY)
    file.chmod(0o664)
    assert find(data(disk)).is_known


def test_a_directory_that_may_not_be_searched_is_named_once(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(disk / PLACES["a package"])
    closed, stat, access = disk / "etc" / "kafka", Path.stat, os.access

    def denied(path: Path, **options: bool) -> os.stat_result:
        if closed in path.parents:
            raise PermissionError(13, "Permission denied", str(path))
        return stat(path, **options)

    monkeypatch.setattr(Path, "stat", denied)
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != closed and access(path, mode))
    found = find(data(disk))
    assert doubts_about(found, disk) == [f"{closed} cannot be searched: Permission denied"]


def test_a_log_directory_that_is_not_there(tmp_path: Path) -> None:
    assert not find(tmp_path / "nowhere").is_known
