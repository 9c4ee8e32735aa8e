"""The replicas of partitions, side by side: a line for each that agree, a paragraph for each finding."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from kcompact import readable
from kcompact.questions.compare.answer import ComparedPartition, Explained, ReplicaVerdict
from kcompact.questions.compare.before_start import Action, PartitionAction
from kcompact.questions.compare.pairs import Pairs
from kcompact.questions.keys.counts import key_hash
from kcompact.readable import counted, shown, some_of
from kcompact.views.parts import Cell, Heading, Items, Part, Tone, lines

_KEY_CHARS = 40
"""So much of a key is shown. The JSON has the whole key."""
_MOST_NOT_COMPARED = 5
"""So many offset ranges of a partition are listed as not compared. The JSON has all."""


def replica_parts(partitions: Sequence[ComparedPartition], *, print_data: bool) -> list[Part]:
    """Return what was found: the healthy partitions in a line each, then the others."""
    healthy = [each for each in partitions if each.error is None and not each.findings]
    parts: list[Part] = []
    if healthy:
        width = max(len(each.name) for each in healthy)
        parts.append(Items(items=tuple((Cell(text=each.name), summary(each)) for each in healthy), width=width))
        parts += [part for each in healthy for part in _not_compared(each, name=f"{each.name}, ")]
    for each in partitions:
        if each.findings:
            parts.append(Heading(name=each.name, detail=summary(each), tone=tone_of(each)))
            for explained in each.findings:
                parts += _finding(explained, print_data=print_data)
            parts += _not_compared(each)
    return parts


def not_compared_sentences(partition: ComparedPartition, *, at_most: int | None = _MOST_NOT_COMPARED) -> Iterator[str]:
    """Yield which offsets of which replica were not compared, and why."""
    for each in partition.not_compared[:at_most]:
        why = readable.relative_to_here(each.why)
        yield f"{shown(each.path)}, offsets {each.from_offset} to {each.to_offset}: {why}"
    if at_most is not None and len(partition.not_compared) > at_most:
        yield f"and {len(partition.not_compared) - at_most:,} more; --json has all"


def alone_parts(pairs: Pairs) -> list[Part]:
    """Return which partitions only one path has."""
    return [lines(each, is_indented=False) for each in alone_sentences(pairs)]


def alone_sentences(pairs: Pairs, *, at_most: int | None = readable.NAMED_AT_MOST) -> Iterator[str]:
    """Yield which partitions only one path has, and whether the cluster metadata explains it."""
    for is_explained, why in (
        (True, "of which no other of these brokers is a replica by the cluster metadata"),
        (False, "because only one path has them"),
    ):
        names = [
            f"{shown(str(each.topic_partition))} ({shown(pairs.sides[each.replicas[0][0]].path)})"
            for each in pairs.alone
            if (each.missing_on == ()) is is_explained
        ]
        if names:
            yield f"not compared, {why}: {some_of(names, at_most=at_most)}"


def before_start_parts(actions: Sequence[PartitionAction], path: Path, *, is_complete: bool) -> list[Part]:
    """Return what to do before the broker of a path starts. `is_complete`: all partitions were compared whole."""
    parts: list[Part] = []
    for action, what in (
        (
            Action.MOVE_AWAY,
            "must be moved away before the start. The broker fetches what is missing from the leader",
        ),
        (Action.DECIDE, "must be decided on before the start, see above"),
    ):
        partitions = [each for each in actions if each.action is action]
        if partitions:
            parts.append(
                Heading(name=f"{counted(len(partitions), 'partition')} of {shown(path)}", detail=what, tone=Tone.BAD)
            )
            parts.append(lines(*(each.command or each.partition for each in partitions), is_close=True))
    words = rest_words(has_actions=bool(parts), is_complete=is_complete)
    return [*parts, lines(f"{shown(path)}: {words}", is_indented=False)] if words else parts


def rest_words(*, has_actions: bool, is_complete: bool) -> str:
    """Return what is said before a start of partitions that need no action, nothing if all were compared."""
    if has_actions:
        return "" if is_complete else "not everything was compared, so others may need it too"
    if is_complete:
        return "nothing in the replicas speaks against a start. kcompact doctor says what else does"
    return "nothing that was compared speaks against a start, but not everything was compared"


def tone_of(partition: ComparedPartition) -> Tone:
    """Return how bad the verdict on a partition is."""
    if partition.verdict in (None, ReplicaVerdict.DIFFERENT):
        return Tone.BAD
    return Tone.CAUTION if partition.findings or partition.not_compared else Tone.GOOD


def summary(partition: ComparedPartition) -> str:
    """Return the verdict on a compared partition, its offsets and keys in a line."""
    return f"{str(partition.verdict).replace('-', ' ')}, {extent(partition)}"


def extent(partition: ComparedPartition) -> str:
    """Return how many replicas of a partition were compared, up to which offset, and how many keys they have."""
    ends = {each.log_end_offset for each in partition.replicas}
    words = [f"{counted(len(partition.replicas), 'replica')} to offset {partition.compared_to}"]
    if len(ends) > 1:
        words.append(f"the last one is {counted(max(ends) - min(ends), 'offset')} behind")
    return ", ".join((*words, counted(partition.keys, "key")))


def _finding(explained: Explained, *, print_data: bool) -> Iterator[Part]:
    finding = explained.finding
    where = some_of([readable.shown(path) for path in explained.replicas])
    yield Heading(name=f"{finding.kind} ({finding.certainty})", detail=where, tone=Tone.BAD, is_close=False)
    yield lines(f"{explained.advice.why}.", f"{explained.advice.do}", is_close=True)
    if explained.right is not None:
        yield lines(f"right: {some_of([shown(path) for path in explained.right])}", is_close=True)
    if explained.keys:
        yield lines(f"keys: {some_of(named_keys(explained, print_data=print_data))}", is_close=True)
    elif finding.offsets:
        yield lines(f"offsets: {some_of(list(map(str, finding.offsets)))}", is_close=True)


def _not_compared(partition: ComparedPartition, *, name: str = "") -> Iterator[Part]:
    for number, each in enumerate(not_compared_sentences(partition)):
        yield lines(f"not compared: {name}{each}", is_close=number > 0)


def named_keys(explained: Explained, *, print_data: bool) -> list[str]:
    """Return the keys of a finding, or their hashes, each with the offset of a record."""
    return [f"{_key(key, print_data=print_data)} at offset {offset}" for offset, key in explained.keys]


def _key(key: bytes | None, *, print_data: bool) -> str:
    if key is None:
        return "a key that cannot be read"
    if not print_data:
        return key_hash(key)
    return readable.safe(key, max_chars=_KEY_CHARS) if key else "(empty)"
