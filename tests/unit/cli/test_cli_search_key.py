"""`kcompact search-key`: its options, its two forms of a statement, and how their digests are checked."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from kcompact.cli.json.fields import schema_of
from kcompact.cli.json.search import SEARCH
from kcompact.format.properties import MetaProperties, encode_uuid
from kcompact.questions.search.keys import keys_in
from tests.support import log_dsl, log_writer, metadata_log
from tests.support.command_line import CONTROL, command, environment, kcompact, on_terminal, partition, running_broker
from tests.support.log_writer import LogSpec
from tests.support.metadata_records import MetadataRecord, PartitionRecord, TopicRecord
from tests.support.patience import PATIENCE_S, becomes

TEXT = "log\n0: [customer-17=a other=b](lz4) gone=1 gone=~\n"
ORDERS = b"o" * 16


@pytest.mark.parametrize(
    ("key", "code", "outcome"),
    [("customer-17", 10, "present"), ("hex:637573746f6d65722d3137", 10, "present"), ("nobody", 0, "absent")],
)
def test_outcomes_and_exit_codes(tmp_path: Path, key: str, code: int, outcome: str) -> None:
    partition(tmp_path, TEXT)
    ran = kcompact("search-key", "--json", "--key", key, tmp_path)
    assert ran.code == code, ran.err
    assert [each["outcome"] for each in ran.json["statement"]["keys"]] == [outcome]
    text = kcompact("search-key", "--key", key, tmp_path)
    assert text.code == code
    assert text.out.splitlines()[0] == text.out.splitlines()[-3] == f"1 key: 1 {outcome}"


def test_the_json_is_as_declared_and_its_digest_is_right(tmp_path: Path) -> None:
    partition(tmp_path, TEXT)
    (tmp_path / "orders-0" / "odd\n\x1b[31m\udcff").write_bytes(b"x")
    ran = kcompact("search-key", "--json", "--key", "customer-17", "--key", "nobody", tmp_path)
    assert ran.out.isascii()
    Draft202012Validator(schema_of(SEARCH, "search-key")).validate(ran.json)
    program = (
        "import hashlib, json, sys; statement = json.load(sys.stdin)['statement']; "
        "print(hashlib.sha256(json.dumps(statement, sort_keys=True, separators=(',', ':')).encode()).hexdigest())"
    )
    done = subprocess.run([sys.executable, "-c", program], input=ran.out, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ran.json["statement_sha256"]
    for each in ran.json["statement"]["files"]:
        content = Path(each["path"]).read_bytes()
        assert (each["size_bytes"], each["sha256"]) == (len(content), hashlib.sha256(content).hexdigest())


def test_the_text_is_complete_and_its_digest_is_right(tmp_path: Path) -> None:
    partition(tmp_path, TEXT)
    (tmp_path / "orders-0" / "odd\n\x1b[31m\udcff").write_bytes(b"x")
    ran = kcompact("search-key", "--key", "customer-17", "--salt", "s", tmp_path)
    *above, last = ran.out.splitlines(keepends=True)
    assert last == f"SHA-256 of the lines above: {hashlib.sha256(''.join(above).encode()).hexdigest()}\n"
    assert not CONTROL.search(ran.out)
    for file in tmp_path.rglob("*"):
        if file.is_file():
            assert hashlib.sha256(file.read_bytes()).hexdigest() in ran.out


def test_the_digests_of_keys(tmp_path: Path) -> None:
    partition(tmp_path, TEXT)
    statement = kcompact("search-key", "--json", "--key", "nobody", "--salt", "2026-11", tmp_path).json["statement"]
    assert statement["salt"] is None
    assert statement["keys"][0]["digest"] == hmac.new(b"2026-11", b"nobody", hashlib.sha256).hexdigest()
    statement = kcompact("search-key", "--json", "--key", "nobody", tmp_path).json["statement"]
    salt = statement["salt"].encode()
    assert statement["keys"][0]["digest"] == hmac.new(salt, b"nobody", hashlib.sha256).hexdigest()


def test_keys_in_a_file(tmp_path: Path) -> None:
    partition(tmp_path / "logs", TEXT)
    keys = tmp_path / "keys"
    keys.write_bytes(b"\xef\xbb\xbfcustomer-17\r\n\r\nhex:676f6e65\nnobody\ncustomer-17\n")
    ran = kcompact("search-key", "--json", "--keys-file", keys, tmp_path / "logs")
    outcomes = [each["outcome"] for each in ran.json["statement"]["keys"]]
    assert outcomes == ["present", "present", "absent"]
    text = kcompact("search-key", "--keys-file", keys, tmp_path / "logs").out
    assert text.startswith("3 keys: 2 present, 1 absent\n")
    keys.write_bytes(b"a\nhex:1\n")
    ran = kcompact("search-key", "--keys-file", keys, tmp_path / "logs")
    assert ran.code == 2
    assert "line 2: 'hex:1' is not hex: and pairs of hexadecimal digits" in ran.err


@pytest.mark.parametrize(
    ("content", "note"),
    [
        (b"customer-17 \n", "has a blank at an end (line 1)"),
        (b"a\n\tcustomer-17\n", "has a blank at an end (line 2)"),
        (b'"customer-17"\n', "has a quote at an end (line 1)"),
        (b"customer-17'\n", "has a quote at an end (line 1)"),
        (b"customer-17\rother\r", "has a carriage return (line 1)"),
        (b"customer-17\r\r\n", "has a carriage return (line 1)"),
        (b"customer-17\r\nother\r\n", ""),
        (b"custo mer-17\nit's\n", ""),
        (b"hex:20\n", ""),
    ],
)
def test_keys_that_may_not_be_meant_are_noted(tmp_path: Path, content: bytes, note: str) -> None:
    """Without a word another key would be searched for. A statement has digests only, so nobody would notice."""
    partition(tmp_path / "logs", TEXT)
    keys = tmp_path / "keys"
    keys.write_bytes(content)
    ran = kcompact("search-key", "--keys-file", keys, tmp_path / "logs")
    assert ran.code in (0, 10)
    assert (note in ran.err) if note else not ran.err
    document = kcompact("search-key", "--json", "--keys-file", keys, tmp_path / "logs").json
    assert [each["code"] for each in document["notes"]] == (["odd-keys"] if note else [])


@pytest.mark.parametrize("content", [b"\r", b"\xa0a", b" a"])
def test_a_key_of_one_byte_may_be_odd(tmp_path: Path, content: bytes) -> None:
    keys, notes = keys_in(content + b"x\n", file="keys", labels=False)
    assert keys == [("line 1", content + b"x")]
    assert len(notes) == 1


@pytest.mark.parametrize(
    ("content", "words", "problem"),
    [
        ("customer-17\n".encode("utf-16"), [], "is in UTF-16, as PowerShell writes it; save it as UTF-8"),
        (b"\xfe\xff\0a\0\n", [], "is in UTF-16"),
        ("ab\ncd\n".encode("utf-16-le"), [], "line 1 has a NUL byte: text in UTF-16? Bytes are hex:0A1B"),
        (b"a\tb\n\nc\n", ["--labels"], "line 3 is not LABEL, a tab, KEY"),
        (b"\tb\n", ["--labels"], "line 1 is not LABEL, a tab, KEY"),
        (b"a\t\n", ["--labels"], "line 1 is not LABEL, a tab, KEY"),
    ],
)
def test_files_that_have_no_keys_are_refused(tmp_path: Path, content: bytes, words: list[str], problem: str) -> None:
    partition(tmp_path / "logs", TEXT)
    keys = tmp_path / "keys"
    keys.write_bytes(content)
    ran = kcompact("search-key", "--keys-file", keys, *words, tmp_path / "logs")
    assert (ran.code, ran.out) == (2, "")
    assert problem in ran.err


def test_answers_have_the_names_of_keys(tmp_path: Path) -> None:
    partition(tmp_path / "logs", TEXT)
    keys = tmp_path / "keys"
    keys.write_bytes(b"alice\tcustomer-17\nbob\thex:6e6f626f6479\ncarol\tcustomer-17\nd\ta\tb\n")
    ran = kcompact("search-key", "--json", "--key", "other", "--keys-file", keys, "--labels", tmp_path / "logs")
    found = [(each["names"], each["outcome"]) for each in ran.json["statement"]["keys"]]
    assert found == [
        (["--key 1"], "present"),
        (["alice", "carol"], "present"),
        (["bob"], "absent"),
        (["d"], "absent"),
    ]
    assert "alice, carol: " in kcompact("search-key", "--keys-file", keys, "--labels", tmp_path / "logs").out
    keys.write_bytes(b"customer-17\n\nnobody\n")
    ran = kcompact("search-key", "--json", "--keys-file", keys, tmp_path / "logs")
    assert [each["names"] for each in ran.json["statement"]["keys"]] == [["line 1"], ["line 3"]]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("log\n0: [customer-17=a](lz4)\n", "present"),
        ("log\n0: [customer-17=~](lz4)\n", "tombstone-only"),
        ("log\n0: [customer-170=a b=customer-17 c=d{h=customer-17}](lz4) customer-17a=~\n", "absent"),
    ],
)
def test_with_exact_only_whole_keys_count(tmp_path: Path, text: str, expected: str) -> None:
    log_dir = partition(tmp_path, text).parent
    search = ("search-key", "--json", "--exact", "--key", "customer-17", log_dir)
    (found,) = kcompact(*search).json["statement"]["keys"]
    assert found["outcome"] == expected
    # What is not read as records may be a record's whole key.
    (log_dir / "orders-0" / "leader-epoch-checkpoint").write_bytes(b"0\n0\ncustomer-17\n")
    statement = kcompact(*search).json["statement"]
    assert statement["keys"][0]["outcome"] == ("present" if expected == "present" else "not-proven")
    assert [each["problem"] for each in statement["files"] if each["problem"]] == [
        "has the bytes of a key, and is not read as records"
    ]
    assert statement["is_exact"] is True
    assert "whole key of a record" in statement["method"]


def test_only_some_topics(tmp_path: Path) -> None:
    partition(tmp_path, TEXT)
    gone = tmp_path / "users-3.0123456789abcdef0123456789abcdef-delete"
    gone.mkdir()
    (gone / f"{0:020d}.log").write_bytes((tmp_path / "orders-0" / f"{0:020d}.log").read_bytes())
    for path in (tmp_path, gone):
        statement = kcompact("search-key", "--json", "--key", "other", "--topic", "us*", path).json["statement"]
        assert [Path(each["path"]).parent for each in statement["files"]] == [gone]
        assert statement["topics"] == ["us*"]
        assert statement["keys"][0]["outcome"] == "present"
    ran = kcompact("search-key", "--key", "other", "--topic", "user", tmp_path)
    assert ran.code == 4
    assert "no partition of a topic that matches 'user'" in ran.err


def test_the_summary_by_broker_and_topic(tmp_path: Path) -> None:
    log_dirs = brokers(tmp_path)
    (log_dirs[1] / "orders-0" / "dump.gz").write_bytes(b"x")
    lines = kcompact("search-key", "--key", "nobody", *log_dirs).out.splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("broker  topic"))
    rows = [line.split() for line in lines[start + 1 : lines.index("", start)]]
    assert [(row[0], row[1], row[-1]) for row in rows if row[1] == "orders"] == [
        ("1", "orders", "0"),
        ("2", "orders", "1"),
    ]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--key", "a", "--labels"], "--labels are those of a --keys-file"),
        ([], "pass the key as --key, or keys in a --keys-file"),
        (["--key", ""], "the empty key cannot be searched for"),
        (["--key", "a", "--salt", ""], "the salt is empty"),
    ],
)
def test_usage(tmp_path: Path, words: list[str], message: str) -> None:
    partition(tmp_path, TEXT)
    ran = kcompact("search-key", *words, tmp_path)
    assert ran.code == 2
    assert message in ran.err


def test_a_path_without_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty" / "inside").mkdir(parents=True)
    for name, message in (("missing", "no such file or directory"), ("empty", "Is the disk mounted?")):
        ran = kcompact("search-key", "--key", "a", tmp_path / name)
        assert ran.code == 4
        assert message in ran.err


def test_a_path_that_is_a_link_is_followed(tmp_path: Path) -> None:
    partition(tmp_path / "logs", TEXT)
    (tmp_path / "link").symlink_to("logs")
    statement = kcompact("search-key", "--json", "--key", "customer-17", tmp_path / "link").json["statement"]
    assert statement["keys"][0]["outcome"] == "present"
    assert statement["paths"] == [str(tmp_path / "link")]
    assert all(each["path"].startswith(str(tmp_path / "logs")) for each in statement["files"])


def brokers(path: Path) -> list[Path]:
    """Write two of the three brokers of a partition with three replicas, and of another one that both lack."""
    records: list[MetadataRecord] = [
        TopicRecord("orders", ORDERS),
        PartitionRecord(0, ORDERS, (1, 2, 3)),
        PartitionRecord(1, ORDERS, (3,)),
    ]
    found = []
    for node_id in (1, 2):
        log_dir = path / f"broker-{node_id}"
        found.append(metadata_log.write(log_dir, {metadata_log.log(): metadata_log.batches(records)}, node_id=node_id))
        properties = MetaProperties(version=1, cluster_id=metadata_log.CLUSTER_ID, node_id=node_id, directory_id=None)
        spec: LogSpec = log_dsl.parse(TEXT)
        spec = replace(spec, topic_id=encode_uuid(ORDERS), meta_properties=properties)
        log_writer.write(spec, log_dir)
    return found


def test_two_of_three_replicas(tmp_path: Path) -> None:
    log_dirs = brokers(tmp_path)
    statement = kcompact("search-key", "--json", "--key", "nobody", *log_dirs).json["statement"]
    assert [(each["node_id"], each["cluster_id"], each["is_whole"]) for each in statement["log_dirs"]] == [
        (1, metadata_log.CLUSTER_ID, True),
        (2, metadata_log.CLUSTER_ID, True),
    ]
    assert [(each["partition"], each["replicas"], each["searched"]) for each in statement["partitions"]] == [
        (0, [1, 2, 3], [1, 2]),
        (1, [3], []),
    ]
    assert statement["partitions"][0]["topic_ids"] == [encode_uuid(ORDERS)]
    text = kcompact("search-key", "--key", "nobody", *log_dirs).out
    assert "2 of 3 of orders-0" in text
    assert "0 of 1 of orders-1" in text
    assert f"orders: {encode_uuid(ORDERS)}\n" in text
    assert f"{log_dirs[0]}, no broker ran\n" in text


def test_one_partition_of_a_broker(tmp_path: Path) -> None:
    log_dir = brokers(tmp_path)[0]
    statement = kcompact("search-key", "--json", "--key", "nobody", log_dir / "orders-0").json["statement"]
    assert [(each["node_id"], each["is_whole"]) for each in statement["log_dirs"]] == [(1, False)]
    assert [(each["partition"], each["searched"]) for each in statement["partitions"]] == [(0, [1])]


def test_partitions_of_a_cluster_come_after_those_of_none(tmp_path: Path) -> None:
    log_dirs = brokers(tmp_path)
    partition(tmp_path, TEXT)
    statement = kcompact("search-key", "--json", "--key", "nobody", *log_dirs, tmp_path / "orders-0").json["statement"]
    assert [each["cluster_id"] for each in statement["partitions"]] == [None, *[metadata_log.CLUSTER_ID] * 2]


def test_replicas_are_unknown_without_metadata(tmp_path: Path) -> None:
    partition(tmp_path, TEXT)
    statement = kcompact("search-key", "--json", "--key", "nobody", tmp_path).json["statement"]
    assert [each["replicas"] for each in statement["partitions"]] == [None]


def test_beside_a_running_broker_nothing_is_absent(tmp_path: Path) -> None:
    partition(tmp_path, TEXT)
    with running_broker(tmp_path):
        ran = kcompact("search-key", "--json", "--key", "nobody", tmp_path)
    assert ran.code == 10
    assert ran.json["statement"]["keys"][0]["outcome"] == "not-proven"
    assert ran.json["statement"]["log_dirs"][0]["was_running"] is True
    with running_broker(tmp_path):
        assert f"{tmp_path}, a broker ran\n" in kcompact("search-key", "--key", "nobody", tmp_path).out


def test_no_word_that_promises_more(tmp_path: Path) -> None:
    partition(tmp_path, TEXT)
    for words in ([], ["--json"]):
        out = kcompact("search-key", *words, "--key", "nobody", tmp_path).out.lower()
        out += kcompact("search-key", "--help").out.lower()
        for word in ("erase", "certif", "gdpr", "complian", "regulation"):
            assert word not in out


def is_open_in(pid: int, file: Path) -> bool:
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # It is closed by now.
            if descriptor.readlink() == file:
                return True
    return False


def test_ctrl_c_ends_a_search_without_a_statement(tmp_path: Path) -> None:
    log_dir = partition(tmp_path, TEXT).parent
    large = log_dir / "recovery-point-offset-checkpoint"
    with large.open("wb") as file:
        file.truncate(1 << 38)  # A hole, which takes minutes to read.
    program = command("search-key", "--key", "a", log_dir)
    with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()) as process:
        try:
            assert becomes(lambda: is_open_in(process.pid, large))
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=PATIENCE_S)
        finally:
            process.kill()
    assert (process.returncode, out, err) == (130, b"", b"\ninterrupted\n")


def test_a_terminal_shows_the_gravest_keys(tmp_path: Path) -> None:
    log_dir = partition(tmp_path, TEXT).parent
    (log_dir / "dump.gz").write_bytes(b"x")
    words = [word for number in range(30) for word in ("--key", f"nobody-{number}")]
    (lines,) = on_terminal([100], "search-key", *words, "--key", "customer-17", log_dir).values()
    assert lines[0] == lines[-1] == "31 keys: 1 present, 30 not proven"
    assert lines[2].endswith("  present")
    assert "and 11 more keys; --json has all" in lines
    at = lines.index("Something may be hidden in:")
    assert lines[at + 1].strip().startswith(str(log_dir / "dump.gz"))
    assert not any("SHA-256" in line for line in lines)


# A selection


@pytest.mark.parametrize("chosen", [("--topic", "orders"), ("--partition", "0")], ids=str)
@pytest.mark.parametrize("at", [".", "orders-0", "orders-0/00000000000000000000.log", ".."])
def test_a_broker_is_seen_around_the_selection(at: str, chosen: tuple[str, str], tmp_path: Path) -> None:
    log_dir = tmp_path / "logs"
    partition(log_dir, "log\n0: a=1\n")
    with running_broker(log_dir):
        ran = kcompact("search-key", "--json", "--key", "nobody", *chosen, log_dir / at)
    assert ran.code == 10
    assert [each["outcome"] for each in ran.json["statement"]["keys"]] == ["not-proven"]
    assert [each["was_running"] for each in ran.json["statement"]["log_dirs"]] == [True]


def test_a_broker_that_has_no_selected_partition_may_get_one(tmp_path: Path) -> None:
    for name in ("orders-0", "users-0"):
        partition(tmp_path / name[:-2], f"log name={name}\n0: a=1\n")
    with running_broker(tmp_path / "users"):
        ran = kcompact("search-key", "--key", "nobody", "--topic", "orders", tmp_path)
    assert (ran.code, "a broker ran" in ran.out) == (10, True)


def test_the_statement_says_what_was_not_selected(tmp_path: Path) -> None:
    log_dirs = brokers(tmp_path)
    chosen = ("--key", "nobody", "--partition", "0")
    statement = kcompact("search-key", "--json", *chosen, *log_dirs).json["statement"]
    assert [each["is_whole"] for each in statement["log_dirs"]] == [False, False]
    assert [(each["partition"], each["replicas"], each["searched"]) for each in statement["partitions"]] == [
        (0, [1, 2, 3], [1, 2])
    ]
    both = kcompact("search-key", "--json", *chosen, "--partition", "1", *log_dirs).json["statement"]
    assert [each["partition"] for each in both["partitions"]] == [0, 1]
    assert "in the directories of selected partitions" in statement["method"]
    assert statement["cannot_know"][0] == "partitions that were not selected, and files that are in no partition"
    text = kcompact("search-key", *chosen, *log_dirs).out
    assert text.startswith("1 key: 1 absent (only selected partitions were searched)\n")
    assert f"{log_dirs[0]}, a part of it, no broker ran" in text
    whole = kcompact("search-key", "--json", "--key", "nobody", *log_dirs).json["statement"]
    assert "selected" not in " ".join([whole["method"], *whole["cannot_know"]])


def test_one_file_of_a_log_directory_is_not_the_whole(tmp_path: Path) -> None:
    log_dir = brokers(tmp_path)[0]
    statement = kcompact("search-key", "--json", "--key", "nobody", log_dir / "meta.properties").json["statement"]
    assert [(each["path"], each["is_whole"]) for each in statement["log_dirs"]] == [(str(log_dir), False)]
