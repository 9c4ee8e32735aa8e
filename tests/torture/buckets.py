"""Copies to a bucket whose store, or the network before it, fails, lies and forgets; and commands that read from it.

A run makes a copy of some partitions, or of a log directory, while one to three faults of `bucket_faults` happen.
Perhaps an object is then damaged, and perhaps the same command runs again with other faults. At last it runs without
faults: it completes the copy, or names what is in the way, and completes it when that is removed. After each command
`bucket_judge` reads the objects: what the command calls complete must be there, byte for byte as in a local copy.
Then a command reads the copy through faults: if it succeeds, its answer is that for the local copy.

    python -m tests.torture.buckets 7-112       # this run alone, with each request and what was done to it
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from botocore.retries.standard import ExponentialBackoff

from tests.support import log_dsl, log_writer
from tests.support.command_line import COMPACT, Ran, kcompact
from tests.support.copies import read_files
from tests.support.fault_proxy import Proxy, in_front_of
from tests.support.s3_server import Moto, Server, moto, versitygw
from tests.torture import bucket_judge as judge
from tests.torture.bucket_faults import KINDS, READS, Adversary, Fault, damage
from tests.torture.bucket_judge import SHARED, Expected, Objects
from tests.torture.children import in_child, scratch, side_by_side
from tests.torture.tally import Tally

RUNS = 20_000
"""At share 1. A night makes a twentieth: 1,000."""
ONE_IN_SECOND_SERVER = 10
LOGS = 3
PARTITIONS = 9
PREFIX = "copies/eu"
BYSTANDERS = {"copies/eu.json": b"{}", "copies/eu-2/orders-0/0.log": b"x", "copies/notes": b"", "z": b"z"}
PATIENCE_S = 240
"""A command that takes longer hangs, and is killed."""
ROUNDS = ((True,), (True,), (True, True), (False, True))
"""The commands of a trial, and which of them have faults."""
CLEAN = ("clean", "--yes", "--json", "--engine", "in-process")
FETCH = (*CLEAN, "--output")
READINGS = (("verify", "--json"), ("keys", "--json"), ("records", "--print-data", "--json"), FETCH)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A copy that is made with faults: `rounds` are those of each command. `chosen` is empty for all partitions."""

    seed: str
    log: int
    chosen: tuple[str, ...]
    rounds: tuple[tuple[Fault, ...], ...]
    is_damaged: bool
    has_neighbours: bool
    reading: tuple[str, ...]
    faults_of_reading: tuple[Fault, ...]
    on_second_server: bool

    def __str__(self) -> str:
        rounds = "; then ".join(", ".join(map(str, faults)) or "no faults" for faults in self.rounds)
        return f"{self.seed}, {' '.join(self.chosen) or 'all partitions'}, {rounds}"


def trial_of(seed: str) -> Trial:
    """Return the trial of a seed."""
    dice = random.Random(seed)
    names = [f"log-{number}" for number in range(PARTITIONS)]
    chosen = () if dice.random() < 0.12 else tuple(sorted(dice.sample(names, dice.choice((1, 1, 2, 3)))))
    return Trial(
        seed=seed,
        log=dice.randrange(LOGS),
        chosen=chosen,
        rounds=tuple(_faults(dice, list(KINDS)) if is_faulty else () for is_faulty in dice.choice(ROUNDS)),
        is_damaged=dice.random() < 0.3,
        has_neighbours=bool(chosen) and dice.random() < 0.3,
        reading=dice.choice(READINGS) if dice.random() < 0.4 else (),
        faults_of_reading=_faults(dice, [name for name, kind in KINDS.items() if set(kind.hits) & set(READS)]),
        on_second_server=int(seed.rpartition("-")[2]) % ONE_IN_SECOND_SERVER == ONE_IN_SECOND_SERVER - 1,
    )


def _faults(dice: random.Random, names: Sequence[str]) -> tuple[Fault, ...]:
    return tuple(
        Fault(name, dice.choice(KINDS[name].often)) for name in dice.sample(names, dice.choice((1, 1, 2, 2, 3)))
    )


