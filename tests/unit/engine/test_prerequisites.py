"""What is refused before Spark is started."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

import pytest

from kcompact.engine.spark import check_prerequisites, master
from kcompact.errors import ConfigError, EngineError, KcompactError, RefusedError
from tests.support.fake_java import PRINTS_17, write_java

SECRET = {"spark.authenticate.secret": "x"}


@pytest.fixture(autouse=True)
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(master, "STARTING_S", 0.0)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    return write_java(tmp_path, PRINTS_17)


@pytest.mark.parametrize(
    ("master", "conf", "error", "message"),
    [
        ("nonsense", {}, ConfigError, "is not a Spark master"),
        ("spark://127.0.0.1:7077", {}, RefusedError, "secret"),
        ("local", {"spark.driver.memory": "much"}, ConfigError, "is not a size"),
        ("local", {"spark.driver.extraJavaOptions": "'-Da=b"}, ConfigError, "no closing quotation"),
        ("spark://127.0.0.1:1", SECRET, EngineError, r"no master answers at 127\.0\.0\.1:1 \(connection refused\)"),
        ("spark://nowhere.invalid:1", SECRET, EngineError, "the host is unknown"),
        (
            "spark://127.0.0.1:1,127.0.0.1:2",
            SECRET,
            EngineError,
            r"127\.0\.0\.1:1 \(connection refused\), 127\.0\.0\.1:2 \(connection refused\)",
        ),
    ],
)
def test_what_is_refused(master: str, conf: dict[str, str], error: type[KcompactError], message: str) -> None:
    with pytest.raises(error, match=message):
        check_prerequisites(master, conf)


def test_one_master_that_answers_is_enough(java: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert check_prerequisites(f"spark://127.0.0.1:1,127.0.0.1:{port}", SECRET) == java


def test_a_master_may_be_starting(java: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(master, "STARTING_S", 10.0)
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        later = threading.Timer(0.3, server.listen)
        later.start()
        assert check_prerequisites(f"spark://127.0.0.1:{server.getsockname()[1]}", SECRET) == java
        later.join()


def test_a_master_that_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    def times_out(*_: object) -> None:
        raise TimeoutError("timed out")

    monkeypatch.setattr(socket, "create_connection", times_out)
    with pytest.raises(EngineError, match=r"host:7077 \(no answer within 5 seconds\)"):
        check_prerequisites("spark://host:7077", SECRET)


@pytest.mark.parametrize("master", ["local", "local[2]", "yarn", "k8s://127.0.0.1:1"])
def test_only_a_standalone_master_is_connected_to(master: str, java: Path) -> None:
    assert check_prerequisites(master, {"spark.driver.memory": "1g"}) == java
