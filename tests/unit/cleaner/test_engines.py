"""Which engine a round takes: the options decide, then the size of the work and what is installed."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from kcompact.bucket.path import SCRATCH_PREFIX, BucketPath
from kcompact.cleaner import engines
from kcompact.cleaner.engines import SPARK_BYTES, Engine, EngineOptions, choose
from kcompact.engine.in_process import InProcess
from kcompact.errors import RefusedError
from kcompact.stages.executor import Progress

GIB = 1 << 30
MASTER = EngineOptions(master="local[*]")
CONF = EngineOptions(spark_conf={"spark.driver.memory": "1g"})
AUTO = EngineOptions()


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A machine on which Spark, Java and a name of the user are, are not, or (None) are not looked for."""

    spark: bool | None = None
    java: bool | None = None
    user: bool | None = None

    def has_spark(self) -> bool:
        assert self.spark is not None, "looked for Spark"
        return self.spark

    def has_java(self) -> bool:
        assert self.java is not None, "looked for Java"
        return self.java

    def has_user_name(self) -> bool:
        assert self.user is not None, "looked for the user"
        return self.user


NOT_ASKED, ALL = Asked(), Asked(spark=True, java=True, user=True)
NO_SPARK, NO_JAVA = Asked(spark=False), Asked(spark=True, java=False, user=True)
NO_NAME = Asked(spark=True, user=False)


@pytest.mark.parametrize(
    ("options", "bytes_to_read", "machine", "chosen"),
    [
        (EngineOptions(name="spark"), 0, NOT_ASKED, "spark"),
        (EngineOptions(name="spark", master="local[2]"), 0, NOT_ASKED, "spark"),
        (EngineOptions(name="in-process"), 100 * GIB, NOT_ASKED, "in-process"),
        (MASTER, 0, NOT_ASKED, "spark (`master` is given)"),
        (CONF, 0, NOT_ASKED, "spark (`spark_conf` is given)"),
        (EngineOptions(master="local", spark_conf={"a": "b"}), GIB, NOT_ASKED, "spark (`master` is given)"),
        (AUTO, 0, NOT_ASKED, "in-process (0 B to read; Spark from 16.0 GiB)"),
        (AUTO, SPARK_BYTES - GIB, NOT_ASKED, "in-process (15.0 GiB to read; Spark from 16.0 GiB)"),
        (AUTO, SPARK_BYTES - 1, NOT_ASKED, "in-process (16.0 GiB to read; Spark from 16.0 GiB)"),
        (AUTO, SPARK_BYTES, ALL, "spark (16.0 GiB to read; Spark from 16.0 GiB)"),
        (AUTO, 17 * GIB, NO_SPARK, "in-process (17.0 GiB to read, but Spark is not installed)"),
        (AUTO, 17 * GIB, NO_JAVA, "in-process (17.0 GiB to read, but no usable Java was found)"),
        (
            AUTO,
            17 * GIB,
            NO_NAME,
            "in-process (17.0 GiB to read, but Spark needs an entry for this user in the list of users)",
        ),
        (AUTO, 17 * GIB, ALL, "spark (17.0 GiB to read; Spark from 16.0 GiB)"),
    ],
)
def test_the_choice(options: EngineOptions, bytes_to_read: int, machine: Asked, chosen: str) -> None:
    choice = choose(
        options,
        bytes_to_read=bytes_to_read,
        has_spark=machine.has_spark,
        has_java=machine.has_java,
        has_user_name=machine.has_user_name,
    )
    assert str(choice) == f"engine: {chosen}"
    assert (choice.name, bool(choice.why)) == (chosen.split()[0], options.name == "auto")


@pytest.mark.parametrize("options", [EngineOptions(name="spark"), MASTER, CONF])
def test_what_is_in_a_bucket_is_not_copied_to_a_directory_on_spark(options: EngineOptions, tmp_path: Path) -> None:
    place = BucketPath(tmp_path / f"{SCRATCH_PREFIX}0123456789ab" / "backups" / "orders-0")
    with ExitStack() as stack:
        engine = Engine(options, stack, bytes_to_read=1, paths=[tmp_path, place], fetches=True)
        with pytest.raises(RefusedError, match="s3://backups/orders-0: is in a bucket"):
            engine.check()
        engine.begin()
        with pytest.raises(RefusedError, match="Run again with `InProcess"), engine.executors(lambda note: None):
            raise AssertionError
        large = Engine(AUTO, stack, bytes_to_read=SPARK_BYTES, paths=[place]).choice
    assert str(large) == "engine: in-process (16.0 GiB to read, in a bucket)"


@pytest.mark.parametrize(
    ("missing", "why"),
    [
        ("kcompact.engine.spark.jvm.spark_home", "1 B to read, but Spark is not installed"),
        ("kcompact.engine.spark.java.find_java", "1 B to read, but no usable Java was found"),
    ],
)
def test_what_this_machine_lacks(missing: str, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise RefusedError(path="Spark", problem="is missing")

    monkeypatch.setattr(engines, "SPARK_BYTES", 1)
    monkeypatch.setattr("kcompact.engine.spark.jvm.spark_home", lambda: "/opt/spark")
    monkeypatch.setattr("kcompact.engine.spark.java.find_java", lambda: "/bin/java")
    with ExitStack() as stack:
        assert Engine(AUTO, stack, bytes_to_read=1).choice.name == "spark"
        monkeypatch.setattr(missing, refuse)
        choice = Engine(AUTO, stack, bytes_to_read=1).choice
    assert (choice.name, choice.why) == ("in-process", why)


def test_logs_that_are_cleaned_side_by_side_share_their_memory() -> None:
    """Each executor of a round is one log's. Together they hold no more than one of them alone."""
    with ExitStack() as stack:
        engine = Engine(EngineOptions(name="in-process"), stack, bytes_to_read=0)
        with engine.executors(lambda _: None) as executor_of:
            first, second = (executor_of(Progress()) for _ in range(2))
            assert isinstance(first, InProcess)
            assert isinstance(second, InProcess)
            assert first.memory is not None
            assert second.memory is not None
            assert first.memory.hold(60, 100)
            assert not second.memory.hold(60, 100)
