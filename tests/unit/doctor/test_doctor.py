"""`doctor`: each kind of finding on a log directory that has it, and none on a healthy one."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shlex
import shutil
import signal
from pathlib import Path
from typing import Any, NoReturn

import pytest

import tests.support.lossy_log_dirs  # noqa: F401 - adds its sicknesses
from fixtures import checkout
from kcompact.doctor import examination, log_dirs
from kcompact.doctor.names import is_loadable, is_loaded
from kcompact.exit_codes import gravest_exit_code
from kcompact.format.batch import parse_batches, sealed
from kcompact.host.disk import Disk
from kcompact.log.lock import log_dir_lock
from kcompact.remarks import RemarkCode, Severity
from tests.support import log_dsl, log_writer, metadata_log
from tests.support.command_line import LOG0, LOG3, LOG6, Ran, digest, flip, kcompact, rewrite, running_broker
from tests.support.machine_code import without_machine_code
from tests.support.metadata_records import RemoveTopicRecord, TopicRecord
from tests.support.sick_log_dirs import (
    COMPACT,
    HEALTHY,
    NOW,
    SICKNESSES,
    TOPICS,
    healthy,
    properties_file,
)

DOCS = Path(__file__).parents[3] / "docs" / "doctor.md"


def doctor(log_dir: Path, *options: str) -> Ran:
    """Examine a log directory, and those beside it that a broker would have too, with its file if there is one."""
    file = log_dir.with_name("server.properties")
    if "--broker-config" not in options and file.exists():
        options = (*options, "--broker-config", str(file))
    topics = log_dir.with_name(TOPICS)
    if topics.exists():
        options = (*options, "--topic-configs", str(topics))
    others = [path for path in (log_dir.with_name("other"),) if path.exists()]
    now = () if "--now" in options else ("--now", NOW)
    return kcompact("doctor", "--json", *now, *options, log_dir, *others)


def kinds(ran: Ran) -> dict[str, dict[str, Any]]:
    return {finding["finding"]: finding for finding in ran.json["findings"]}


@pytest.mark.parametrize("options", [(), ("--verify",)])
def test_a_healthy_directory_has_no_findings(options: tuple[str, ...], tmp_path: Path) -> None:
    healthy(tmp_path / "logs")
    ran = doctor(tmp_path / "logs", *COMPACT, *options)
    assert (ran.code, ran.json["findings"]) == (0, [])


CASES = [(kind, sickness) for kind, those in SICKNESSES.items() for sickness in those]


@pytest.mark.parametrize(("kind", "sickness"), CASES, ids=[f"{kind.value}-{one.__name__}" for kind, one in CASES])
def test_each_kind_of_finding(kind: RemarkCode, sickness: Any, tmp_path: Path) -> None:
    log_dir = tmp_path / "logs"
    healthy(log_dir)
    result = sickness(log_dir)
    with result if hasattr(result, "__enter__") else contextlib.nullcontext(result) as options:
        before = digest(tmp_path)
        ran = doctor(log_dir, *options)
        assert digest(tmp_path) == before
    finding = kinds(ran).get(kind.value)
    assert finding, ran
    assert finding["severity"] == kind.severity
    assert finding["problem"]
    assert (ran.code != 0) == any(each["severity"] != "note" for each in ran.json["findings"])
    if kind.severity is not Severity.NOTE:
        assert ran.code == gravest_exit_code(each["exit_code"] for each in ran.json["findings"])
    if finding["next"] and finding["next"].startswith("kcompact "):
        words = shlex.split(finding["next"])[1:]
        assert kcompact(*words).code != 2, finding["next"]
    # What is not about this sickness must not be found.
    others = {word: each for word, each in kinds(ran).items() if word != kind.value}
    assert others.keys() <= SIDE_EFFECTS.get(sickness.__name__, set()), others


SIDE_EFFECTS: dict[str, set[str]] = {
    # Nothing is known of the broker then.
    "small_dedupe_buffer": {"assumed-settings"},
    "lags_in_wrong_order": {"assumed-settings"},
    "partition_twice": {"no-high-watermark"},  # The other directory has a checkpoint without it.
    "torn_end": {"checkpoint-above-end"},
    "replaced_by_a_torn_segment": {"torn-end"},
    "future_beside_its_current_replica": {"paused-by-move"},
    "future_without_a_topic_id": {"paused-by-move"},
    "more_than_the_end_is_torn": {"unclean-shutdown"},
    "log_below_its_high_watermark_after_a_kill": {"unclean-shutdown"},
    "offset_that_no_checksum_covers": {"unclean-shutdown"},
    "transaction_index_of_the_future_after_a_kill": {"unclean-shutdown"},
    "swap_of_zeros": {"leftovers"},
    "two_metadata_logs": {"refused"},  # They are empty directories.
    "no_policy": {"assumed-settings"},
    "two_topics_of_an_id": {"assumed-settings"},  # Nothing is known of the second one.
    "move_that_has_not_ended": {"future-directory"},
    # The metadata log of the tests has no indexes.
    "topic_that_was_created_again": {"missing-index"},
    "topic_that_the_cluster_does_not_have": {"missing-index", "assumed-settings"},
    "lags_in_wrong_order_in_the_cluster": {"missing-index"},
}
"""What else a sickness causes."""


def test_a_snapshot_inside_of_a_segment_is_no_missing_segment(tmp_path: Path) -> None:
    """A broker takes one whenever it stops, and then appends to the same segment."""
    directory = healthy(tmp_path / "logs")
    shutil.copy(directory / "00000000000000000006.snapshot", directory / "00000000000000000004.snapshot")
    assert doctor(tmp_path / "logs", *COMPACT).json["findings"] == []


@pytest.mark.parametrize(("checkpoint", "is_lost"), [(0, True), (6, False), (90, False)])
def test_what_a_cleaning_may_have_removed_after_a_snapshot_is_not_lost(
    checkpoint: int, is_lost: bool, tmp_path: Path
) -> None:
    """A checkpoint above the log end says that the log was cleaned, and not how far."""
    text = f"log now=10:00 hw=7 checkpoint={checkpoint}\n0: a=1 b=1\n6: c=1\n7:\nsnapshot 2:\nsnapshot 7:"
    healthy(tmp_path / "logs", text)
    found = kinds(doctor(tmp_path / "logs", *COMPACT, "--verify"))
    assert ("missing-log" in found) == is_lost, found


@pytest.mark.parametrize("segments", ["0: a=1 b=1\n2:", "0: a=1@1 b=1@3", "0: a=1 b=1@3"])
def test_a_checkpoint_that_is_too_low_makes_no_segment_missing(segments: str, tmp_path: Path) -> None:
    """Perhaps it was cut short. An empty segment is there, and the gaps of another one show that it was cleaned."""
    text = f"log now=10:00 hw=7 checkpoint=0\n{segments}\n6: c=1\n7:\nsnapshot 2:\nsnapshot 4:\nsnapshot 7:"
    healthy(tmp_path / "logs", text)
    assert "missing-log" not in kinds(doctor(tmp_path / "logs", *COMPACT, "--verify"))


RECORDS = [TopicRecord(f"t{number}", bytes(15) + bytes([number])) for number in range(6)]
SNAPSHOT = metadata_log.snapshot(RECORDS)


@pytest.mark.parametrize(
    ("snapshot", "says"),
    [
        (SNAPSHOT, ""),
        (SNAPSHOT[:-1], ""),  # Only the footer is torn. A real broker starts.
        (SNAPSHOT[:-100], "forgets topics"),
        (SNAPSHOT + bytes(12), "12 bytes where a batch should start"),
        (metadata_log.snapshot(RECORDS[:1]), "in no record before. Does the snapshot belong to this log?"),
        (metadata_log.snapshot(RECORDS[:1], log_ends_ms=metadata_log.TIME_MS - 1), "the snapshot of another offset"),
    ],
)
def test_a_metadata_snapshot_that_is_not_whole(snapshot: bytes, says: str, tmp_path: Path) -> None:
    files = {
        f"{6:020d}-{1:010d}.checkpoint": snapshot,
        metadata_log.log(): metadata_log.batches([*RECORDS, RemoveTopicRecord(RECORDS[5].topic_id)], each=1),
    }
    metadata_log.write(tmp_path / "logs", files)
    found = kinds(doctor(tmp_path / "logs"))
    assert ("bad-quorum-file" in found) == bool(says), found
    assert not says or says in found["bad-quorum-file"]["problem"]


@pytest.mark.parametrize(
    ("left", "is_lost"),
    [
        (["quorum-state"], True),
        (["00000000000000000000.index", "00000000000000000000-0000000000.checkpoint"], True),
        (["quorum-state", "00000000000000000031-0000000001.checkpoint"], False),
        (["00000000000000000000-0000000000.checkpoint"], False),
        ([], False),
    ],
)
def test_a_metadata_log_that_is_lost(left: list[str], is_lost: bool, tmp_path: Path) -> None:
    """A real broker that is the only controller starts without any topic, and sets all partitions aside."""
    healthy(tmp_path / "logs")
    metadata = tmp_path / "logs" / "__cluster_metadata-0"
    metadata.mkdir()
    for name in left:
        (metadata / name).touch()
    found = kinds(doctor(tmp_path / "logs", *COMPACT))
    assert ("missing-log" in found) == is_lost, found
    assert not is_lost or found["missing-log"]["directory"] == str(metadata)


@pytest.mark.parametrize(("end_offset", "is_lost"), [(6, False), (5, True)])
def test_what_a_broker_cuts_off_a_metadata_log_is_lost_only_above_its_snapshot(
    end_offset: int, is_lost: bool, tmp_path: Path
) -> None:
    content = metadata_log.batches(RECORDS[:1]) + bytes(20) + metadata_log.batches(RECORDS[1:], start=1, each=1)
    files = {f"{end_offset:020d}-{1:010d}.checkpoint": metadata_log.snapshot(RECORDS), metadata_log.log(): content}
    metadata_log.write(tmp_path / "logs", files)
    assert ("torn-end" in kinds(doctor(tmp_path / "logs"))) is is_lost


@pytest.mark.parametrize(("batch", "ends_broker"), [(0, False), (3, False), (4, True), (5, True)])
def test_a_batch_with_a_wrong_magic_ends_a_broker_only_above_the_snapshot(
    batch: int, ends_broker: bool, tmp_path: Path
) -> None:
    """The checksum does not cover the magic, so the batch stays; a broker reads none that the snapshot has."""
    content = bytearray(metadata_log.batches(RECORDS, each=1))
    content[16 + batch * (len(content) // len(RECORDS))] = 7
    files = {f"{4:020d}-{1:010d}.checkpoint": metadata_log.snapshot(RECORDS[:4]), metadata_log.log(): bytes(content)}
    metadata_log.write(tmp_path / "logs", files)
    found = kinds(doctor(tmp_path / "logs"))
    assert ("bad-quorum-file" in found) is ends_broker
    assert ("damaged-batch" in found) is not ends_broker


@pytest.mark.parametrize("with_damaged", [False, True])
def test_only_the_newest_snapshot_lets_a_broker_pass_over_a_batch(with_damaged: bool, tmp_path: Path) -> None:
    content = bytearray(metadata_log.batches(RECORDS, each=1))
    content[16] = 7
    files = {f"{4:020d}-{1:010d}.checkpoint": metadata_log.snapshot(RECORDS[:4]), metadata_log.log(): bytes(content)}
    if with_damaged:
        files[f"{6:020d}-{1:010d}.checkpoint"] = SNAPSHOT[:-100]
    metadata_log.write(tmp_path / "logs", files)
    assert ("bad-quorum-file" in kinds(doctor(tmp_path / "logs"))) is with_damaged


def test_a_link_in_a_metadata_log_is_refused(tmp_path: Path) -> None:
    metadata_log.write(tmp_path / "logs", {metadata_log.log(): metadata_log.batches([TopicRecord("t", bytes(16))])})
    link = tmp_path / "logs" / "__cluster_metadata-0" / f"{0:020d}.timeindex"
    link.symlink_to("/nowhere")
    found = kinds(doctor(tmp_path / "logs"))
    assert found["refused"]["file"] == str(link)


@pytest.mark.parametrize(
    ("name", "content", "word"),
    [
        (f"{1:020d}.snapshot", b"\0\1", "bad-snapshot"),  # A broker takes an older one.
        # It cuts that off. Here nothing is known of the topics then.
        (metadata_log.log(), metadata_log.batches([TopicRecord("t", bytes(16))])[:-1], "damaged-batch"),
        (f"{0:020d}.index", b"\0\1", "lying-index"),  # It builds another one.
    ],
)
def test_what_only_stops_kcompact_in_a_metadata_log(name: str, content: bytes, word: str, tmp_path: Path) -> None:
    metadata_log.write(tmp_path / "logs", {metadata_log.log(): metadata_log.batches([TopicRecord("t", bytes(16))])})
    (tmp_path / "logs" / "__cluster_metadata-0" / name).write_bytes(content)
    assert kinds(doctor(tmp_path / "logs"))[word]["severity"] == "stops kcompact"


@pytest.mark.parametrize("is_of_zookeeper", [True, False])
def test_a_clean_shutdown_file_that_is_a_directory_is_a_finding(is_of_zookeeper: bool, tmp_path: Path) -> None:
    healthy(tmp_path / "logs")
    if is_of_zookeeper:
        (tmp_path / "logs" / "meta.properties").write_text("version=0\nbroker.id=1\ncluster.id=a\n")
    (tmp_path / "logs" / ".kafka_cleanshutdown").unlink(missing_ok=True)
    (tmp_path / "logs" / ".kafka_cleanshutdown").mkdir()
    assert "unknown-directory" in kinds(doctor(tmp_path / "logs", *COMPACT))


def test_any_version_of_the_topic_id_of_a_metadata_log_is_read(tmp_path: Path) -> None:
    metadata_log.write(tmp_path / "logs", {metadata_log.log(): metadata_log.batches([TopicRecord("t", bytes(16))])})
    metadata = tmp_path / "logs" / "__cluster_metadata-0"
    for name, content, is_bad in (
        ("partition.metadata", "version: 2\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ", False),
        ("leader-epoch-checkpoint", "2\n0\n", True),
    ):
        (metadata / name).write_text(content)
        assert ("bad-quorum-file" in kinds(doctor(tmp_path / "logs"))) == is_bad


def test_a_torn_end_after_a_kill_is_normal(tmp_path: Path) -> None:
    directory = healthy(tmp_path / "logs", HEALTHY.replace("hw=7", "hw=6"))
    (tmp_path / "logs" / ".kafka_cleanshutdown").unlink()
    rewrite(directory / LOG6, (directory / LOG6).read_bytes()[:-3])
    for options in ((), ("--verify",)):
        assert list(kinds(doctor(tmp_path / "logs", *COMPACT, *options))) == ["unclean-shutdown"]


def test_damage_below_the_recovery_point_after_a_kill(tmp_path: Path) -> None:
    directory = healthy(tmp_path / "logs")
    (tmp_path / "logs" / ".kafka_cleanshutdown").unlink()
    (tmp_path / "logs" / "recovery-point-offset-checkpoint").write_text("0\n1\norders 0 6\n", encoding="utf-8")
    flip(directory / LOG3, 17)
    found = kinds(doctor(tmp_path / "logs", *COMPACT, "--verify"))
    assert list(found) == ["unclean-shutdown", "damaged-batch"]
    assert found["damaged-batch"]["file"] == str(directory / LOG3)


TWO_COMPRESSED = "log now=10:00 hw=6\n0: [a=1 b=2](gzip) [a=3](gzip) [b=4](gzip)\n6: a=6\n"


def test_every_batch_that_the_cleaner_cannot_read(tmp_path: Path) -> None:
    """It fails at the first one. When that is repaired, it fails at the next."""
    file = healthy(tmp_path / "logs", TWO_COMPRESSED) / LOG0
    batches = list(parse_batches(file.read_bytes(), file=""))
    for batch in batches[1:]:
        flip(file, batch.position + 61)
    assert doctor(tmp_path / "logs", *COMPACT).json["findings"] == []  # Only reading finds damage inside of a file.
    found = doctor(tmp_path / "logs", *COMPACT, "--verify").json["findings"]
    assert [(each["finding"], each["position"], each["offset"]) for each in found] == [
        ("uncleanable-batch", batch.position, batch.header.base_offset) for batch in batches[1:]
    ]


def test_a_batch_that_a_newer_kafka_wrote(tmp_path: Path) -> None:
    file = healthy(tmp_path / "logs") / LOG0
    first, *others = parse_batches(file.read_bytes(), file="")
    newer = sealed(first.header._replace(attributes=0x80), bytes(first.data[61:]))
    rewrite(file, b"".join([newer, *(bytes(each.data) for each in others)]))
    (found,) = doctor(tmp_path / "logs", *COMPACT, "--verify").json["findings"]
    assert (found["finding"], found["file"], found["exit_code"]) == ("refused", str(file), 4)


def test_only_some_topics(tmp_path: Path) -> None:
    orders = healthy(tmp_path / "logs")
    shutil.copytree(orders, orders.with_name("users-0"))
    rewrite(orders / LOG3, b"garbage")
    every = doctor(tmp_path / "logs", *COMPACT).json["findings"]
    found = doctor(tmp_path / "logs", *COMPACT, "--topic", "users*").json["findings"]
    assert any("orders-0" in each["directory"] for each in every)
    assert not any("orders-0" in each["directory"] for each in found)


def test_it_says_who_holds_the_lock(tmp_path: Path) -> None:
    healthy(tmp_path / "logs")
    with running_broker(tmp_path / "logs"):
        found = kinds(doctor(tmp_path / "logs", *COMPACT))
    assert list(found) == ["locked"]
    process = re.search(r"python\S* \(process (\d+)\) holds the lock", found["locked"]["problem"])
    assert process
    assert found["locked"]["next"] == f"ps -fp {process[1]}"
    with log_dir_lock(tmp_path / "logs"):
        assert "another kcompact holds the lock" in kinds(doctor(tmp_path / "logs", *COMPACT))["locked"]["problem"]


WRONG_PATHS = {"nothing-here": "no such directory", "file": "not a directory"}


@pytest.mark.parametrize("name", WRONG_PATHS)
def test_wrong_paths(name: str, tmp_path: Path) -> None:
    healthy(tmp_path / "logs")
    (tmp_path / "file").touch()
    ran = kcompact("doctor", tmp_path / name)
    assert (ran.code, ran.out) == (4, "")
    assert WRONG_PATHS[name] in ran.err


def test_one_partition_is_examined_with_the_files_beside_it(tmp_path: Path) -> None:
    log_dir = tmp_path / "logs"
    healthy(log_dir)
    healthy(log_dir, HEALTHY.replace("log ", "log name=users-0 "))
    for topic in ("orders-0", "users-0"):
        (log_dir / topic / "README").touch()
    (log_dir / "lost+found").mkdir()
    words = ("foreign-name", "unknown-directory")
    for paths, partitions in ((["users-0"], ["users-0"]), (["users-0", "."], ["orders-0", "users-0"])):
        ran = kcompact("doctor", "--json", "--now", NOW, *COMPACT, *(log_dir / path for path in paths))
        found = [(each["finding"], each["directory"]) for each in ran.json["findings"] if each["finding"] in words]
        foreign = [("foreign-name", str(log_dir / partition)) for partition in partitions]
        assert found == [("unknown-directory", str(log_dir / "lost+found")), *foreign]


def test_a_wrong_setting_of_the_command_line_is_a_usage_error(tmp_path: Path) -> None:
    healthy(tmp_path / "logs")
    ran = kcompact("doctor", *COMPACT, "--config", "segment.bytes=x", tmp_path / "logs")
    assert ran.code == 2
    assert "segment.bytes" in ran.err


def test_many_findings_of_a_kind_are_counted(tmp_path: Path) -> None:
    healthy(tmp_path / "logs")
    for number in range(8):
        (tmp_path / "logs" / f"lost+found{number}").mkdir()
    files = ("--broker-config", tmp_path / "server.properties", "--topic-configs", tmp_path / TOPICS)
    options = (*COMPACT, "--now", NOW, *files)
    ran = kcompact("doctor", *options, tmp_path / "logs")
    assert ran.code == 4
    assert ran.out.count("lost+found") == 5 * 4
    assert "and 3 more findings of this kind; --verbose lists all" in ran.out
    assert ran.out.rpartition("kernels: ")[0].endswith("\nstops a broker: 8\n")
    assert kcompact("doctor", "-v", *options, tmp_path / "logs").out.count("lost+found") == 8 * 4
    assert kcompact("doctor", "-q", *options, tmp_path / "logs").out == "stops a broker: 8\n"


def test_who_holds_the_lock(tmp_path: Path) -> None:
    healthy(tmp_path / "logs")
    run = ("doctor", *COMPACT, "--now", NOW, "--broker-config", tmp_path / "server.properties", tmp_path / "logs")
    with running_broker(tmp_path / "logs") as pid:
        out = kcompact(*run).out
    assert re.search(rf"^stops a broker: locked\n  .*: python\S* \(process {pid}\) holds the lock: ", out)
    with running_broker(tmp_path / "logs", "kafka.Kafka", "server.properties") as pid:
        ran = kcompact(*run)
        os.kill(pid, signal.SIGSTOP)
        os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOWAIT)
        suspended = kcompact(*run).out
        refused = kcompact("recover", tmp_path / "logs").err
        os.kill(pid, signal.SIGCONT)
    assert re.search(rf"^stops kcompact: running\n  .*: python\S* \(process {pid}\) is a running broker: ", ran.out)
    assert "A broker is running; nothing was found that stops it or its cleaner.\n" in ran.out
    assert ran.code == 5
    assert re.search(rf"^stops a broker: locked\n  .* \(process {pid}, suspended\) holds the lock: ", suspended)
    assert f"(process {pid}, suspended) holds this lock\n" in refused
    with log_dir_lock(tmp_path / "logs"):
        assert "another kcompact holds the lock: " in kcompact(*run).out


def test_the_gravest_exit_code_wins(tmp_path: Path) -> None:
    (healthy(tmp_path / "logs") / ".kcompact-0123456789abcdef").mkdir()
    (tmp_path / "logs" / "lost+found").mkdir()
    ran = doctor(tmp_path / "logs", *COMPACT)
    assert (ran.code, {finding["exit_code"] for finding in ran.json["findings"] if finding["exit_code"]}) == (8, {4, 8})


def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    healthy(tmp_path / "logs")
    monkeypatch.setattr(Disk, "of", staticmethod(lambda path: Disk(100, 4096)))
    ran = doctor(tmp_path / "logs", *COMPACT)
    assert list(kinds(ran)) == ["disk-full", "little-space"]
    assert ran.code == 7


def test_a_read_only_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    healthy(tmp_path / "logs")
    read_only = OSError(errno.EROFS, os.strerror(errno.EROFS))
    monkeypatch.setattr(log_dirs, "why_not_writable", lambda directory: read_only)
    ran = doctor(tmp_path / "logs", *COMPACT)
    assert (ran.code, list(kinds(ran))) == (4, ["read-only"])


def test_a_directory_that_this_user_may_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    healthy(tmp_path / "logs")

    def closed(path: Path) -> NoReturn:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr(examination, "access_findings", closed)
    ran = doctor(tmp_path / "logs", *COMPACT)
    assert (ran.code, list(kinds(ran))) == (4, ["unreadable"])


NAMES = {
    "orders-0": True,
    "a-b-c-12": True,
    "orders-+1": True,
    "remote-log-index-cache": True,
    "orders-0.0123-delete": True,
    "orders": False,
    "lost+found": False,
    "-0": False,
    "orders-": False,
    "orders-x": False,
    "orders-2147483648": False,
    "orders-delete": False,
    "orders-0.-delete": False,
}


@pytest.mark.parametrize("name", NAMES)
def test_names_of_directories(name: str) -> None:
    assert is_loaded(name) == NAMES[name]


@pytest.mark.parametrize(
    ("name", "loadable"),
    [
        ("x.log", False),
        (".0.log.swap", False),
        ("5.log", True),
        ("x.txt", True),
        ("x.snapshot", False),
        ("1.bak", True),
    ],
)
def test_names_of_files(name: str, loadable: bool) -> None:
    assert is_loadable(name) == loadable


def test_the_docs_list_every_kind() -> None:
    rows = re.findall(r"^\| `([\w-]+)` \| ([\w ]+) \|.*\|$", DOCS.read_text(encoding="utf-8"), re.MULTILINE)
    assert rows == [(kind.value, str(kind.severity)) for kind in RemarkCode if kind.is_finding]


def test_every_kind_is_provoked() -> None:
    elsewhere = {RemarkCode.DISK_FULL, RemarkCode.LITTLE_SPACE, RemarkCode.READ_ONLY, RemarkCode.UNREADABLE}
    elsewhere |= {RemarkCode.BROKER_RELEASE, RemarkCode.LONG_OUTAGE}  # test_stopped_broker
    assert set(SICKNESSES) | elsewhere == {code for code in RemarkCode if code.is_finding}


def test_the_metadata_log_is_examined_and_has_no_policy(tmp_path: Path) -> None:
    checkout.copy_directory("broker", "before", tmp_path / "logs")
    options = (*COMPACT, "--now", "2026-12-01T00:00:00Z", "--broker-config", properties_file(tmp_path / "logs"))
    ran = doctor(tmp_path / "logs", *options)
    assert (ran.code, list(kinds(ran))) == (0, ["broker-release"])
    assert kinds(ran)["broker-release"]["problem"] == "the last broker was of Kafka 4.3; the rules of Kafka 4.3 hold"
    # A node builds the indexes of this log anew each time, and cuts the log off where it is damaged.
    metadata = tmp_path / "logs" / "__cluster_metadata-0"
    (metadata / LOG0.replace(".log", ".timeindex")).write_bytes(b"123456789")
    found = kinds(doctor(tmp_path / "logs", *options))
    assert {word: each["severity"] for word, each in found.items()} == {
        "lying-index": "stops kcompact",  # `clean` believes an index.
        "broker-release": "note",
    }
    flip(metadata / LOG0, 100)
    ran = doctor(tmp_path / "logs", *options)
    assert (ran.code, next(iter(kinds(ran)))) == (3, "torn-end")
    assert kinds(ran)["torn-end"]["file"] == str(metadata / LOG0)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("log.cleaner.min.compaction.lag.ms=2000\nlog.cleaner.max.compaction.lag.ms=1000", "conflict topic config"),
        ("log.cleaner.min.compaction.lag.ms=soon", None),
        ("log.cleaner.dedupe.buffer.size=1048576", "must be at least 1MB per cleaner thread"),
        ("log.cleaner.dedupe.buffer.size=large", None),
    ],
)
def test_only_a_contradiction_is_reported_as_one(text: str, says: str | None, tmp_path: Path) -> None:
    healthy(tmp_path / "logs")
    ran = doctor(tmp_path / "logs", *COMPACT, "--broker-config", properties_file(tmp_path / "logs", text))
    found = kinds(ran)["bad-setting"]["broker_says"]
    assert found is None if says is None else says in found


def test_a_checkpoint_above_the_log_end_is_named_once(tmp_path: Path) -> None:
    healthy(tmp_path / "logs")
    checkpoint = tmp_path / "logs" / "recovery-point-offset-checkpoint"
    checkpoint.write_text("0\n1\norders 0 90\n")
    ran = doctor(tmp_path / "logs", *COMPACT, "--verify")
    assert [finding["file"] for finding in ran.json["findings"]] == [str(checkpoint)]


@pytest.mark.parametrize(("snapshot_at", "is_lost"), [(3, True), (5, True), (6, False), (9, False)])
def test_a_snapshot_may_have_what_a_node_cuts_off_of_its_metadata_log(
    snapshot_at: int, is_lost: bool, tmp_path: Path
) -> None:
    records = [TopicRecord(f"t{number}", bytes(15) + bytes([number])) for number in range(9)]
    log = bytearray(metadata_log.batches(records[:6], each=1))
    log[70] ^= 1  # In the first of six batches.
    files = {
        metadata_log.log(): bytes(log),
        f"{snapshot_at:020d}-{1:010d}.checkpoint": metadata_log.snapshot(records[:snapshot_at]),
    }
    metadata_log.write(tmp_path / "logs", files)
    found = kinds(doctor(tmp_path / "logs"))
    assert ("torn-end" in found) == is_lost, found


def test_without_machine_code_only_the_transaction_indexes_are_not_compared(tmp_path: Path) -> None:
    spec = log_dsl.parse("log now=10:00\n0: a=1(pid=1 txn) abort(pid=1) b=2\n3: c=1(pid=2 txn) commit(pid=2)\n5: d=1")
    directory = log_writer.write(spec, tmp_path / "logs")
    (directory / LOG0).with_suffix(".timeindex").write_bytes(b"1234567")
    with_kernels = kinds(doctor(tmp_path / "logs", *COMPACT, "--verify"))
    assert "lying-index" in with_kernels
    with without_machine_code(tmp_path / "machine_code"):
        found = kinds(doctor(tmp_path / "logs", *COMPACT, "--verify"))
    assert sorted(found) == sorted([*with_kernels, "machine-code"])