def run(*, share: float, seed: int) -> Tally:
    """Make a share of the copies."""
    with scratch() as directory:
        logs = [Log.made(directory / f"log-{number}", number) for number in range(LOGS)]
        trials = [trial_of(f"{seed}-{number}") for number in range(max(1, round(RUNS * share)))]
        return side_by_side(partial(_tried, logs=logs, directory=directory), trials)


def _tried(trials: Sequence[Trial], *, logs: Sequence[Log], directory: Path) -> Tally:
    tally = Tally()
    work = Path(tempfile.mkdtemp(dir=directory))
    with places(work) as found:
        for trial in trials:
            place = found[-1 if trial.on_second_server else 0]
            tally.count("copies to moto" if isinstance(place.server, Moto) else "copies to versitygw")
            attempt = Attempt(trial, logs[trial.log], place, work / "run")
            problems = attempt.problems()
            for outcome in attempt.outcomes:
                tally.count(outcome)
            if problems:
                tally.fail(f"{trial}: {problems[0]}; to repeat: python -m tests.torture.buckets {trial.seed}")
    return tally


# --- The logs and the servers ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Log:
    """A log directory, its local copy, and what that has."""

    directory: Path
    copy: Path
    expected: Expected

    @classmethod
    def made(cls, home: Path, seed: int) -> Log:
        """Write a log directory of a seed below `home`, and copy it without a bucket."""
        dice = random.Random(seed)
        for number in range(PARTITIONS):
            log_writer.write(log_dsl.parse(_log_text(dice, f"log-{number}")), home / "logs")
        ran = kcompact(*CLEAN, home / "logs", "--output", home / "copy", *COMPACT)
        assert ran.code == 0, ran.err
        return cls(home / "logs", home / "copy", judge.read_expected(home / "copy"))


def _log_text(dice: random.Random, name: str) -> str:
    """Return about 50 kB of a log: segments, codecs, tombstones, committed and aborted transactions."""
    offset, segments, indexes = 0, [], []
    for _ in range(dice.randint(2, 5)):
        base, batches = offset, []
        for _ in range(dice.randint(4, 12)):
            first, count, codec = offset, dice.randint(1, 8), dice.choice(("", "gzip", "lz4", "snappy", "zstd"))
            records = " ".join(f"k{dice.randrange(40)}={_value(dice)}" for _ in range(count))
            offset += count
            if dice.random() < 0.7:
                batches.append(f"[{records}]({codec})")
                continue
            end = dice.choice(("commit", "abort"))
            batches.append(f"[{records}](pid=7 epoch=0 txn {codec}) [{end}](pid=7 epoch=0 txn)")
            if end == "abort":
                indexes.append(f"txnindex {base}: pid=7 first={first} last={offset} stable={first}")
            offset += 1
        segments.append(f"{base}: {' '.join(batches)}")
    return "\n".join((f"log now=10:00 name={name} checkpoint=0 hw={offset}", *segments, *indexes))


def _value(dice: random.Random) -> str:
    return "~" if dice.random() < 0.1 else f"{dice.getrandbits(4 * 700):0700x}"


@dataclass(frozen=True, slots=True)
class Place:
    """A running server and the proxy before it."""

    server: Server
    proxy: Proxy


@contextmanager
def places(work: Path) -> Iterator[tuple[Place, ...]]:
    """Run both servers for the block, or moto alone where Go cannot build the second one."""
    with ExitStack() as stack:
        servers = [stack.enter_context(moto())]
        with suppress(OSError, subprocess.CalledProcessError):
            servers.append(stack.enter_context(versitygw(work)))
        yield tuple(Place(server, stack.enter_context(in_front_of(server.url))) for server in servers)


