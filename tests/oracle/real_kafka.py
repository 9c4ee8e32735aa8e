"""The real Kafka as a Python object: one JVM, one request after the other.

    with RealKafka() as kafka:
        actions = [append([record(T, b"k", b"v")]), roll()]
        kafka.write(log_dir, "prices", config=CONFIG, now_ms=T, actions=actions)
        turns = kafka.clean(log_dir, config=CONFIG, now_ms=T + 1000)["turns"]

`driver` builds the Java side; the requests and replies are described in its `Oracle.java`. `plan` and `load` work on a
copy unless told otherwise, `write` and `clean` on the directory itself.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from tests.oracle.driver import NEWEST, build, class_path
from tests.support.patience import PATIENCE_S

Json = dict[str, Any]
Config = Mapping[str, str]

JVM_OPTIONS = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"]


class KafkaError(Exception):
    """Kafka threw: `kind` is the Java class, `reply` the whole answer with its causes."""

    def __init__(self, reply: Json) -> None:
        self.kind: str = reply["error"]
        self.reply = reply
        super().__init__(f"{self.kind}: {reply.get('message')}")


class Record(NamedTuple):
    """A record as a consumer sees it."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class CoordinatorRecord(NamedTuple):
    """A record of a topic of Kafka's coordinators."""

    topic: str
    key: bytes | None
    value: bytes | None


def java() -> str:
    """Return the `java` to run: the one of JAVA_HOME if set, else the one on the path."""
    home = os.environ.get("JAVA_HOME")
    return str(Path(home) / "bin" / "java") if home else "java"


def copy_log_dir(source: Path, target: Path) -> Path:
    """Copy a log directory with its file times, which Kafka's cleaner reads; return the copy."""
    shutil.copytree(source, target, copy_function=shutil.copy2)
    return target


@contextlib.contextmanager
def scratch_copy(source: Path) -> Iterator[Path]:
    """Give a copy of a log directory that lasts as long as the block."""
    with tempfile.TemporaryDirectory(prefix="kcompact-oracle-") as scratch:
        yield copy_log_dir(source, Path(scratch) / source.name)


# -- what a write does, step by step --------------------


def record(
    timestamp_ms: int,
    key: bytes | None,
    value: bytes | None,
    headers: Sequence[tuple[str, bytes | None]] = (),
    *,
    offset: int | None = None,
) -> list[Any]:
    """Return one record of an `append`; `offset` only together with its `base_offset`."""
    row: list[Any] = [timestamp_ms, _encode(key), _encode(value)]
    if headers or offset is not None:
        row.append([[name, _encode(content)] for name, content in headers])
    if offset is not None:
        row.append(offset)
    return row


def append(records: Sequence[list[Any]], *, codec: str = "none", now_ms: int | None = None, **fields: Any) -> Json:
    """Return the action that appends one batch.

    Fields: `producer=[id, epoch, base sequence]`, `transactional`, `leader_epoch`, `magic`, `base_offset`,
    `append_time_ms`.
    """
    return _action("append", now_ms, records=list(records), codec=codec, **fields)


def marker(kind: str, producer_id: int, epoch: int, *, now_ms: int | None = None, **fields: Any) -> Json:
    """Return the action that ends a transaction: `kind` is "commit" or "abort".

    Fields: `coordinator_epoch`, `transaction_version`, `timestamp_ms`, `leader_epoch`.
    """
    return _action("marker", now_ms, type=kind, producer=[producer_id, epoch], **fields)


def roll(*, now_ms: int | None = None) -> Json:
    """Return the action that closes the active segment and opens a new one."""
    return _action("roll", now_ms)


def clock(now_ms: int) -> Json:
    """Return the action that sets the clock."""
    return _action("clock", now_ms)


def start_offset(offset: int, *, now_ms: int | None = None) -> Json:
    """Return the action that raises the log start offset, as deleting records does."""
    return _action("start_offset", now_ms, offset=offset)


def _action(name: str, now_ms: int | None, **fields: Any) -> Json:
    return {"do": name, **fields} if now_ms is None else {"do": name, "now_ms": now_ms, **fields}


def _encode(content: bytes | None) -> str | None:
    return None if content is None else base64.b64encode(content).decode("ascii")


