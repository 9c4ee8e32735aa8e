"""Runs the case files of `cases/plan` and `cases/clean`; `--rewrite` writes what happens into them.

A file holds stories in paragraphs: `log` starts one, `append` adds to the log, `at` changes settings (`now=11:00`);
after them `plan` or `clean`, `----`, and what is expected. A `clean` changes the log. `tests/support/log_dsl.py`
parses it.

    clean [keep-tombstones] [force] [dry-run] [replica-end=OFFSET] [stats] [times] [files]
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kcompact.cleaner import partition as cleaner
from kcompact.cleaner.cleaning import CleanOptions
from kcompact.cleaner.outcome import CleanResult, Status
from kcompact.engine.in_process import InProcess
from kcompact.errors import KcompactError
from kcompact.format.checkpoint import CLEANER_OFFSET_CHECKPOINT, parse_offset_checkpoint
from kcompact.format.names import snapshot_name
from kcompact.log.directory import PartitionLog
from kcompact.log.lock import log_dir_lock
from kcompact.plan.clean_plan import CleanPlan
from kcompact.plan.partition import plan_partition
from kcompact.plan.replicas import OtherReplica
from kcompact.plan.verdict import Reason
from tests.support import log_dsl, log_writer
from tests.support.log_reader import read_aborted, read_segments
from tests.support.log_writer import DEFAULT_TIME, LogSpec
from tests.support.releases import likeness_of, release_of

CASES = Path(__file__).parents[1] / "cases"
FILES = sorted([*CASES.glob("plan/*.txt"), *CASES.glob("clean/*.txt")])


class Scene:
    """The log of a story and the directory it lies in."""

    def __init__(self, scratch: Path) -> None:
        self.scratch = scratch
        self.spec = LogSpec(segments=())
        self.count = 0

    @property
    def log_dir(self) -> Path:
        return self.scratch / f"logs-{self.count}"

    @property
    def directory(self) -> Path:
        return self.log_dir / self.spec.name

    def write(self, spec: LogSpec) -> None:
        """Make the directory anew."""
        self.count += 1
        self.spec = spec
        log_writer.write(spec, self.log_dir)

    def run(self, paragraph: str) -> str | None:
        """Do what a paragraph says; return its output if it has one."""
        verb, *words = paragraph.splitlines()[0].split()
        if verb == "log":
            self.write(log_dsl.parse(paragraph))
        elif verb in ("append", "at"):
            self.write(log_dsl.parse(paragraph, base=self.current()))
        elif verb == "plan":
            return plan_text(self.plan(words), words)
        else:
            assert verb == "clean", paragraph
            return self.clean(words)
        return None

    def current(self) -> LogSpec:
        """Return the log as it is now."""
        checkpoint = self.log_dir / CLEANER_OFFSET_CHECKPOINT
        offsets = parse_offset_checkpoint(checkpoint.read_bytes(), file="") if checkpoint.exists() else {}
        bases = {segment.base_offset for segment in self.spec.segments}
        snapshots = {
            offset: entries
            for offset, entries in self.spec.snapshots.items()
            if offset not in bases or (self.directory / snapshot_name(offset)).exists()
        }
        return replace(
            self.spec,
            segments=read_segments(self.directory),
            checkpoint=offsets.get(self.spec.topic_partition),
            snapshots=snapshots,
            aborted=read_aborted(self.directory),
        )

    def plan(self, words: list[str]) -> CleanPlan:
        ends = [int(word.removeprefix("replica-end=")) for word in words if word.startswith("replica-end=")]
        replicas = [OtherReplica(path=Path("orders-0"), end_offset=end, fetches_from_offset=end) for end in ends]
        plan = plan_partition(
            self.directory,
            self.spec.config if "no-policy" not in words else replace(self.spec.config, cleanup_policy=None),
            now_ms=self.spec.now_ms,
            force="force" in words,
            include_internal="include-internal" in words,
        )
        return replace(plan, replicas=tuple(replicas))

    def clean(self, words: list[str]) -> str:
        options = CleanOptions(keep_tombstones="keep-tombstones" in words, dry_run="dry-run" in words)
        try:
            plan = self.plan(words)
            with log_dir_lock(self.log_dir) as lock:
                result = cleaner.clean_partition(plan, InProcess(), lock=lock, options=options)
        except KcompactError as problem:
            lines = [f"{type(problem).__name__}: {str(problem).splitlines()[0]}".replace(f"{self.log_dir}/", "")]
            return "\n".join([*lines, *self.state([])])
        require_right_indexes(self.directory, plan)
        status = [] if result.status is Status.CLEANED else [f"{result.status}: {plan.reason}"]
        stats = stats_lines(result) if "stats" in words else []
        return "\n".join([*status, *self.state(words), *stats, *held_back_lines(result)])

    def state(self, words: list[str]) -> list[str]:
        """Return the lines of the log and its checkpoint; with `files` the other names, with `times` the mtimes."""
        lines = []
        for segment in read_segments(self.directory):
            time = f" ; mtime={log_dsl.time_text(segment.modified_ms)}" if "times" in words else ""
            lines.append(log_dsl.segment_text(segment) + time)
        for base_offset, entries in read_aborted(self.directory).items():
            lines += [log_dsl.aborted_text(base_offset, entry) for entry in entries]
        checkpoint = self.log_dir / CLEANER_OFFSET_CHECKPOINT
        if checkpoint.exists():
            offsets = parse_offset_checkpoint(checkpoint.read_bytes(), file="")
            lines += [f"checkpoint {offset}" for offset in offsets.values()]
        if "files" in words:
            names = (re.sub(r"^0+(?=\d)", "", path.name) for path in sorted(self.directory.iterdir()))
            lines.append("files " + " ".join(names))
        return lines


def require_right_indexes(directory: Path, plan: CleanPlan) -> None:
    for segment in read_segments(directory):
        expected = log_writer.indexes_of(segment, interval_bytes=plan.config.index_interval_bytes)
        for suffix, data in zip((".index", ".timeindex"), expected, strict=True):
            assert (directory / f"{segment.base_offset:020d}{suffix}").read_bytes() == data


def plan_text(plan: CleanPlan, words: list[str]) -> str:
    log: PartitionLog = plan.log
    reset = f" (reset from {log.checkpoint_offset})" if plan.checkpoint_reset else ""
    lines = [
        f"{plan.reason}: {plan.explanation}",
        f"dirty [{plan.first_dirty_offset}, {plan.first_uncleanable_offset}) bound by {plan.bound}{reset}",
        f"clean {plan.clean_bytes} bytes, cleanable {plan.cleanable_bytes} bytes, ratio {plan.cleanable_ratio:.4f}",
    ]
    if plan.max_compaction_delay_ms:
        lines.append(f"max compaction delay {plan.max_compaction_delay_ms} ms")
    if plan.groups:
        groups = (" ".join(str(segment.base_offset) for segment in group) for group in plan.groups)
        lines.append(f"groups {' '.join(f'[{group}]' for group in groups)}")
    if "roles" in words:
        lines.append("roles " + " ".join(f"{s.base_offset}={plan.role_of(s)}" for s in log.segments))
    return "\n".join(lines).replace(str(log.directory.parent) + "/", "")


def stats_lines(result: CleanResult) -> list[str]:
    stats = result.stats
    return [
        f"read {stats.bytes_read} bytes, {stats.messages_read} messages; "
        f"wrote {stats.bytes_written} bytes, {stats.messages_written} messages",
        f"map {stats.map_keys} keys from {stats.map_bytes_read} bytes; invalid {stats.invalid_messages}",
    ]


def held_back_lines(result: CleanResult) -> list[str]:
    found, start_offset = result.held_back, result.plan.held_back_from_offset
    if found is None or not result.plan.replicas:
        return []
    start = "nowhere" if start_offset is None else start_offset
    return [f"held back from {start}: tombstones {found.tombstones}, markers {found.markers}"]


# --- The files ---------------------------------------------------------------------------------------------


def paragraphs(text: str) -> list[str]:
    return re.split(r"\n{2,}", text.strip("\n"))


def uncommented(paragraph: str) -> str:
    lines = (re.sub(r"(^|\s+)#.*$", "", line) for line in paragraph.splitlines())
    return "\n".join(line for line in lines if line.strip())


def outcome(text: str, scratch: Path) -> str:
    """Return the file as it should be: every expected output is what really came out."""
    scene = Scene(scratch)
    written = []
    for paragraph in paragraphs(text):
        command, separator, _ = paragraph.partition("\n----")
        body = uncommented(command)
        output = scene.run(body) if body else None
        assert output is not None or not separator, f"this has no output: {paragraph}"
        written.append(command if output is None else f"{command}\n----\n{output}")
    return "\n\n".join(written) + "\n"


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_case_file(path: Path, tmp_path: Path, rewrite: bool) -> None:
    text = path.read_text()
    actual = outcome(text, tmp_path)
    if rewrite:
        path.write_text(actual)
    else:
        assert actual == text


def test_every_file_names_its_rules() -> None:
    for path in FILES:
        assert path.read_text().startswith("# "), path
        for paragraph in paragraphs(path.read_text()):
            assert paragraph.startswith("#") or not paragraph.startswith("log"), f"{path.name}: {paragraph}"


# --- The language --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        "0:",
        "0: a=1@0 b=~@1",
        "5: [a=1@5 b=2@6](zstd) c=3@9",
        "5: [a=1@6^10:00 b=~@8^1d00:00:01.250]@5..12(gzip horizon=11:00)",
        '0: ""=""@0{h=x i=~} ~=1@1 ~=~@2',
        '0: "a b"="\\"\\xff"@0^-1',
        "0: a=*100@0(lz4 append pid=7 epoch=1 seq=3 txn leader=4) commit@1(pid=7 epoch=1) abort@2(pid=8)",
        "0: []@0..3(pid=7 seq=3) []@4..4(max=10:00) []@5..5(pid=1 control)",
        "0: [a=1@0^10:00 b=2@1^11:00] [c=3@2^10:00](append)",
    ],
)
def test_text_to_directory_and_back(line: str, tmp_path: Path) -> None:
    directory = log_writer.write(log_dsl.parse(f"log\n{line}"), tmp_path)
    assert log_dsl.text_of(read_segments(directory)) == line.replace("[c=3@2^10:00]", "c=3@2^10:00")


def test_defaults_are_filled_in(tmp_path: Path) -> None:
    spec = log_dsl.parse("log now=1d10:00 delete.retention.ms=1h checkpoint=3\n3: a=1 [b=2 c=~](bytes=100)\n9:")
    assert spec.config.delete_retention_ms == 3_600_000
    assert spec.now_ms == DEFAULT_TIME + 25 * 3_600_000
    assert [len(data) for data in spec.segments[0].batches] == [70, 100]
    directory = log_writer.write(spec, tmp_path)
    assert log_dsl.text_of(read_segments(directory)) == "3: a=1@3 [b=2@4 c=*22@5]\n9:"


# --- What Kafka's own cleaner says to the same cases -----------------------------------------------------------


class Compared(Scene):
    """A story that Kafka's own cleaner and kcompact both go through, each on its own copy of every directory."""

    def __init__(self, scratch: Path, kafka: Any) -> None:
        super().__init__(scratch)
        self.kafka = kafka
        self.compared = 0
        self.copies = 0

    def write(self, spec: LogSpec) -> None:
        """Make the directory anew, whatever release the story is about: this Kafka has one."""
        super().write(replace(spec, release=release_of(self.kafka.version)))

    def clean(self, words: list[str]) -> str:
        from tests.support.compare import differences

        self.copies += 1
        theirs = self.scratch / f"theirs-{self.copies}"
        shutil.copytree(self.log_dir, theirs, copy_function=shutil.copy2)
        output = super().clean(words)
        if self.is_compared(words):
            self.kafka.clean(theirs, **self.options())
            lines = differences(
                self.log_dir,
                theirs,
                index_interval_bytes=self.spec.config.index_interval_bytes,
                same_indexes=likeness_of(self.kafka.version).indexes,
            )
            found = [line for line in lines if CLEANED.match(line)]
            assert found == [], log_dsl.text_of(read_segments(theirs / self.spec.name))
            self.compared += 1
        return output

    def plan(self, words: list[str]) -> CleanPlan:
        plan = super().plan(words)
        is_ours = plan.reason in (Reason.INTERNAL, Reason.UNCLEAN_SHUTDOWN)
        if self.is_compared(words) and not is_ours:
            reply = self.kafka.plan(self.log_dir, **self.options())
            for theirs in reply["partitions"]:
                for field in PLANNED if theirs["compacted"] else ():
                    assert getattr(plan, field) == theirs[field], (field, self.spec)
                if plan.eligible:
                    assert [[segment.base_offset for segment in group] for group in plan.groups] == theirs["groups"]
                self.compared += 1
        return plan

    def is_compared(self, words: list[str]) -> bool:
        """Return whether Kafka does this too."""
        is_held_back = any(word.startswith("replica-end=") for word in words)
        return not OURS_ALONE & {*words} and not is_held_back and not self.spec.lone

    def options(self) -> dict[str, Any]:
        """Return what Kafka is told."""
        settings = {"cleanup.policy": "compact", **self.spec.settings}
        return {
            "config": settings,
            "now_ms": self.spec.now_ms,
            "high_watermark": self.spec.high_watermark,
            "producer_id_expiration_ms": self.spec.config.producer_id_expiration_ms,
        }