# --- One copy -------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Attempt:
    """A trial that is tried at a place, below a directory of its own. `events` are what happened, in order."""

    trial: Trial
    log: Log
    place: Place
    work: Path
    outcomes: list[str] = field(default_factory=list)
    events: list[str] = field(default_factory=list)
    _others: Objects = field(default_factory=dict)
    """Objects that are none of the copy's."""
    _commands: int = 0

    @property
    def bucket(self) -> str:
        return f"run-{self.trial.seed}"

    @property
    def directories(self) -> list[str]:
        """The directories that the copy has."""
        return list(self.trial.chosen) or [SHARED, *self.log.expected.partitions]

    def problems(self) -> list[str]:
        """Make the copy, and return what is wrong, the first thing first."""
        self.place.server.make_bucket(self.bucket)
        self.work.mkdir()
        try:
            return self._problems()
        finally:
            self._remove(self.place.server.keys(self.bucket))
            self.place.server.client().delete_bucket(Bucket=self.bucket)
            shutil.rmtree(self.work)

    def _problems(self) -> list[str]:
        client = self.place.server.client()
        for key, content in BYSTANDERS.items():
            client.put_object(Bucket=self.bucket, Key=key, Body=content)
        if self.trial.has_neighbours:
            name = next(each for each in self.log.expected.partitions if each not in self.trial.chosen)
            neighbour = self._run(*self._clean_command([name]))
            if neighbour.code != 0:
                return [f"without faults: exit code {neighbour.code}: {neighbour.err}"]
        self._others = judge.read_objects(self.place.server, self.bucket)
        dice = random.Random(f"{self.trial.seed} damage")
        for number, faults in enumerate(self.trial.rounds):
            ran, problems = self._copied(faults)
            if problems:
                return [f"command {number + 1}: {each}" for each in problems]
            self.outcomes.append("copies despite faults" if ran.code == 0 else "copies that failed")
            if number == 0 and self.trial.is_damaged:
                self.outcomes.append("copies damaged later")
                self.events.append(
                    damage(self.place.server, self.bucket, self._key(dice.choice(self.directories)), dice)
                )
        return self._completed() or self._read()

    def _key(self, directory: str) -> str:
        return f"{PREFIX}/{directory}".rstrip("/")

    def _remove(self, keys: Sequence[str]) -> None:
        for key in keys:
            self.place.server.client().delete_object(Bucket=self.bucket, Key=key)

    def _clean_command(self, names: Sequence[str]) -> tuple[str | Path, ...]:
        sources = [self.log.directory / name for name in names] or [self.log.directory]
        return (*CLEAN, *sources, "--output", f"s3://{self.bucket}/{PREFIX}", *COMPACT)

    def _run(self, *words: str | Path, faults: tuple[Fault, ...] = ()) -> Ran:
        """Run a command in a child, with faults."""
        self._commands += 1
        keys = frozenset(self.place.server.keys(self.bucket))
        adversary = Adversary(
            self.place.server.client(), self.bucket, f"{self.trial.seed} {self._commands}", faults, keys
        )
        self.place.proxy.requests.clear()
        self.place.proxy.meddle = adversary.meddle
        ran = _ran_in_child(
            words, {**self.place.server.environment, "AWS_ENDPOINT_URL": self.place.proxy.url}, self.work
        )
        self.events += [f"$ kcompact {' '.join(map(str, words))}", *adversary.events, *ran.err.splitlines()]
        self.events.append(f"[exit code {ran.code}]")
        return ran

    # What a command has done

    def _copied(self, faults: tuple[Fault, ...] = ()) -> tuple[Ran, list[str]]:
        """Make the copy, or continue it, and return what is wrong with what the command says and does."""
        before = judge.read_objects(self.place.server, self.bucket)
        ran = self._run(*self._clean_command(self.trial.chosen), faults=faults)
        objects = judge.read_objects(self.place.server, self.bucket)
        complete = judge.called_complete(ran, self.directories, is_log_dir=not self.trial.chosen)
        problems = judge.report_problems(ran)
        for directory in self.directories:
            wrong = self._wrong(objects, directory)
            if wrong and directory in complete:
                problems += [f"called complete wrongly: {each}" for each in wrong]
            elif wrong and not self._wrong(before, directory):
                problems += [f"was complete before: {each}" for each in wrong]
        own = [*map(self._key, self.directories)]
        problems += judge.outside_problems(objects, before, self._others, own, trials=bool(faults))
        if "condition dropped" in {each.name for each in faults} and len(faults) == 1:
            problems += self._unconditional_problems(ran, before, objects)
        return ran, [f"{each} (exit code {ran.code})" for each in problems]

    def _wrong(self, objects: Objects, directory: str) -> list[str]:
        return judge.copy_problems(objects, PREFIX, directory, self.log.expected)

    def _unconditional_problems(self, ran: Ran, before: Objects, objects: Objects) -> list[str]:
        """Return what is wrong with a command on a store without conditional writes."""
        is_done = not any(self._wrong(before, directory) for directory in self.directories)
        return [] if is_done or (ran.code, objects) == (4, before) else ["uploads to a store that drops conditions"]

    def _completed(self) -> list[str]:
        """Run the command without faults until it succeeds, and remove each time what it says is in the way."""
        for _ in range(len(self.directories) + 1):
            ran, problems = self._copied()
            if problems or ran.code == 0:
                return [f"without faults: {each}" for each in problems]
            objects = judge.read_objects(self.place.server, self.bucket)
            named = judge.named_directories(ran, f"s3://{self.bucket}/{PREFIX}")
            if not any(self._wrong(objects, directory) for directory in self.directories):
                self.outcomes.append("whole copies that are refused")
                return [] if "exists already" in ran.err else [f"without faults, a whole copy is refused: {ran.err}"]
            if not named & set(self.directories):
                return [f"without faults: names nothing that is in the way: {ran.err}"]
            self.outcomes.append("copies in the way")
            for directory in named & set(self.directories):
                self._remove([key for key in objects if judge.is_of(key, PREFIX, directory)])
        return [f"not completed when all is removed that it names: {ran.err}"]

    # Reading

    def _read(self) -> list[str]:
        if not self.trial.reading:
            return []
        name = self.directories[-1]
        words, expected = self.trial.reading, self._answer(name)
        fetched = self.work / "fetched"
        more: tuple[str | Path, ...] = (fetched, *COMPACT) if words == FETCH else ()
        address = f"s3://{self.bucket}/{self._key(name)}"
        ran = self._run(*words, *more, address, faults=self.trial.faults_of_reading)
        self.outcomes.append("readings despite faults" if ran.code == 0 else "readings that failed")
        problems = judge.report_problems(ran, has_lines=words[0] == "records")
        if ran.code == 0:
            answer = _comparable(ran.out, address) if words != FETCH else read_files(fetched / name)
            problems += [] if answer == expected else [f"reads other than it is: {address}"]
        return [f"{' '.join(words)}, {', '.join(map(str, self.trial.faults_of_reading))}: {each}" for each in problems]

    def _answer(self, name: str) -> object:
        """Return what a command has to answer for a partition: the same as for the local copy."""
        if self.trial.reading == FETCH:
            return self.log.expected.files[name]
        ran = kcompact(*self.trial.reading, self.log.copy / name)
        assert ran.code == 0, ran.err
        return _comparable(ran.out, str(self.log.copy / name))


