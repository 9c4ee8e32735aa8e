"""A standalone cluster of Spark on the loopback interface: a master, and workers whose Python has this package."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kcompact.engine.spark import find_java, jvm
from tests.support.patience import becomes


@dataclass(frozen=True)
class Cluster:
    master: str
    secret: str
    directory: Path

    @property
    def conf(self) -> dict[str, str]:
        return {
            "spark.authenticate.secret": self.secret,
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.executor.memory": "512m",
            "spark.executor.extraJavaOptions": f"-Djava.io.tmpdir={self.directory / 'tmp'} -XX:-UsePerfData",
        }

    def options(self) -> list[str]:
        pairs = [part for name, value in self.conf.items() for part in ("--spark-conf", f"{name}={value}")]
        return ["--engine", "spark", "--master", self.master, *pairs]

    def executors(self) -> dict[str, int]:
        """Return the process ids of the running executors by their Spark ids."""
        found = {}
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError, ValueError):
                words = (entry / "cmdline").read_bytes().decode().split("\0")
                if str(self.directory) in "".join(words) and "--executor-id" in words:
                    found[words[words.index("--executor-id") + 1]] = int(entry.name)
        return found


@contextlib.contextmanager
def started(directory: Path, *, workers: int) -> Iterator[Cluster]:
    """Start a cluster with so many workers of one core, and end it. Its files are in `directory`."""
    port, secret = free_port(), secrets.token_hex(32)
    conf = {"spark.authenticate": "true", "spark.network.crypto.enabled": "true", "spark.authenticate.secret": secret}
    (directory / "tmp").mkdir()
    properties = directory / "spark.properties"
    properties.write_text("".join(f"{name} {value}\n" for name, value in conf.items()))
    properties.chmod(0o600)
    # Nothing of this process's own.
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(directory),
        "JAVA_HOME": str(find_java().resolve().parents[1]),
        "SPARK_HOME": str(jvm.spark_home()),
        "SPARK_CONF_DIR": str(directory),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": f"-Djava.io.tmpdir={directory / 'tmp'} -XX:-UsePerfData",
        "SPARK_LOCAL_DIRS": str(directory / "tmp"),
        "SPARK_SCALA_VERSION": "2.13",
    }
    common = ["--host", "127.0.0.1", "--webui-port", "0", "--properties-file", str(properties)]
    deploy = "org.apache.spark.deploy"
    commands = [[f"{deploy}.master.Master", *common, "--port", str(port)]]
    for number in range(workers):
        work = directory / f"work-{number}"
        sizes = ["--cores", "1", "--memory", "1g", "--work-dir", str(work)]
        commands.append([f"{deploy}.worker.Worker", *common, *sizes, f"spark://127.0.0.1:{port}"])
    with contextlib.ExitStack() as stack:
        for number, command in enumerate(commands):
            log = stack.enter_context((directory / f"{number}.log").open("wb"))
            process = subprocess.Popen(
                [str(jvm.spark_home() / "bin" / "spark-class"), *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                cwd=directory,
                start_new_session=True,
            )
            stack.callback(ended, process)
        await_port(port)
        yield Cluster(f"spark://127.0.0.1:{port}", secret, directory)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def await_port(port: int) -> None:
    """Wait until a process accepts connections: on a busy machine a master needs longer than `clean` waits for it."""

    def accepts() -> bool:
        with contextlib.suppress(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port)).close()
            return True
        return False

    assert becomes(accepts)


def ended(process: subprocess.Popen[bytes]) -> None:
    """End a daemon with the executors that it has started: they are of its process group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