def _decode(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def _decoded(row: list[Any]) -> Record:
    offset, timestamp_ms, key, value, headers = row
    pairs = tuple((name, _decode(content)) for name, content in headers)
    return Record(offset, timestamp_ms, _decode(key), _decode(value), pairs)


# -- the process --------------------


class RealKafka:
    """A running JVM with the log and the cleaner of one version of Kafka in it; a context manager."""

    def __init__(self, version: str = NEWEST) -> None:
        build(version)
        self.version = version
        command = [java(), *JVM_OPTIONS, "-cp", class_path(version), "kcompact.oracle.Oracle"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8")

    def __enter__(self) -> RealKafka:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let the JVM end; kill it if it does not."""
        assert self._process.stdin
        assert self._process.stdout
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write('{"op": "exit"}\n')
            self._process.stdin.close()
        try:
            self._process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def call(self, op: str, **fields: Any) -> Json:
        """Send one request and return its reply; fields that are None are left out. Raises KafkaError."""
        assert self._process.stdin
        assert self._process.stdout
        request = {"op": op} | {name: value for name, value in fields.items() if value is not None}
        self._process.stdin.write(json.dumps(request, default=str) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the JVM ended with {self._process.wait()} while asked to {op}")
        reply: Json = json.loads(line)
        if "error" in reply:
            raise KafkaError(reply)
        return reply

    def versions(self) -> Json:
        """Return {"kafka": …, "java": …}, as the process itself says."""
        return self.call("version")

    def write(
        self,
        log_dir: Path,
        topic: str,
        partition: int = 0,
        *,
        config: Config,
        now_ms: int,
        actions: Sequence[Json],
        **options: Any,
    ) -> Json:
        """Create or continue a log.

        Options: `topic_id, cleaner_checkpoint, stop, lenient, broker_epoch, meta, clean_shutdown`.
        """
        return self.call(
            "write",
            log_dir=log_dir,
            topic=topic,
            partition=partition,
            config=dict(config),
            now_ms=now_ms,
            actions=list(actions),
            **options,
        )

    def plan(self, log_dir: Path, *, config: Config, now_ms: int, in_place: bool = False, **options: Any) -> Json:
        """Return what the cleaner's manager computes.

        Options: `topics, high_watermark, only, clean_shutdown, producer_id_expiration_ms`.
        """
        with _itself(log_dir) if in_place else scratch_copy(log_dir) as directory:
            return self.call("plan", log_dir=directory, config=dict(config), now_ms=now_ms, **options)

    def clean(self, log_dir: Path, *, config: Config, now_ms: int, turns: int = 1, **options: Any) -> Json:
        """Run turns of the cleaner thread (0: until nothing is eligible) on the directory itself.

        Options: those of `plan`, and `dedupe_buffer_bytes, load_factor, io_buffer_bytes, max_message_bytes,
        stop, retention, metrics`. With `metrics=True` the reply has those before the first turn and after each.
        """
        return self.call("clean", log_dir=log_dir, config=dict(config), now_ms=now_ms, turns=turns, **options)

    def retain(self, log_dir: Path, *, config: Config, now_ms: int, **options: Any) -> Json:
        """Delete the old segments of each partition of the directory itself, as a broker does from time to time.

        Options: those of `plan`. Return by partition `deleted`, `log_start_offset`, `log_end_offset` and `segments`.
        """
        reply = self.call("retain", log_dir=log_dir, config=dict(config), now_ms=now_ms, **options)
        partitions: Json = reply["partitions"]
        return partitions

    def start(self, log_dirs: Sequence[Path], *, config: Config, topics: Mapping[str, Config], now_ms: int) -> Json:
        """Start the manager of the logs on the log directories themselves, as a broker does; it stops without a trace.

        Return why it `ends`, or for each of `log_dirs` that it is offline, or its `partitions`: what is served, where
        they begin `start_after_retention`; and the `uncleanable` ones.
        """
        dirs = [str(each) for each in log_dirs]
        return self.call("start", log_dirs=dirs, config=dict(config), topics=topics, now_ms=now_ms)

    def metrics(self, threads: Sequence[Json], *, dirtiest_ratio: float, last_run_ms: int) -> Json:
        """Return the metrics of a cleaner that remembers this: `values` by name, `now_ms` before and after.

        A thread has `started_ms, ended_ms` and optionally `bytes_read, bytes_written, keys, slots, delay_ms, is_dead`.
        """
        return self.call("metrics", threads=list(threads), dirtiest_ratio=dirtiest_ratio, last_run_ms=last_run_ms)

    def states(
        self, log_dir: Path, *, config: Config, now_ms: int, sequences: Sequence[Sequence[str]]
    ) -> list[list[Json]]:
        """Call methods of the cleaner's manager for the one partition of a directory, each sequence on a new manager.

        Return for each call the `state` after it, whether a caller `waits`, and the `error`.
        """
        reply = self.call("states", log_dir=log_dir, config=dict(config), now_ms=now_ms, sequences=sequences)
        found: list[list[Json]] = reply["sequences"]
        return found

    def load(
        self,
        log_dir: Path,
        *,
        config: Config,
        now_ms: int,
        isolation: str = "read_uncommitted",
        in_place: bool = False,
        **options: Any,
    ) -> Json:
        """Load as a broker does and read as a consumer does; each partition's `records` become `Record`s.

        Options: those of `plan`, `records=False`, and `strict=True`, which refuses a directory that is no partition.
        """
        with _itself(log_dir) if in_place else scratch_copy(log_dir) as directory:
            reply = self.call(
                "load", log_dir=directory, config=dict(config), now_ms=now_ms, isolation=isolation, **options
            )
        for fields in reply["partitions"].values():
            for name in ("records", "committed_records"):
                if name in fields:
                    fields[name] = [_decoded(row) for row in fields[name]]
        return reply

    def records(self, file: Path, *, records: bool = True) -> Json:
        """Return one `.log` file's batches, each with its header's fields and, if wanted, its `Record`s."""
        reply = self.call("records", file=file, records=records)
        for batch in reply["batches"]:
            if "records" in batch:
                batch["records"] = [_decoded(row) for row in batch["records"]]
        return reply

    def compressed(self, codec: str, contents: Sequence[bytes]) -> list[bytes]:
        """Return each content as the cleaner compresses a section of records."""
        rows = self.call("compress", codec=codec, contents=[_encode(content) for content in contents])["sections"]
        return [base64.b64decode(row) for row in rows]

    def coordinator_records(self, *, seed: int, rounds: int = 1) -> list[CoordinatorRecord]:
        """Return records of Kafka's coordinators with random fields, of every type and version, and tombstones."""
        rows = self.call("coordinator_records", seed=seed, rounds=rounds)["records"]
        return [CoordinatorRecord(topic, _decode(key), _decode(value)) for topic, key, value in rows]

    def decode(self, records: Sequence[CoordinatorRecord]) -> list[Json]:
        """Return what Kafka's tools print for records of the coordinators.

        Each has `key` and `payload` of the dump, or its `error`, and the list `formatted` of the console consumer.
        """
        rows = [[topic, _encode(key), _encode(value)] for topic, key, value in records]
        printed: list[Json] = self.call("decode", records=rows)["printed"]
        return printed

    def dump(self, *arguments: str | Path) -> Json:
        """Return what `kafka-dump-log.sh` prints: `out`, `err`, and `failure` if it ends with an exception."""
        return self.call("dump", arguments=[str(each) for each in arguments])

    def use_cluster(self, address: str) -> None:
        """Let groups of every kind and transactions work on a cluster. Their members and a transaction stay."""
        self.call("cluster_use", address=address)

    def describe_cluster(self, address: str) -> Json:
        """Return `groups`, `descriptions`, `offsets`, `share_offsets` and `transactions` by the admin API."""
        return self.call("cluster_describe", address=address)

    def go_on(self, address: str, *, offset: int) -> int:
        """Let the clients that have stayed go on: members commit `offset`. Return how many records are shared."""
        shared: int = self.call("cluster_continue", address=address, offset=offset)["shared"]
        return shared

    def leave_cluster(self) -> None:
        """Close the clients of the cluster."""
        self.call("cluster_leave")


def _itself(log_dir: Path) -> contextlib.AbstractContextManager[Path]:
    return contextlib.nullcontext(log_dir)
