"""What the comparison with a Kafka before 3.9 passes over, and counts under names that begin with `PASSED_OVER`.

Its indexes have an entry for each append, with the offset and the time of the whole append. What they allow is refused
by kcompact, whose index has an entry for each batch, or whose time index has the times of the log.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from kcompact.errors import CorruptIndexError, KcompactError, RefusedError
from kcompact.format.names import Suffix
from kcompact.log.batch_headers import headers
from kcompact.log.files import LogFile
from tests.oracle.real_kafka import Json
from tests.oracle.views import newest

PASSED_OVER = "passed over: "
ROOM = f"{PASSED_OVER}segment.index.bytes has no room for an entry for each batch"
APPEND_TIMES = f"{PASSED_OVER}a time index has LogAppendTime for batches of format 0"
LOST = f"{PASSED_OVER}newest values that Kafka's cleaner loses and kcompact keeps"


def known_refusals(refused: Mapping[str, KcompactError]) -> dict[str, str]:
    """Return the refusals that indexes of an older Kafka explain: by partition the name of the kind."""
    found = {}
    for name, problem in refused.items():
        if isinstance(problem, RefusedError) and "index is full" in str(problem):
            found[name] = ROOM
        elif isinstance(problem, CorruptIndexError) and problem.file.endswith(Suffix.TIME_INDEX):
            log = LogFile.at(Path(problem.file).with_suffix(Suffix.LOG))
            if any(header.magic == 0 for _, header in headers(log)):
                found[name] = APPEND_TIMES
    return found


def lost_values(before: Json, ours: Json, theirs: Json, counts: Counter[str]) -> Iterator[str]:
    """Yield the newest values of a partition that kcompact has lost and Kafka's cleaner has kept; count the reverse."""
    mine, other = newest(ours), newest(theirs)
    for key, record in newest(before).items():
        if other.get(key) != record:
            counts[LOST] += mine.get(key) == record
        elif mine.get(key) != record:
            yield f"newest of {key!r} is {mine.get(key)}, before {record}"
