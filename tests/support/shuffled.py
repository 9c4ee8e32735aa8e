"""An executor that does the same work in a random order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from kcompact.host.throttle import Pace, Throttle
from kcompact.stages.executor import Argument, Bucket, Executor, Job, Part, Progress, Result, Scan, Stages, Whole
from kcompact.stages.job import Split

PACE = Pace(Throttle(None))


@dataclass(frozen=True, slots=True, kw_only=True)
class Shuffled:
    """An executor that runs the tasks in a random order and reduces the blocks in another random order."""

    seed: int
    parallelism: int = 3
    is_on_other_machines: bool = False
    name: str = "shuffled"
    progress: Progress = field(default_factory=Progress)
    whole_bytes: int = -1

    def run_whole(
        self, work: Callable[[Executor, int | None, Argument], Result], argument: Argument, whole: Whole
    ) -> Result:
        return work(self, whole.memory_bytes, argument)

    def scan_and_reduce(
        self, job: Job, tasks: Sequence[Sequence[Split]], stages: Stages[Job, Scan, Bucket]
    ) -> tuple[list[Scan], list[Bucket]]:
        random = np.random.default_rng(self.seed)
        summaries: list[Scan] = []
        buckets: dict[int, list[bytes]] = {}
        for number in random.permutation(len(tasks)):
            found = stages.scan(job, tasks[number], PACE)
            while True:
                try:
                    bucket, block = next(found)
                except StopIteration as end:
                    summaries += end.value
                    break
                buckets.setdefault(bucket, []).append(block)
        reduced = []
        for bucket in random.permutation(list(buckets)):
            blocks_of_bucket = buckets[bucket]
            shuffled = [blocks_of_bucket[at] for at in random.permutation(len(blocks_of_bucket))]
            reduced.append(stages.reduce(job, shuffled))
        return summaries, reduced

    def run(
        self, stage: str, job: Job, tasks: Sequence[Sequence[Part]], work: Callable[[Job, Part, Pace], Result]
    ) -> list[Result]:
        order = np.random.default_rng(self.seed).permutation(len(tasks))
        return [work(job, part, PACE) for number in order for part in tasks[number]]