def _comparable(out: str, place: str) -> str:
    """Return the output of a command without the name of the place, durations, and what is not read from the copy."""
    return _NOT_OF_THE_COPY.sub("", out.replace(place, "PLACE"))


_NOT_OF_THE_COPY = re.compile(r'"(\w+_s|now_ms|(?:started|ended)_ms|explanation)": ("[^"]*"|[^,}\n]+)')


def _ran_in_child(words: Sequence[str | Path], environment: Mapping[str, str], work: Path) -> Ran:
    answer = work / "answer.json"

    def act() -> str:
        signal.setitimer(signal.ITIMER_REAL, PATIENCE_S)
        os.environ.update(environment)
        os.environ |= {"XDG_STATE_HOME": str(work), "AWS_EC2_METADATA_DISABLED": "true"}
        os.environ |= {"AWS_CONFIG_FILE": "/dev/null", "AWS_SHARED_CREDENTIALS_FILE": "/dev/null"}
        tempfile.tempdir = str(work)
        repeat_soon()
        answer.write_text(json.dumps(kcompact(*words)))
        return ""

    problem = in_child(act)
    return Ran(-1, "", problem) if problem else Ran(*json.loads(answer.read_text()))


def repeat_soon() -> None:
    """Have the client repeat requests in this process at once, as often as ever."""
    ExponentialBackoff.delay_amount = lambda self, context: 0.001


def main(seed: str) -> int:
    """Run one trial, and print all that happened."""
    trial = trial_of(seed)
    with scratch() as directory, places(directory) as found:
        log = Log.made(directory / "log", trial.log)
        place = found[-1 if trial.on_second_server else 0]
        attempt = Attempt(trial, log, place, directory / "run")
        problems = attempt.problems()
    print(*attempt.events, "", str(trial), *(problems or ["nothing is wrong"]), sep="\n")
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
