"""Every remark for the user that is no error: notes on a run or a partition, and what `doctor` finds.

A remark has a code and a sentence; one that `doctor` reports also says what it stops, with which exit code, and what to
type next. Code decides by the remark; the sentence is made only when it is shown.
"""

from __future__ import annotations

from collections.abc import Hashable
from enum import StrEnum

from kcompact.exit_codes import ExitCode
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


_BY_CHECK = "{problem}"


class RemarkCode(StrEnum):
    """What a remark is about. The values are part of the JSON output; `docs/doctor.md` explains what `doctor` reports.

    A row has the sentence, in which `{names}` are facts: `{problem}` is what a check says. If `doctor` reports it, the
    row has its severity, the exit code and the next command, in which `{dir}` is the directory that the finding is
    about and `{file}` its file.
    """

    # Loses records

    LOG_START_ABOVE_END = ("log-start-above-end", "{problem}", Severity.RECORDS, ExitCode.CORRUPT, "cat {file}")
    MISSING_LOG = ("missing-log", "{problem}", Severity.RECORDS, ExitCode.CORRUPT, "kcompact inspect {dir}")
    ONLY_COPY = ("only-copy", "{problem}", Severity.RECORDS, ExitCode.RECOVERY_NEEDED, "cp -a {dir} BACKUP")
    OFFSET_GAP = ("offset-gap", "{problem}", Severity.RECORDS, ExitCode.CORRUPT, "kcompact inspect {dir}")
    TORN_END = (
        "torn-end",
        "{log} has a torn end at position {position} ({problem}): the broker cuts off {size_bytes:,} bytes, from "
        "offset {offset} on{deleted}",
        Severity.RECORDS,
        ExitCode.CORRUPT,
        "kcompact verify {dir}",
    )
    LOST_END = (
        "lost-end",
        "{index} {problem}. If the log has lost its end, this file is the only proof, and a rebuilt one forgets it: "
        "copy the directory first",
        Severity.RECORDS,
        ExitCode.CORRUPT,
        "cp -a {dir} BACKUP",
    )
    HIDDEN_RECORDS = (
        "hidden-records",
        "{problem}",
        Severity.RECORDS,
        ExitCode.CORRUPT,
        "kcompact clean --rebuild-indexes --dry-run {dir}",
    )
    EARLY_DELETION = ("early-deletion", "{problem}", Severity.RECORDS, ExitCode.CORRUPT, "kcompact verify {dir}")
    MISSING_TOPIC_ID = (
        "missing-topic-id",
        "partition.metadata is missing, and the cluster metadata has the partition on this broker, with the topic id "
        "{topic_id}: a broker that starts moves the directory aside as stray, and begins an empty one",
        Severity.RECORDS,
        ExitCode.CORRUPT,
        "printf 'version: 0\\ntopic_id: {topic_id}' > {file}",
    )
    INTERNAL_POLICY = (
        "internal-policy",
        "{problem}",
        Severity.RECORDS,
        ExitCode.REFUSED,
        "kafka-configs.sh --bootstrap-server HOST:PORT --alter --entity-type topics --entity-name {topic} "
        "--add-config cleanup.policy=compact",
    )

    # Stops a broker

    LOCKED = ("locked", "{problem}", Severity.BROKER, ExitCode.LOCKED, "ps -fp {pid}")
    UNREADABLE = ("unreadable", "{problem}", Severity.BROKER, ExitCode.REFUSED, "ls -ld {file}")
    NO_ACCESS = ("no-access", "{problem}", Severity.BROKER, ExitCode.REFUSED, "chown {owner} {file}")
    READ_ONLY = ("read-only", "{problem}", Severity.BROKER, ExitCode.REFUSED, "findmnt -T {dir}")
    DISK_FULL = ("disk-full", "{problem}", Severity.BROKER, ExitCode.NO_SPACE, "df -h {dir}")
    NO_META_PROPERTIES = (
        "no-meta-properties",
        "{problem}",
        Severity.BROKER,
        ExitCode.REFUSED,
        "kafka-storage.sh info -c server.properties",
    )
    BAD_META_PROPERTIES = ("bad-meta-properties", "{problem}", Severity.BROKER, ExitCode.CORRUPT, "cat {file}")
    CLUSTER_IDS = ("cluster-ids", "{problem}", Severity.BROKER, ExitCode.REFUSED, "cat {file}")
    NODE_IDS = ("node-ids", "{problem}", Severity.BROKER, ExitCode.REFUSED, "cat {file}")
    DIRECTORY_IDS = ("directory-ids", "{problem}", Severity.BROKER, ExitCode.REFUSED, "cat {file}")
    METADATA_LOGS = ("metadata-logs", "{problem}", Severity.BROKER, ExitCode.REFUSED, "ls -l {file}")
    DUPLICATE_PARTITION = (
        "duplicate-partition",
        "{problem}",
        Severity.BROKER,
        ExitCode.REFUSED,
        "kcompact inspect {dir}",
    )
    BAD_CHECKPOINT = ("bad-checkpoint", "{problem}", Severity.BROKER, ExitCode.CORRUPT, "cat {file}")
    BAD_TRANSACTION_INDEX = (
        "bad-transaction-index",
        "{problem}",
        Severity.BROKER,
        ExitCode.CORRUPT,
        "kcompact clean --rebuild-indexes --dry-run {dir}",
    )
    UNWRITABLE_INDEX = (
        "unwritable-index",
        "{problem}",
        Severity.BROKER,
        ExitCode.CORRUPT,
        "kcompact clean --rebuild-indexes --dry-run {dir}",
    )
    BAD_QUORUM_FILE = ("bad-quorum-file", "{problem}", Severity.BROKER, ExitCode.CORRUPT, "ls -l {file}")
    OTHER_TOPIC = ("other-topic", "{problem}", Severity.BROKER, ExitCode.REFUSED, "cat {dir}/partition.metadata")
    UNUSABLE_FUTURE = ("unusable-future", "{problem}", Severity.BROKER, ExitCode.REFUSED, "kcompact inspect {dir}")
    UNLOADABLE_SEGMENT = ("unloadable-segment", "{problem}", Severity.BROKER, ExitCode.CORRUPT, "kcompact verify {dir}")
    UNKNOWN_DIRECTORY = ("unknown-directory", "{problem}", Severity.BROKER, ExitCode.REFUSED, "ls -la {dir}")
    UNKNOWN_FILE = ("unknown-file", "{problem}", Severity.BROKER, ExitCode.REFUSED, "ls -la {file}")
    BAD_SETTING = (
        "bad-setting",
        "{problem}",
        Severity.BROKER,
        ExitCode.USAGE,
        "kafka-storage.sh info -c server.properties",
    )

    # Stops its cleaner

    UNCLEANABLE_BATCH = ("uncleanable-batch", "{problem}", Severity.CLEANER, ExitCode.CORRUPT, "kcompact verify {dir}")
    CLEANER_ENDS = ("cleaner-ends", "{problem}", Severity.CLEANER, ExitCode.CORRUPT, "cat {file}")
    CLEANER_DISABLED = (
        "cleaner-disabled",
        "the broker's own cleaner is switched off: {setting}=false",
        Severity.CLEANER,
        ExitCode.REFUSED,
        "kcompact plan {dir}",
    )
    NEVER_DIRTY_ENOUGH = (
        "never-dirty-enough",
        "{problem}",
        Severity.CLEANER,
        ExitCode.REFUSED,
        "kcompact clean --force --dry-run {dir}",
    )
    PAUSED_BY_MOVE = (
        "paused-by-move",
        "{problem}",
        Severity.CLEANER,
        ExitCode.REFUSED,
        "kcompact plan --explain {dir}",
    )
    OFFSET_MAP = ("offset-map", "{problem}", Severity.CLEANER, ExitCode.REFUSED, "kcompact clean --dry-run {dir}")
    HANGING_TRANSACTION = (
        "hanging-transaction",
        "{problem}",
        Severity.CLEANER,
        ExitCode.REFUSED,
        "kafka-transactions.sh --bootstrap-server HOST:PORT find-hanging --topic {topic}",
    )

    # Stops kcompact

    MACHINE_CODE = ("machine-code", "{problem}", Severity.KCOMPACT, ExitCode.REFUSED, "kcompact --version")
    RUNNING = ("running", "{problem}", Severity.KCOMPACT, ExitCode.LOCKED, "kcompact plan {dir}")
    UNCLEAN_SHUTDOWN = (
        "unclean-shutdown",
        "{problem}",
        Severity.KCOMPACT,
        ExitCode.REFUSED,
        "kcompact clean --unclean --dry-run {dir}",
    )
    STAGING = ("staging", "{problem}", Severity.KCOMPACT, ExitCode.RECOVERY_NEEDED, "kcompact recover {dir}")
    LEFTOVERS = (
        "leftovers",
        "{problem}",
        Severity.KCOMPACT,
        ExitCode.RECOVERY_NEEDED,
        "kcompact recover --foreign {dir}",
    )
    DAMAGED_BATCH = ("damaged-batch", "{problem}", Severity.KCOMPACT, ExitCode.CORRUPT, "kcompact verify {dir}")
    LYING_INDEX = (
        "lying-index",
        "{problem}",
        Severity.KCOMPACT,
        ExitCode.CORRUPT,
        "kcompact clean --rebuild-indexes --dry-run {dir}",
    )
    BAD_SNAPSHOT = ("bad-snapshot", "{problem}", Severity.KCOMPACT, ExitCode.CORRUPT, "kcompact verify {dir}")
    IGNORED_CHECKPOINT = ("ignored-checkpoint", "{problem}", Severity.KCOMPACT, ExitCode.CORRUPT, "cat {file}")
    CHECKPOINT_ABOVE_END = (
        "checkpoint-above-end",
        "{problem}",
        Severity.KCOMPACT,
        ExitCode.CORRUPT,
        "kcompact verify {dir}",
    )
    POLICY_UNKNOWN = (
        "policy-unknown",
        "{problem}",
        Severity.KCOMPACT,
        ExitCode.REFUSED,
        "kcompact plan --config {topic}:cleanup.policy=compact {dir}",
    )
    NO_HIGH_WATERMARK = (
        "no-high-watermark",
        "replication-offset-checkpoint has no entry for this partition, so no record counts as replicated; "
        "pass --high-watermark leo to count the whole log as replicated",
        Severity.KCOMPACT,
        ExitCode.REFUSED,
        "kcompact plan --high-watermark leo {dir}",
    )
    STALE_REPLICA = ("stale-replica", "{problem}", Severity.KCOMPACT, ExitCode.REFUSED, "cat {dir}/partition.metadata")
    REFUSED = ("refused", "{problem}", Severity.KCOMPACT, ExitCode.REFUSED, "kcompact plan {dir}")

    # Notes

    DELETE_DIRECTORY = ("delete-directory", "{problem}", Severity.NOTE)
    MISSING_LOG_DIR = ("missing-log-dir", "{problem}", Severity.NOTE, 0, "ls -ld {dir}")
    FUTURE_DIRECTORY = ("future-directory", "{problem}", Severity.NOTE)
    STRAY_DIRECTORY = ("stray-directory", "{problem}", Severity.NOTE, 0, "du -sh {dir}")
    FOREIGN_NAME = ("foreign-name", "{problem}", Severity.NOTE, 0, "ls -la {file}")
    DELETED_FILES = ("deleted-files", "{problem}", Severity.NOTE)
    MISSING_INDEX = (
        "missing-index",
        "{log} has no {suffix} beside it; the plan uses one built from its batches",
        Severity.NOTE,
        0,
        "kcompact verify {dir}",
    )
    STRAY_REPLICA = (
        "stray-replica",
        "{why}: a broker would move the directory aside as stray",
        Severity.NOTE,
        0,
        "kcompact plan {dir}",
    )
    TOPIC_IDS = ("topic-ids", "{problem}", Severity.NOTE, 0, "cat {file}")
    UNKNOWN_ENTRY = ("unknown-entry", "{problem}", Severity.NOTE, 0, "cat {file}")
    CLEANER_CHECKPOINT = ("cleaner-checkpoint", "{problem}", Severity.NOTE, 0, "kcompact plan {dir}")
    FUTURE_TIME = ("future-time", "{problem}", Severity.NOTE, 0, "date -u")
    LITTLE_SPACE = ("little-space", "{problem}", Severity.NOTE, 0, "kcompact clean --dry-run {dir}")
    ASSUMED_SETTINGS = (
        "assumed-settings",
        "{why}: Kafka's defaults are assumed, and decide here, for {names}; pass {option}{retention}",
        Severity.NOTE,
        0,
        "kcompact plan --explain {dir}",
    )
    BROKER_CONFIG = (
        "broker-config",
        "the broker's static settings are those of {where}: its log.dirs names {log_dirs}",
        Severity.NOTE,
    )
    BROKER_RELEASE = ("broker-release", "{problem}", Severity.NOTE)
    LONG_OUTAGE = ("long-outage", "{problem}", Severity.NOTE, 0, "kcompact compare --before-start {dir} OTHER_REPLICA")
    UNUSED_SETTING = ("unused-setting", "{setting} has no effect: {why}", Severity.NOTE)
    LAG_ORDER = ("lag-order", "{problem}", Severity.NOTE, 0, "kcompact plan {dir}")
    SLOW_CODEC = ("slow-codec", "{problem}", Severity.NOTE)
    RETENTION_FIRST = ("retention-first", "{problem}", Severity.NOTE, 0, "kcompact plan {dir}")

    # Notes only

    # The files of a partition

    STAGING_OF_ANOTHER_USER = (
        "staging-of-another-user",
        "{name} is left of a run of another user, such as root; the log does not need it, and `kcompact recover` as "
        "that user removes it",
    )
    ORPHAN_INDEX = ("orphan-index", "{name} has no .log beside it; a broker would delete it")
    MORE_ORPHAN_INDEXES = ("more-orphan-indexes", "and {count:,} more indexes have no .log beside them")
    INCOMPLETE_BATCH = (
        "incomplete-batch",
        "{log} ends with {size_bytes:,} bytes of an incomplete batch, which the running broker is probably writing; "
        "they do not count",
    )
    RECOVERED_AT_START = (
        "recovered-at-start",
        "the broker was not shut down cleanly: when it starts it reads {segments} again, from offset {offset} on; "
        "nothing from there on is cleaned",
    )
    COMPLETE_COPY = (
        "complete-copy",
        "the parent directory has no checkpoint and no meta.properties: the partition counts as a complete copy",
    )
    UNFINISHED_UPLOAD = (
        "unfinished-upload",
        "{address} has {objects}, {size}, of an upload without a manifest, which count as nothing; if no kcompact is "
        "writing there now, remove them: {command}",
    )
    ODD_KEYS = (
        "odd-keys",
        "{keys} in {file} {has} {what} ({line} {lines}), and {has} it in what is searched for; if that is not meant, "
        "mend the file",
    )

    # The high watermark

    NO_HIGH_WATERMARKS = ("no-high-watermarks", "no replication-offset-checkpoint: high watermark taken as the log end")
    NO_QUORUM_HIGH_WATERMARK = (
        "no-quorum-high-watermark",
        "a KRaft quorum keeps no high watermark on disk, so all records count as replicated; the last ones may not be",
    )

    # The settings of a topic, and who says so

    OTHER_TOPIC_ID = ("other-topic-id", "the topic is not in the cluster metadata: its topic id is that of another")
    UNKNOWN_TO_CLUSTER = ("unknown-to-cluster", "{address} does not have this topic")
    HIDDEN_SETTINGS = ("hidden-settings", "{address} does not let this user read the settings of this topic")
    BROKER_NOT_ASKED = (
        "broker-not-asked",
        "{why}: its own settings are taken from its metadata log and its server.properties",
    )
    OTHER_BROKER = (
        "other-broker",
        "{file} has the node id {node_id}, and meta.properties has {stored_id}: its settings are those of another "
        "broker",
    )
    OLDER_RELEASE = (
        "older-release",
        "the cleaners of Kafka 2.8 and 3.0 can lose records, so they are not imitated: the rules of Kafka {rules} hold",
    )
    UNKNOWN_PATCH_RELEASE = (
        "unknown-patch-release",
        "an empty last batch stays, by the rules of Kafka {repaired}; the broker may be older and drop it: "
        "--kafka-release VERSION names its version",
    )
    METADATA_NOT_USED = ("metadata-not-used", "{name} is not used: {problem}")
    UNKNOWN_METADATA_RECORDS = (
        "unknown-metadata-records",
        "the metadata log has {records} of a type or version that no known release of Kafka has, and that decides "
        "nothing; the first: {first}",
    )
    OPEN_METADATA_TRANSACTION = (
        "open-metadata-transaction",
        "the metadata log ends inside the transaction of offset {offset}, which is ignored",
    )
    TORN_METADATA_LOG = (
        "torn-metadata-log",
        "{log} of the metadata log ends inside the batch at position {position}, which is ignored",
    )
    UNKNOWN_CLIENT_SETTING = (
        "unknown-client-setting",
        "{where}: Kafka's admin client has no such setting, so it has no effect: {names}",
    )
    READABLE_PASSWORD = (
        "readable-password",
        "{file} has a password, and every user of this machine can read it: chmod 600 {word}",
    )
    UNKNOWN_SETTINGS = (
        "unknown-settings",
        "no source has the settings that {topics} may have of {own}: {why}{decided}{assumed}{retention}; pass "
        "--topic-configs FILE",
    )
    OVERRULED_SETTING = ("overruled-setting", "{setting} is for topics without a value of their own: not for {topics}")
    DECIDED_FOR_ALL = ("decided-for-all", "{setting} decides for {topics}, without a value of {own}")
    MISSING_LOG_DIRS = (
        "missing-log-dirs",
        "the broker of {log_dir} has {count} that {was} not found: {names}; whether partitions are being moved there "
        "is not known",
    )
    COMPACTED_BEFORE = (
        "compacted-before",
        "{topics} counts as {policy}, and has {trace}: a cleaner has compacted it before; check its cleanup.policy",
    )

    # The time

    CLOCK_BEHIND_FILES = (
        "clock-behind-files",
        "the clock says {now}, but the newest segment of {name} was written at {written}: if the clock is wrong, every "
        "age is wrong; --now sets the time",
    )
    NOW_BEFORE_RECORDS = (
        "now-before-records",
        "--now is {now}, but the newest segment of {name} has the time {newest}: segments count as too young, and new "
        "delete horizons end too early",
    )
    NOW_AFTER_CLOCK = (
        "now-after-clock",
        "--now is {now}, more than a day after the clock's {clock}: tombstones and segments can be deleted too early",
    )

    # Who else uses the files

    BROKER_RUNNING = (
        "broker-running",
        "a broker is running on {log_dir}, {holder} holds its lock: each log ends with its last whole batch, and the "
        "high watermark is that of the checkpoint, which the broker writes every few seconds",
    )
    LOCK_HELD = ("lock-held", "{problem}; the cleaning itself has to wait until it ends")
    OPEN_IN_BROKER = (
        "open-in-broker",
        "{command} (process {pid}) has files of {names} open as a broker has; the cleaning itself has to wait until "
        "it ends",
    )
    READ_BY_PROCESS = (
        "read-by-process",
        "{command} (process {pid}) reads files of {names}; it can miss what a cleaning changes",
    )
    UNSEEN_PROCESSES = (
        "unseen-processes",
        "a broker that uses another path is looked for by its open files; not seen are {unseen}",
    )
    RUNNING_AS_ROOT = ("running-as-root", "running as root; the broker's own user is safer. Files keep their owners.")

    # Replicas of other brokers

    REPLICA_LAGS = (
        "replica-lags",
        "the replica {path} ends at offset {end_offset}{truncated}, so it still has to fetch {missing}: this cleaning "
        "drops no tombstone and no marker from offset {start_offset} on",
    )
    REPLICA_HAS_ALL = (
        "replica-has-all",
        "the replica {path} ends at offset {end_offset}, not below the end of this log: nothing is held back for it",
    )
    NO_REPLICA = ("no-replica", "{path} has no replica of this partition: nothing is held back for it")
    HELD_BACK_AT_MOST = (
        "held-back-at-most",
        "the next cleaning holds back at most {tombstones} and {markers} whose delete horizons have passed, for "
        "{replicas}; tombstones that a newer record supersedes are dropped all the same",
    )
    HELD_BACK = (
        "held-back",
        "{name}: held back for {replicas}: {tombstones} and {markers} whose delete horizons have passed; a broker's "
        "own cleaner holds nothing back",
    )

    # A cleaning

    OVERLAY_STORAGE = ("overlay-storage", "{path} is an {kind}: no broker may use the directories below it")
    SHARED_STORAGE = (
        "shared-storage",
        "{path} is on {kind}: a broker on another machine may not see the lock; stop it",
    )
    LEFT_FILES_REMOVED = ("left-files-removed", "removed {path}, which a killed run of kcompact had left")
    KEEPS_REPLACED = (
        "keeps-replaced",
        "segments that are replaced are kept in {path}; no space is freed until you remove it: rm -r {word}",
    )
    KEEPS_NOTHING = ("keeps-nothing", "nothing is to be cleaned, so nothing is kept in {path}")
    ACTIVE_SEGMENT_EXPIRED = (
        "active-segment-expired",
        "{name}: the active segment {offset} is past its {limit} and stays: only a broker rolls it, then deletes it",
    )
    STAGING_STAYS = (
        "staging-stays",
        "{path} stays: {why}; the log is cleaned, and the next clean, or `kcompact recover`, removes the directory",
    )
    JOURNAL_INCOMPLETE = ("journal-incomplete", "{name}: the journal lacks its last line: {why}; the log is in order")
    SPARK_START_PREPARED = (
        "spark-start-prepared",
        "after this run a background process prepares files that make later starts of Spark faster; this happens once",
    )
    NO_JOURNAL = (
        "no-journal",
        "no journal is written: this user has no private directory for it; --journal FILE names one",
    )
    ONLY_COPY_LEFT = (
        "only-copy-left",
        "{name}: the .deleted files of segment {offset}{more} were left alone; they may be the only copy of records; a "
        "broker removes them when it starts, so copy them away first",
    )
    KEPT_NEEDED = ("kept-needed", "keep {path}: it has the only copy of old segments of {names}")
    KEPT_RESTORED = (
        "kept-restored",
        "all is back. Remove {path} when you no longer need it: its files are those of the log now, so it is no copy "
        "of them",
    )

    # Listed records

    NO_RECORD_CAN_MATCH = ("no-record-can-match", "no record can match: {problem}")
    NO_RECORD_MATCHES = ("no-record-matches", "no record {that}matches{why}")
    UNSURE_TRANSACTIONS = (
        "unsure-transactions",
        "transactions whose markers are in damage may have ended otherwise: {problem}",
    )
    MORE_RECORDS = (
        "more-records",
        "there may be more records: --limit N shows more of them, --output FILE writes them all",
    )
    FIELD_NOT_DECODED = (
        "field-not-decoded",
        "{fields} could not be decoded as {decoder} and {are} listed as without a decoder, the first at {first}",
    )
    RECORD_NOT_DECODED = (
        "record-not-decoded",
        "{records} could not be decoded and {are} listed without decoding, the first in {log}, {first}",
    )

    _sentence: str
    severity: Severity
    exit_code: int
    next_command: str
    is_note: bool
    """Whether it has a sentence of its own."""
    is_finding: bool
    """Whether `doctor` reports it."""

    def __new__(
        cls, value: str, sentence: str, severity: Severity | None = None, exit_code: int = 0, next_command: str = ""
    ) -> RemarkCode:
        code = str.__new__(cls, value)
        code._value_ = value
        code._sentence = sentence
        code.severity, code.exit_code, code.next_command = severity or Severity.NOTE, exit_code, next_command
        code.is_note, code.is_finding = sentence != _BY_CHECK, severity is not None
        return code

    def sentence(self, facts: dict[str, Hashable]) -> str:
        """Return the sentence with its facts. Raises KeyError if one is missing."""
        return self._sentence.format(**facts)


@dataclass(frozen=True, slots=True)
class Note:
    """A remark for the user. Equal notes have the same code and the same facts."""

    code: RemarkCode
    facts: tuple[tuple[str, Hashable], ...] = ()

    @classmethod
    def of(cls, code: RemarkCode, **facts: Hashable) -> Note:
        """Return the note with these facts, by the names that its sentence has for them."""
        return cls(code, tuple(facts.items()))

    @property
    def text(self) -> str:
        """The sentence."""
        return self.code.sentence(dict(self.facts))

    def __str__(self) -> str:
        return self.text
