"""A finding, and the table of all kinds of findings. `docs/doctor.md` has the same table with explanations."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum, StrEnum
from pathlib import Path

from kcompact.exit_codes import ExitCode
from kcompact.readable import shell_word
from kcompact.values import dataclass


class Severity(StrEnum):
    """What a finding stops, the worst first."""

    RECORDS = "loses records"
    """A broker that starts deletes records, or serves the log without records that are missing."""
    BROKER = "stops a broker"
    """A broker does not start, takes the log directory offline, or does not serve the partition."""
    CLEANER = "stops its cleaner"
    """The broker's cleaner marks the partition as uncleanable, or never cleans it."""
    KCOMPACT = "stops kcompact"
    """`kcompact clean` refuses the partition, or changes nothing before something else is done."""
    NOTE = "note"
    """Nothing stops."""


class FindingKind(Enum):
    """A kind of finding: its name, its severity, the exit code of a command that finds it, the next command.

    In the next command `{dir}` is the directory that the finding is about, `{file}` its file.
    """

    # Loses records
    LOG_START_ABOVE_END = "log-start-above-end", Severity.RECORDS, ExitCode.CORRUPT, "cat {file}"
    MISSING_LOG = "missing-log", Severity.RECORDS, ExitCode.CORRUPT, "kcompact inspect {dir}"
    ONLY_COPY = "only-copy", Severity.RECORDS, ExitCode.RECOVERY_NEEDED, "cp -a {dir} BACKUP"
    OFFSET_GAP = "offset-gap", Severity.RECORDS, ExitCode.CORRUPT, "kcompact inspect {dir}"
    TORN_END = "torn-end", Severity.RECORDS, ExitCode.CORRUPT, "kcompact verify {dir}"
    LOST_END = "lost-end", Severity.RECORDS, ExitCode.CORRUPT, "cp -a {dir} BACKUP"
    HIDDEN_RECORDS = (
        "hidden-records",
        Severity.RECORDS,
        ExitCode.CORRUPT,
        "kcompact clean --rebuild-indexes --dry-run {dir}",
    )
    EARLY_DELETION = "early-deletion", Severity.RECORDS, ExitCode.CORRUPT, "kcompact verify {dir}"
    MISSING_TOPIC_ID = (
        "missing-topic-id",
        Severity.RECORDS,
        ExitCode.CORRUPT,
        "printf 'version: 0\\ntopic_id: {topic_id}' > {file}",
    )
    INTERNAL_POLICY = (
        "internal-policy",
        Severity.RECORDS,
        ExitCode.REFUSED,
        "kafka-configs.sh --bootstrap-server HOST:PORT --alter --entity-type topics --entity-name {topic} "
        "--add-config cleanup.policy=compact",
    )

    # Stops a broker
    LOCKED = "locked", Severity.BROKER, ExitCode.LOCKED, "ps -fp {pid}"
    UNREADABLE = "unreadable", Severity.BROKER, ExitCode.REFUSED, "ls -ld {file}"
    NO_ACCESS = "no-access", Severity.BROKER, ExitCode.REFUSED, "chown {owner} {file}"
    READ_ONLY = "read-only", Severity.BROKER, ExitCode.REFUSED, "findmnt -T {dir}"
    DISK_FULL = "disk-full", Severity.BROKER, ExitCode.NO_SPACE, "df -h {dir}"
    NO_META_PROPERTIES = (
        "no-meta-properties",
        Severity.BROKER,
        ExitCode.REFUSED,
        "kafka-storage.sh info -c server.properties",
    )
    BAD_META_PROPERTIES = "bad-meta-properties", Severity.BROKER, ExitCode.CORRUPT, "cat {file}"
    CLUSTER_IDS = "cluster-ids", Severity.BROKER, ExitCode.REFUSED, "cat {file}"
    NODE_IDS = "node-ids", Severity.BROKER, ExitCode.REFUSED, "cat {file}"
    DIRECTORY_IDS = "directory-ids", Severity.BROKER, ExitCode.REFUSED, "cat {file}"
    METADATA_LOGS = "metadata-logs", Severity.BROKER, ExitCode.REFUSED, "ls -l {file}"
    DUPLICATE_PARTITION = "duplicate-partition", Severity.BROKER, ExitCode.REFUSED, "kcompact inspect {dir}"
    BAD_CHECKPOINT = "bad-checkpoint", Severity.BROKER, ExitCode.CORRUPT, "cat {file}"
    BAD_TRANSACTION_INDEX = (
        "bad-transaction-index",
        Severity.BROKER,
        ExitCode.CORRUPT,
        "kcompact clean --rebuild-indexes --dry-run {dir}",
    )
    UNWRITABLE_INDEX = (
        "unwritable-index",
        Severity.BROKER,
        ExitCode.CORRUPT,
        "kcompact clean --rebuild-indexes --dry-run {dir}",
    )
    BAD_QUORUM_FILE = "bad-quorum-file", Severity.BROKER, ExitCode.CORRUPT, "ls -l {file}"
    OTHER_TOPIC = "other-topic", Severity.BROKER, ExitCode.REFUSED, "cat {dir}/partition.metadata"
    UNUSABLE_FUTURE = "unusable-future", Severity.BROKER, ExitCode.REFUSED, "kcompact inspect {dir}"
    UNLOADABLE_SEGMENT = "unloadable-segment", Severity.BROKER, ExitCode.CORRUPT, "kcompact verify {dir}"
    UNKNOWN_DIRECTORY = "unknown-directory", Severity.BROKER, ExitCode.REFUSED, "ls -la {dir}"
    UNKNOWN_FILE = "unknown-file", Severity.BROKER, ExitCode.REFUSED, "ls -la {file}"
    BAD_SETTING = "bad-setting", Severity.BROKER, ExitCode.USAGE, "kafka-storage.sh info -c server.properties"

    # Stops its cleaner
    UNCLEANABLE_BATCH = "uncleanable-batch", Severity.CLEANER, ExitCode.CORRUPT, "kcompact verify {dir}"
    CLEANER_ENDS = "cleaner-ends", Severity.CLEANER, ExitCode.CORRUPT, "cat {file}"
    CLEANER_DISABLED = "cleaner-disabled", Severity.CLEANER, ExitCode.REFUSED, "kcompact plan {dir}"
    NEVER_DIRTY_ENOUGH = (
        "never-dirty-enough",
        Severity.CLEANER,
        ExitCode.REFUSED,
        "kcompact clean --force --dry-run {dir}",
    )
    PAUSED_BY_MOVE = "paused-by-move", Severity.CLEANER, ExitCode.REFUSED, "kcompact plan --explain {dir}"
    OFFSET_MAP = "offset-map", Severity.CLEANER, ExitCode.REFUSED, "kcompact clean --dry-run {dir}"
    HANGING_TRANSACTION = (
        "hanging-transaction",
        Severity.CLEANER,
        ExitCode.REFUSED,
        "kafka-transactions.sh --bootstrap-server HOST:PORT find-hanging --topic {topic}",
    )

    # Stops kcompact
    MACHINE_CODE = "machine-code", Severity.KCOMPACT, ExitCode.REFUSED, "kcompact --version"
    RUNNING = "running", Severity.KCOMPACT, ExitCode.LOCKED, "kcompact plan {dir}"
    UNCLEAN_SHUTDOWN = (
        "unclean-shutdown",
        Severity.KCOMPACT,
        ExitCode.REFUSED,
        "kcompact clean --unclean --dry-run {dir}",
    )
    STAGING = "staging", Severity.KCOMPACT, ExitCode.RECOVERY_NEEDED, "kcompact recover {dir}"
    LEFTOVERS = "leftovers", Severity.KCOMPACT, ExitCode.RECOVERY_NEEDED, "kcompact recover --foreign {dir}"
    DAMAGED_BATCH = "damaged-batch", Severity.KCOMPACT, ExitCode.CORRUPT, "kcompact verify {dir}"
    LYING_INDEX = "lying-index", Severity.KCOMPACT, ExitCode.CORRUPT, "kcompact clean --rebuild-indexes --dry-run {dir}"
    BAD_SNAPSHOT = "bad-snapshot", Severity.KCOMPACT, ExitCode.CORRUPT, "kcompact verify {dir}"
    IGNORED_CHECKPOINT = "ignored-checkpoint", Severity.KCOMPACT, ExitCode.CORRUPT, "cat {file}"
    CHECKPOINT_ABOVE_END = "checkpoint-above-end", Severity.KCOMPACT, ExitCode.CORRUPT, "kcompact verify {dir}"
    POLICY_UNKNOWN = (
        "policy-unknown",
        Severity.KCOMPACT,
        ExitCode.REFUSED,
        "kcompact plan --config {topic}:cleanup.policy=compact {dir}",
    )
    NO_HIGH_WATERMARK = (
        "no-high-watermark",
        Severity.KCOMPACT,
        ExitCode.REFUSED,
        "kcompact plan --high-watermark leo {dir}",
    )
    STALE_REPLICA = "stale-replica", Severity.KCOMPACT, ExitCode.REFUSED, "cat {dir}/partition.metadata"
    REFUSED = "refused", Severity.KCOMPACT, ExitCode.REFUSED, "kcompact plan {dir}"

    # Notes
    DELETE_DIRECTORY = "delete-directory", Severity.NOTE, 0, ""
    MISSING_LOG_DIR = "missing-log-dir", Severity.NOTE, 0, "ls -ld {dir}"
    FUTURE_DIRECTORY = "future-directory", Severity.NOTE, 0, ""
    STRAY_DIRECTORY = "stray-directory", Severity.NOTE, 0, "du -sh {dir}"
    FOREIGN_NAME = "foreign-name", Severity.NOTE, 0, "ls -la {file}"
    DELETED_FILES = "deleted-files", Severity.NOTE, 0, ""
    MISSING_INDEX = "missing-index", Severity.NOTE, 0, "kcompact verify {dir}"
    STRAY_REPLICA = "stray-replica", Severity.NOTE, 0, "kcompact plan {dir}"
    TOPIC_IDS = "topic-ids", Severity.NOTE, 0, "cat {file}"
    UNKNOWN_ENTRY = "unknown-entry", Severity.NOTE, 0, "cat {file}"
    CLEANER_CHECKPOINT = "cleaner-checkpoint", Severity.NOTE, 0, "kcompact plan {dir}"
    FUTURE_TIME = "future-time", Severity.NOTE, 0, "date -u"
    LITTLE_SPACE = "little-space", Severity.NOTE, 0, "kcompact clean --dry-run {dir}"
    ASSUMED_SETTINGS = "assumed-settings", Severity.NOTE, 0, "kcompact plan --explain {dir}"
    BROKER_CONFIG = "broker-config", Severity.NOTE, 0, ""
    BROKER_RELEASE = "broker-release", Severity.NOTE, 0, ""
    LONG_OUTAGE = "long-outage", Severity.NOTE, 0, "kcompact compare --before-start {dir} OTHER_REPLICA"
    UNUSED_SETTING = "unused-setting", Severity.NOTE, 0, ""
    LAG_ORDER = "lag-order", Severity.NOTE, 0, "kcompact plan {dir}"
    SLOW_CODEC = "slow-codec", Severity.NOTE, 0, ""
    RETENTION_FIRST = "retention-first", Severity.NOTE, 0, "kcompact plan {dir}"

    def __init__(self, word: str, severity: Severity, exit_code: int, next_command: str) -> None:
        self.word = word
        self.severity = severity
        self.exit_code = exit_code
        self.next_command = next_command


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A fact about a partition or a log directory, with the command to run next.

    `file` is the path of the file, if it is about one; `position` in bytes of the file, `offset` that of a record.
    `broker_says` is what a broker's log says about it, empty if nothing. `owner`, `pid`, `topic` and `topic_id` fill
    the next command. `size_bytes` is that of a directory.
    """

    kind: FindingKind
    directory: Path
    problem: str
    file: Path | None = None
    position: int | None = None
    offset: int | None = None
    size_bytes: int | None = None
    broker_says: str = ""
    owner: str = ""
    pid: int | None = None
    topic: str = ""
    topic_id: str = ""

    @property
    def severity(self) -> Severity:
        """What the finding stops."""
        return self.kind.severity

    @property
    def stops(self) -> bool:
        """Whether it stops anything."""
        return self.severity is not Severity.NOTE

    @property
    def path(self) -> Path:
        """The file, or the directory if the finding is not about a file."""
        return self.file or self.directory

    @property
    def next_command(self) -> str:
        """The command to run next, empty if there is nothing to do."""
        return self.kind.next_command.format(
            dir=shell_word(self.directory),
            file=shell_word(self.path),
            owner=shell_word(self.owner or "KAFKA_USER"),
            pid=self.pid or "PID",
            topic=shell_word(self.topic or "TOPIC"),
            topic_id=self.topic_id or "TOPIC_ID",
        )


def worst_first(found: Iterable[Finding]) -> list[Finding]:
    """Return the findings by severity and kind, each once. Findings of one kind keep their order."""
    severities, kinds = list(Severity), list(FindingKind)
    return sorted(dict.fromkeys(found), key=lambda each: (severities.index(each.severity), kinds.index(each.kind)))
