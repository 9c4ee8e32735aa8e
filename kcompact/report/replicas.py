"""The page of `compare`: for each partition the verdict, the findings, the replicas, and what was compared.

It has no figures, and the same style sheet as a report. Keys are named by their hashes without `print_data`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kcompact import readable
from kcompact.questions.compare.answer import ComparedPartition, ComparedReplica, Explained, ReplicaVerdict
from kcompact.questions.compare.before_start import Action, PartitionAction, is_all_compared
from kcompact.questions.compare.findings import Certainty
from kcompact.questions.compare.pairs import Pairs
from kcompact.readable import counted, shown, some_of
from kcompact.report.page import PageView, PartitionView
from kcompact.views.parts import Cell, Items, Part, Section, Table, Tone, cell, lines, offset
from kcompact.views.replicas import (
    alone_sentences,
    extent,
    named_keys,
    not_compared_sentences,
    rest_words,
    tone_of,
)

MOST_DETAILED = 50
"""So many partitions have a part of their own, those with findings first; all are in the table."""

_SURENESS = {
    Certainty.PROVEN: "proven: no lawful history of writing and cleaning leaves these files",
    Certainty.LIKELY: "likely: the files allow another explanation, and most of the evidence is against it",
    Certainty.UNDECIDED: "undecided: one of the replicas is wrong, and the files do not say which",
}
_VERDICTS = {
    ReplicaVerdict.EQUAL: "The same batches",
    ReplicaVerdict.COMPACTED: "The same records, compacted differently",
    ReplicaVerdict.BEHIND: "Lawful, and not all replicas end at the same offset",
    ReplicaVerdict.DIFFERENT: "The replicas differ, and no lawful history explains it",
}
_ACTIONS = {Action.MOVE_AWAY: "move away; the broker fetches it anew", Action.DECIDE: "decide first"}
_MOST_KEYS = 10
_REBUILT = {"format": "format", "codec": "compression", "delete-horizon": "delete horizon", "records": "record count"}


def replicas_page(
    partitions: Sequence[ComparedPartition],
    pairs: Pairs,
    actions: Sequence[PartitionAction] | None,
    *,
    now_ms: int,
    version: str,
    command: str,
    print_data: bool,
) -> PageView:
    """Return the page about the compared partitions. `actions` are those before a start, None if nobody asked."""
    in_order = sorted(partitions, key=lambda each: not (each.findings or each.error))
    detailed = in_order[:MOST_DETAILED]
    anchors = {each.topic_partition: f"partition-{number}" for number, each in enumerate(detailed, 1)}
    paths = [side.path for side in pairs.sides]
    return PageView(
        title=f"Replicas on {some_of([shown(path) for path in paths], at_most=None)}",
        now=readable.time(now_ms),
        version=version,
        kafka_releases="",
        summary=(
            _summary(in_order, {str(partition): anchor for partition, anchor in anchors.items()}),
            *(
                [_before_start(actions, paths[0], is_complete=is_all_compared(partitions, pairs))]
                if actions is not None
                else []
            ),
            _how(pairs, command),
        ),
        partitions=tuple(_partition(each, anchors[each.topic_partition], print_data=print_data) for each in detailed),
    )


# What the page says about all


def _summary(partitions: Sequence[ComparedPartition], anchors: dict[str, str]) -> Section:
    rows = tuple(
        (
            Cell(text=each.name, anchor=anchors.get(each.name, "")),
            Cell(text="not compared" if each.verdict is None else str(each.verdict), tone=tone_of(each)),
            cell(None if each.error else len(each.replicas)),
            cell(None if each.error else each.keys),
            Cell(text=some_of(_kinds(each), at_most=None)),
        )
        for each in partitions
    )
    table = Table(
        columns=("partition", "verdict", "replicas", "keys", "findings"),
        rows=rows,
        caption="partitions, those with findings first",
        numbers=("replicas", "keys"),
        sentences=("findings",),
    )
    return Section(title="Verdicts", parts=(table,))


def _kinds(partition: ComparedPartition) -> list[str]:
    return [f"{each.finding.kind} ({each.finding.certainty})" for each in partition.findings]


def _before_start(actions: Sequence[PartitionAction], path: Path, *, is_complete: bool) -> Section:
    rows = tuple(
        (
            Cell(text=each.partition),
            Cell(text=_ACTIONS[each.action]),
            Cell(text=some_of([str(kind) for kind in each.kinds], at_most=None)),
            Cell(text=each.command),
        )
        for each in actions
        if each.action is not Action.KEEP
    )
    table = Table(
        columns=("partition", "what to do", "why", "command"),
        rows=rows,
        caption="partitions that must not come back as they are, or that need a decision",
        sentences=("why", "command"),
    )
    words = rest_words(has_actions=bool(rows), is_complete=is_complete)
    parts: list[Part] = [*([table] if rows else []), *([lines(f"{words.capitalize()}.")] if words else [])]
    return Section(title=f"Before the broker of {shown(path)} starts", parts=tuple(parts))


def _how(pairs: Pairs, command: str) -> Section:
    items = [(Cell(text="command"), command)]
    for side in pairs.sides:
        broker = "a broker that is not known" if side.node_id is None else f"broker {side.node_id}"
        cluster = f" of the cluster {side.cluster_id}" if side.cluster_id else ""
        count = counted(len(side.partitions), "partition")
        items.append((Cell(text="path"), f"{shown(side.path)}: {broker}{cluster}, {count}"))
    parts: list[Part] = [Items(items=tuple(items), width=10)]
    parts += [lines(each) for each in alone_sentences(pairs, at_most=None)]
    parts.append(lines("Files do not say who leads now, nor what all replicas have lost or kept alike.", is_close=True))
    return Section(title="How it was compared", parts=tuple(parts))


# A partition


def _partition(partition: ComparedPartition, anchor: str, *, print_data: bool) -> PartitionView:
    is_bad = partition.error is not None or bool(partition.findings)
    verdict = "Not compared" if partition.verdict is None else _VERDICTS[partition.verdict]
    sections = [_finding(each, print_data=print_data) for each in partition.findings]
    if partition.error is None:
        sections += [_replicas(partition.replicas), _compared(partition)]
    return PartitionView(
        anchor=anchor,
        name=shown(partition.name),
        directory=some_of([shown(each.directory) for each in partition.replicas], at_most=None, separator=" · "),
        tone="bad" if is_bad else "yes",
        verdict=verdict,
        reason="" if partition.verdict is None else str(partition.verdict),
        explanation="" if partition.error is not None else extent(partition),
        problems=() if partition.error is None else (str(partition.error),),
        sections=tuple(sections),
    )


def _finding(explained: Explained, *, print_data: bool) -> Section:
    finding = explained.finding
    right = "the files do not say" if explained.right is None else some_of([shown(path) for path in explained.right])
    items = [
        (Cell(text="replicas"), some_of([shown(path) for path in explained.replicas], at_most=None)),
        (Cell(text="what it means"), f"{explained.advice.why}."),
        (Cell(text="how sure"), _SURENESS[finding.certainty]),
        (Cell(text="which is right"), right),
        (Cell(text="what to do"), explained.advice.do),
    ]
    if explained.keys:
        items.append((Cell(text="keys"), some_of(named_keys(explained, print_data=print_data), at_most=_MOST_KEYS)))
    elif finding.offsets:
        items.append((Cell(text="offsets"), some_of([str(each) for each in finding.offsets], at_most=_MOST_KEYS)))
    return Section(title=f"{finding.kind} ({finding.certainty})", parts=(Items(items=tuple(items), width=14),))


def _replicas(replicas: Sequence[ComparedReplica]) -> Section:
    rows = tuple(
        (
            Cell(text=shown(each.path)),
            cell(offset(each.node_id)),
            Cell(text=_role(each)),
            cell(offset(each.log_start_offset)),
            cell(offset(each.log_end_offset)),
            cell(offset(each.high_watermark)),
            cell(each.batches),
            cell(each.records),
            Cell(text=readable.size(each.size_bytes)),
        )
        for each in replicas
    )
    table = Table(
        columns=("path", "node", "role", "log start", "log end", "high watermark", "batches", "records", "size"),
        rows=rows,
        caption="role by the newest metadata log among the paths; the high watermark of a checkpoint can be old",
        sentences=("path",),
        numbers=("node", "log start", "log end", "high watermark", "batches", "records", "size"),
    )
    return Section(title="Replicas", parts=(table,))


def _role(replica: ComparedReplica) -> str:
    if replica.is_leader is None and replica.is_in_sync is None:
        return "not known"
    if replica.is_leader:
        return "leader"
    return "in sync" if replica.is_in_sync else "out of sync"


def _compared(partition: ComparedPartition) -> Section:
    rebuilt = partition.rebuilt or {}
    lawful = [
        f"{counted(partition.equal_batches, 'batch', 'batches')} with the same bytes",
        f"{partition.alone:,} that another replica lacks, counted for each replica",
        *(f"{count:,} with another {_REBUILT[why]}" for why, count in rebuilt.items()),
    ]
    items = [
        (Cell(text="offsets"), f"{partition.compared_from} to {partition.compared_to}, the end excluded"),
        (Cell(text="keys"), f"{partition.keys:,}"),
        (Cell(text="lawful"), some_of(lawful, at_most=None)),
    ]
    if partition.fork_offset is not None:
        items.append((Cell(text="fork"), f"{partition.fork_offset}: from here on the replicas may differ"))
    for each in not_compared_sentences(partition, at_most=None):
        items.append((Cell(text="not compared", tone=Tone.CAUTION), each))
    return Section(title="What was compared", parts=(Items(items=tuple(items), width=14),))
