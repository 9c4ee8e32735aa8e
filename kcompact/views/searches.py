"""A statement of search as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from kcompact import readable
from kcompact.format.names import parse_directory
from kcompact.plan.selection import Selection
from kcompact.questions.search.findings import Hit, Place
from kcompact.questions.search.scan import SearchedFile
from kcompact.questions.search.scope import SearchedLogDir, SearchedPartition
from kcompact.questions.search.statement import KeyOutcome, SearchOutcome, Statement
from kcompact.readable import counted, shown, some_of
from kcompact.views.parts import Cell, Heading, Items, Part, Table, Tone, cell, lines

_TONES = {SearchOutcome.ABSENT: Tone.GOOD, SearchOutcome.TOMBSTONE_ONLY: Tone.CAUTION}
_DIGITS = 16
_MOST_SHOWN = 20
"""So many keys, files or partitions are shown on a terminal."""
_MOST_PLACES = 10


def search_parts(statement: Statement, *, is_complete: bool) -> list[Part]:
    """Return what was found of each key, what was searched, and what a search cannot know.

    With `is_complete` all keys and all files are there; else the gravest keys, and no file that was read whole. The
    outcome is the first and the last line.
    """
    most = None if is_complete else _MOST_SHOWN
    parts: list[Part] = [lines(_in_all(statement), is_indented=False), *_keys(statement.keys, most)]
    parts.append(_scope(statement, most))
    parts += _doubts(statement, most)
    parts.append(_by_broker_and_topic(statement, most))
    if is_complete:
        parts.append(_files(statement.files))
    else:
        more = "-v, a file and a pipe get the whole statement, with the checksum of every file; --json too."
        parts.append(lines(more, is_indented=False))
    parts.append(lines(_in_all(statement), is_indented=False))
    return parts


def _in_all(statement: Statement) -> str:
    """Return `3 keys: 2 present, 1 absent`."""
    counts = Counter(key.outcome for key in statement.keys)
    words = [f"{counts[outcome]:,} {_words(outcome)}" for outcome in SearchOutcome if counts[outcome]]
    where = "" if statement.selection.selects_all else " (only selected partitions were searched)"
    return f"{counted(len(statement.keys), 'key')}: {', '.join(words)}{where}"


def _keys(keys: Sequence[KeyOutcome], most: int | None) -> Iterable[Part]:
    gravest = sorted(keys, key=lambda key: list(SearchOutcome).index(key.outcome)) if most else keys
    for key in gravest[:most]:
        name = f"{some_of(list(map(shown, key.names)))}: {key.digest if most is None else key.digest[:_DIGITS]}"
        yield Heading(name=name, detail=_words(key.outcome), tone=_TONES.get(key.outcome, Tone.BAD))
        yield lines(*_found(key), is_close=True)
    if most and len(keys) > most:
        yield lines(f"and {len(keys) - most:,} more keys; --json has all", is_indented=False)


def _words(outcome: SearchOutcome) -> str:
    return str(outcome).replace("-", " ")


def _found(key: KeyOutcome) -> list[str]:
    if not key.hits:
        return ["in no record and in no other bytes that could be read"]
    counts = [f"{count:,} {_in_what(place)}" for place, count in key.hits.items()]
    where = [_where(hit) for hit in key.places[:_MOST_PLACES]]
    left = sum(key.hits.values()) - len(where)
    return [
        f"{some_of(counts, at_most=None)}, in {counted(key.findings.files, 'file')}",
        *where,
        *([f"and {left:,} more"] if left else []),
    ]


def _where(hit: Hit) -> str:
    at = f"position {hit.position}" if hit.offset is None else f"offset {hit.offset}"
    return f"{shown(hit.file)}, {at}: {_in_what(hit.place)}"


def _in_what(place: Place) -> str:
    """Return `as key`, `in value`."""
    words = str(place).replace("-", " ")
    return words if words.startswith("in ") else f"as {words}"


def _scope(statement: Statement, most: int | None) -> Items:
    files = statement.files
    records, inflated = sum(each.records for each in files), sum(each.inflated_bytes for each in files)
    size = readable.size(sum(each.size_bytes for each in files))
    items = [
        ("asked", some_of([shown(path) for path in statement.paths], at_most=None)),
        *((name, some_of(texts, at_most=None)) for name, texts in _selected(statement.selection) if texts),
        ("searched", f"{counted(len(files), 'file')}, {size}, {counted(records, 'record')}"),
        ("inflated", readable.size(inflated)),
        *_several("brokers", [_broker(each) for each in statement.log_dirs]),
        *_several("replicas", _replicas(statement.partitions)),
        *_several("topic ids", _topic_ids(statement.partitions, most)),
        ("from, to", f"{readable.time(statement.started_ms)}, {readable.time(statement.ended_ms)}"),
        ("by", f"kcompact {statement.version}"),
        ("salt", "that of --salt" if statement.salt is None else shown(statement.salt)),
        ("method", statement.method),
        *_several("cannot know", statement.cannot_know),
    ]
    return Items(items=tuple((Cell(text=name), text) for name, text in items), width=11)


def _selected(selection: Selection) -> list[tuple[str, list[str]]]:
    numbers = [f"number {each}" for each in selection.partitions]
    return [("topics", list(map(shown, selection.topics))), ("partitions", numbers)]


def _several(name: str, texts: Iterable[str]) -> list[tuple[str, str]]:
    return [("" if number else name, text) for number, text in enumerate(texts)]


def _broker(log_dir: SearchedLogDir) -> str:
    node = "unknown" if log_dir.node_id is None else str(log_dir.node_id)
    cluster = "" if log_dir.cluster_id is None else f" of cluster {shown(log_dir.cluster_id)}"
    part = "" if log_dir.is_whole else ", a part of it"
    ran = "a broker ran" if log_dir.was_running else "no broker ran"
    return f"{node}{cluster}: {shown(log_dir.path)}{part}, {ran}"


def _topic_ids(partitions: Sequence[SearchedPartition], most: int | None) -> list[str]:
    """Return the topics that were searched and have an id, each with its ids: several if it was created anew."""
    ids: dict[str, dict[str, None]] = {}
    for each in partitions:
        if each.topic_ids:
            ids.setdefault(each.topic_partition.topic, {}).update(dict.fromkeys(each.topic_ids))
    topic_lines = [f"{shown(topic)}: {', '.join(own)}" for topic, own in ids.items()]
    left = len(topic_lines) - most if most else 0
    return topic_lines if left <= 0 else [*topic_lines[:most], f"and {left:,} more topics; --json has all"]


def _replicas(partitions: Sequence[SearchedPartition]) -> list[str]:
    """Return how many replicas were searched: the partitions with all in one line, and those with some in one each."""
    complete = [each for each in partitions if each.is_complete]
    unknown = [each for each in partitions if each.is_complete is None]
    replica_counts = [f"all of {counted(len(complete), 'partition')}"] if complete else []
    some = [each for each in partitions if each.is_complete is False]
    replica_counts += [
        f"{len(each.searched)} of {len(each.replicas or ())} of {shown(each.topic_partition)}"
        for each in some[:_MOST_SHOWN]
    ]
    if len(some) > _MOST_SHOWN:
        replica_counts.append(f"not all of {len(some) - _MOST_SHOWN:,} more partitions")
    if unknown:
        replica_counts.append(f"unknown of {counted(len(unknown), 'partition')}: no cluster metadata names them")
    return replica_counts


def _doubts(statement: Statement, most: int | None) -> Iterable[Part]:
    running = [shown(each.path) for each in statement.log_dirs if each.was_running]
    if running:
        what = "a broker ran: what it wrote meanwhile was not searched. Stop it and search again"
        yield lines(f"{some_of(running)}: {what}", is_indented=False)
    if statement.not_proven:
        named = [f"{shown(each.path)}: {_reason(each)}" for each in statement.not_proven]
        more = [f"and {len(named) - most:,} more; --json has all"] if most and len(named) > most else []
        yield lines("Something may be hidden in:", is_indented=False)
        yield lines(*named[:most], *more, is_close=True)
        hint = "Repair what is damaged (`kcompact doctor`), allow what may not be read, move away what is unknown. "
        yield lines(f"{hint}Then search again.", is_indented=False, is_close=True)


def _reason(file: SearchedFile) -> str:
    return readable.within(file.path, file.problem).removeprefix(f"{shown(file.path)}, ")


def _by_broker_and_topic(statement: Statement, most: int | None) -> Table:
    """Return how much was searched of each topic of each broker; what is in no partition has no topic."""
    brokers = {each.path: each for each in statement.log_dirs}
    sums: dict[tuple[str, str], list[int]] = {}
    for file in statement.files:
        around = next((brokers[each] for each in file.path.parents if each in brokers), None)
        broker = "" if around is None else str(around.node_id) if around.node_id is not None else shown(around.path)
        topics = (parsed.topic_partition.topic for each in file.path.parents if (parsed := parse_directory(each.name)))
        counts = sums.setdefault((broker, next(topics, "")), [0, 0, 0, 0])
        for place, number in enumerate((1, file.size_bytes, file.records, bool(file.problem))):
            counts[place] += number
    columns = ("broker", "topic", "files", "bytes", "records", "in doubt")
    rows = [(cell(broker or None), cell(topic or None), *map(cell, counts)) for (broker, topic), counts in sums.items()]
    left = len(rows) - most if most else 0
    if left > 0:
        rows = [*rows[:most], (cell(f"and {left:,} more"), *(cell(None) for _ in columns[1:]))]
    return Table(columns=columns, rows=tuple(rows), numbers=columns[2:])


def _files(files: Sequence[SearchedFile]) -> Table:
    columns = ("file", "bytes", "modified", "records", "inflated", "SHA-256")
    rows = [
        (
            cell(" = ".join(shown(path) for path in (each.path, *each.also))),
            cell(each.size_bytes),
            cell(readable.time(each.modified_ms)),
            cell(each.records),
            cell(each.inflated_bytes),
            cell(each.sha256 or None),
        )
        for each in files
    ]
    return Table(columns=columns, rows=tuple(rows), numbers=("bytes", "records", "inflated"))
