"""A finding of `doctor`: a remark with its place. `docs/doctor.md` has the table of all of them with explanations."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from kcompact.readable import shell_word
from kcompact.remarks import RemarkCode, Severity
from kcompact.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A fact about a partition or a log directory, with the command to run next.

    `file` is the path of the file, if it is about one; `position` in bytes of the file, `offset` that of a record.
    `broker_says` is what a broker's log says about it, empty if nothing. `owner`, `pid`, `topic` and `topic_id` fill
    the next command. `size_bytes` is that of a directory.
    """

    code: RemarkCode
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
        return self.code.severity

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
        return self.code.next_command.format(
            dir=shell_word(self.directory),
            file=shell_word(self.path),
            owner=shell_word(self.owner or "KAFKA_USER"),
            pid=self.pid or "PID",
            topic=shell_word(self.topic or "TOPIC"),
            topic_id=self.topic_id or "TOPIC_ID",
        )


def worst_first(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings by severity and code, each once. Findings of one code keep their order."""
    severities, codes = list(Severity), list(RemarkCode)
    return sorted(dict.fromkeys(findings), key=lambda each: (severities.index(each.severity), codes.index(each.code)))
