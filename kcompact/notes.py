"""Every note for the user: a remark on a run or on a partition that is no error.

A note is a value with a code and the facts of its sentence. Code decides by `code`; the sentence is made only when it
is shown. JSON has both, as `code` and `text`.
"""

from __future__ import annotations

from collections.abc import Hashable
from enum import StrEnum

from kcompact.values import dataclass


class NoteCode(StrEnum):
    """What a note is about, with its sentence. `{names}` are facts. The values are part of the JSON output."""

    # The files of a partition

    STAGING_OF_ANOTHER_USER = (
        "staging-of-another-user",
        "{name} is left of a run of another user, such as root; the log does not need it, and `kcompact recover` as "
        "that user removes it",
    )
    ORPHAN_INDEX = "orphan-index", "{name} has no .log beside it; a broker would delete it"
    MORE_ORPHAN_INDEXES = "more-orphan-indexes", "and {count:,} more indexes have no .log beside them"
    MISSING_INDEX = "missing-index", "{log} has no {suffix} beside it; the plan uses one built from its batches"
    LOST_END = (
        "lost-end",
        "{index} {problem}. If the log has lost its end, this file is the only proof, and a rebuilt one forgets it: "
        "copy the directory first",
    )
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
    TORN_END = (
        "torn-end",
        "{log} has a torn end at position {position} ({problem}): the broker cuts off {size_bytes:,} bytes, from "
        "offset {offset} on{deleted}",
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

    NO_HIGH_WATERMARK = (
        "no-high-watermark",
        "replication-offset-checkpoint has no entry for this partition, so no record counts as replicated; "
        "pass --high-watermark leo to count the whole log as replicated",
    )
    NO_HIGH_WATERMARKS = (
        "no-high-watermarks",
        "no replication-offset-checkpoint: high watermark taken as the log end",
    )
    NO_QUORUM_HIGH_WATERMARK = (
        "no-quorum-high-watermark",
        "a KRaft quorum keeps no high watermark on disk, so all records count as replicated; the last ones may not be",
    )

    # The settings of a topic, and who says so

    STRAY_REPLICA = "stray-replica", "{why}: a broker would move the directory aside as stray"
    MISSING_TOPIC_ID = (
        "missing-topic-id",
        "partition.metadata is missing, and the cluster metadata has the partition on this broker, with the topic id "
        "{topic_id}: a broker that starts moves the directory aside as stray, and begins an empty one",
    )
    OTHER_TOPIC_ID = (
        "other-topic-id",
        "the topic is not in the cluster metadata: its topic id is that of another",
    )
    UNKNOWN_TO_CLUSTER = "unknown-to-cluster", "{address} does not have this topic"
    HIDDEN_SETTINGS = "hidden-settings", "{address} does not let this user read the settings of this topic"
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
    CLEANER_DISABLED = "cleaner-disabled", "the broker's own cleaner is switched off: {setting}=false"
    METADATA_NOT_USED = "metadata-not-used", "{name} is not used: {problem}"
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
    UNUSED_SETTING = "unused-setting", "{setting} has no effect: {why}"
    BROKER_CONFIG = (
        "broker-config",
        "the broker's static settings are those of {where}: its log.dirs names {log_dirs}",
    )
    ASSUMED_SETTINGS = (
        "assumed-settings",
        "{why}: Kafka's defaults are assumed, and decide here, for {names}; pass {option}{retention}",
    )

    UNKNOWN_SETTINGS = (
        "unknown-settings",
        "no source has the settings that {topics} may have of {own}: {why}{decided}{assumed}{retention}; pass "
        "--topic-configs FILE",
    )
    OVERRULED_SETTING = "overruled-setting", "{setting} is for topics without a value of their own: not for {topics}"
    DECIDED_FOR_ALL = "decided-for-all", "{setting} decides for {topics}, without a value of {own}"
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
    LOCK_HELD = "lock-held", "{problem}; the cleaning itself has to wait until it ends"
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
    RUNNING_AS_ROOT = (
        "running-as-root",
        "running as root; the broker's own user is safer. Files keep their owners.",
    )

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
    NO_REPLICA = "no-replica", "{path} has no replica of this partition: nothing is held back for it"
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

    OVERLAY_STORAGE = "overlay-storage", "{path} is an {kind}: no broker may use the directories below it"
    SHARED_STORAGE = (
        "shared-storage",
        "{path} is on {kind}: a broker on another machine may not see the lock; stop it",
    )
    LEFT_FILES_REMOVED = "left-files-removed", "removed {path}, which a killed run of kcompact had left"
    KEEPS_REPLACED = (
        "keeps-replaced",
        "segments that are replaced are kept in {path}; no space is freed until you remove it: rm -r {word}",
    )
    KEEPS_NOTHING = "keeps-nothing", "nothing is to be cleaned, so nothing is kept in {path}"
    ACTIVE_SEGMENT_EXPIRED = (
        "active-segment-expired",
        "{name}: the active segment {offset} is past its {limit} and stays: only a broker rolls it, then deletes it",
    )
    STAGING_STAYS = (
        "staging-stays",
        "{path} stays: {why}; the log is cleaned, and the next clean, or `kcompact recover`, removes the directory",
    )
    JOURNAL_INCOMPLETE = (
        "journal-incomplete",
        "{name}: the journal lacks its last line: {why}; the log is in order",
    )
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
    KEPT_NEEDED = "kept-needed", "keep {path}: it has the only copy of old segments of {names}"
    KEPT_RESTORED = (
        "kept-restored",
        "all is back. Remove {path} when you no longer need it: its files are those of the log now, so it is no copy "
        "of them",
    )

    # Listed records

    NO_RECORD_CAN_MATCH = "no-record-can-match", "no record can match: {problem}"

    NO_RECORD_MATCHES = "no-record-matches", "no record {that}matches{why}"
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

    def __new__(cls, value: str, sentence: str) -> NoteCode:
        code = str.__new__(cls, value)
        code._value_ = value
        code._sentence = sentence
        return code

    def sentence(self, facts: dict[str, Hashable]) -> str:
        """Return the sentence with its facts. Raises KeyError if one is missing."""
        return self._sentence.format(**facts)


@dataclass(frozen=True, slots=True)
class Note:
    """A remark for the user. Equal notes have the same code and the same facts."""

    code: NoteCode
    facts: tuple[tuple[str, Hashable], ...] = ()

    @classmethod
    def of(cls, code: NoteCode, **facts: Hashable) -> Note:
        """Return the note with these facts, by the names that its sentence has for them."""
        return cls(code, tuple(facts.items()))

    @property
    def text(self) -> str:
        """The sentence."""
        return self.code.sentence(dict(self.facts))

    def __str__(self) -> str:
        return self.text
