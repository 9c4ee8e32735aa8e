"""The steps of a swap and of its recovery, from the case files, and how a step is applied."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from kcompact.clean.staged_files import CleanedSegment, StagedFile
from kcompact.errors import StorageError
from kcompact.log.files import FileIdentity
from kcompact.swap.open_directory import OpenDirectory, apply_steps
from kcompact.swap.recovery.interrupted_round import decide
from kcompact.swap.steps import DELETED, Remove, Rename, Step, replacement_steps
from tests.support.crash import Scene, listing, log_of

CASES = Path(__file__).parents[2] / "cases" / "swap"


def case_blocks() -> Iterator[tuple[str, str, str]]:
    for path in sorted(CASES.glob("*.txt")):
        text = "\n".join(line.split("  #")[0] for line in path.read_text().splitlines() if line[:1] != "#")
        for block in re.split(r"\n{2,}", text.strip()):
            command, _, expected = block.partition("\n----\n")
            yield f"{path.stem}: {command}", command, expected.strip()


def long_name(short: str) -> str:
    """`0.log` -> `00000000000000000000.log`; the case files shorten names."""
    number, _, rest = short.partition(".")
    return f"{int(number):020d}.{rest}"


def short_steps(steps: Sequence[Step]) -> str:
    def shorten(match: re.Match[str]) -> str:
        return match[1].lstrip("0") or "0"

    return "\n".join(re.sub(r"\b(\d{20})\b", shorten, str(step)) for step in steps)


def identity(name: str) -> FileIdentity:
    return FileIdentity(name=name, device=1, inode=1, size_bytes=1, mtime_ns=1)


def segment_of_case(options: Mapping[str, str]) -> CleanedSegment:
    """Return the files that `segments=0,2 by=0 txnindex=0 new-txnindex snapshots=2` stands for."""
    bases = options["segments"].split(",")
    kinds = [".log", ".index", ".timeindex"]
    old = [base + kind for base in bases for kind in kinds]
    old += [f"{base}.txnindex" for base in options.get("txnindex", "").split(",") if base]
    old += [f"{base}.snapshot" for base in options.get("snapshots", "").split(",") if base]
    new = [options["by"] + kind for kind in (*kinds, *([".txnindex"] if "new-txnindex" in options else []))]
    return CleanedSegment(
        base_offset=int(options["by"]),
        files=tuple(
            StagedFile(name=long_name(name), staged_as=long_name(name), size_bytes=1, crc32c=1) for name in new
        ),
        replaces=tuple(identity(long_name(name)) for name in old),
    )


def run_case(command: str) -> str:
    return "\n".join(run_line(line) for line in command.splitlines())


def run_line(line: str) -> str:
    verb, *words = line.split()
    options = dict(word.partition("=")[::2] for word in words)
    if verb == "replace":
        return short_steps(replacement_steps(segment_of_case(options), ".kcompact-7f"))
    assert verb == "recover"
    present = {long_name(name) for name in options["found"].split(",")}
    damaged = {long_name(name) for name in options.get("damaged", "").split(",") if name}
    action = decide(
        segment_of_case(options),
        present,
        is_new=lambda name, _: name in present - damaged,
        is_old=lambda name, _: name in present - damaged,
    )
    problem = f": {action.problem}" if action.problem else ""
    return "\n".join(filter(None, (action.direction + problem, short_steps(action.steps))))


@pytest.mark.parametrize(("name", "command", "expected"), list(case_blocks()))
def test_case(name: str, command: str, expected: str) -> None:
    assert run_case(command).strip() == expected


def test_a_rename_does_not_overwrite(scene: Scene) -> None:
    before = listing(scene.directory)
    with pytest.raises(StorageError, match="exists already"), OpenDirectory(scene.directory) as directory:
        apply_steps(directory, [Rename(log_of(100), log_of(0))])
    assert listing(scene.directory) == before


def test_with_a_listing_no_name_in_it_is_overwritten(tmp_path: Path) -> None:
    for name in (log_of(0), log_of(100)):
        (tmp_path / name).write_text(name)
    with OpenDirectory(tmp_path) as directory:
        steps: list[Step] = [
            Rename(log_of(0), log_of(0, DELETED)),
            Rename(log_of(100), log_of(0)),
            Remove(log_of(0, DELETED)),
        ]
        apply_steps(directory, [*steps, Rename(log_of(0), log_of(0, DELETED))], present=set(directory.names()))
        (tmp_path / log_of(100)).write_text("new")
        with pytest.raises(FileExistsError, match="exists already"):
            apply_steps(directory, [Rename(log_of(100), log_of(0, DELETED))], present=set(directory.names()))
    assert (tmp_path / log_of(0, DELETED)).read_text() == log_of(100)