PLANNED = (
    *("first_dirty_offset", "first_uncleanable_offset", "clean_bytes", "cleanable_bytes", "last_stable_offset"),
    *("need_compaction_now", "max_compaction_delay_ms", "eligible"),
)
CLEANED = re.compile(r"[^:]*(\.log|index|cleaner-offset-checkpoint): ")
"""What a cleaner writes; the rest is what the broker around Kafka's writes when it stops."""
OURS_ALONE = {"force", "keep-tombstones", "dry-run", "no-policy", "include-internal"}


@pytest.fixture(scope="module")
def kafka(request: pytest.FixtureRequest) -> Iterator[Any]:
    from tests.oracle.driver import NEWEST
    from tests.oracle.real_kafka import RealKafka

    version = request.config.getoption("--kafka") or NEWEST
    if not likeness_of(version).files:
        pytest.skip(f"the files of {version} differ: python -m tests.oracle.run compares what is in them")
    with RealKafka(version) as running:
        yield running


@pytest.mark.oracle
@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_kafka_does_the_same(path: Path, tmp_path: Path, kafka: Any) -> None:
    scene = Compared(tmp_path, kafka)
    for paragraph in paragraphs(path.read_text()):
        body = uncommented(paragraph.partition("\n----")[0])
        if body:
            scene.run(body)
    assert scene.compared
