"""What more workers are worth, on paper: `python -m bench.scale_out --task-s 3.1 --driver-s 0.007`.

Simulates a round on Spark in which each partition is a task. The driver is one thread: it prepares a partition before
its task, and swaps it afterwards. Tasks go to the first free slot, as many partitions in flight as the real driver has
threads. All terms come from measurements of a real cluster (`docs/spark.md`).
"""

from __future__ import annotations

import argparse
import heapq
from collections import deque
from dataclasses import dataclass

from kcompact.cleaner.engines import MIN_THREADS, THREADS_PER_SLOT


@dataclass(frozen=True, kw_only=True)
class Terms:
    """The seconds of one partition: its task, Spark's part of a task, the driver before and after, all serial there."""

    task_s: float
    spark_s: float
    before_s: float
    after_s: float


def makespan_s(terms: Terms, *, partitions: int, slots: int) -> float:
    """Return how long a round takes, without the start of Spark and the planning."""
    threads = max(MIN_THREADS, THREADS_PER_SLOT * slots)
    waiting = deque[float]()  # When each task became ready to run.
    swaps: list[float] = []  # Tasks that have ended and are not swapped.
    running: list[float] = []
    driver_free = 0.0
    begun = swapped = 0
    free_slots = [0.0] * slots
    while swapped < partitions:
        # The driver does what is ready first: a swap, or the beginning of a partition if a thread is free.
        can_begin = begun < partitions and begun - swapped < threads
        next_swap = min(swaps, default=min(running, default=float("inf")))
        if can_begin and (driver_free < next_swap or not (swaps or running)):
            driver_free += terms.before_s
            begun += 1
            waiting.append(driver_free)
        else:
            driver_free = max(driver_free, next_swap) + terms.after_s
            (swaps if swaps else running).remove(next_swap)
            swapped += 1
        while waiting and len(running) + len(swaps) < threads:
            slot = heapq.heappop(free_slots)
            end = max(slot, waiting.popleft()) + terms.spark_s + terms.task_s
            heapq.heappush(free_slots, end)
            running.append(end)
    return driver_free


def efficiency(terms: Terms, *, partitions: int, slots: int) -> float:
    """Return the part of the slots' time in which they do the work of tasks."""
    return partitions * terms.task_s / (slots * makespan_s(terms, partitions=partitions, slots=slots))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--task-s", type=float, required=True, help="of a partition of 1 GB on one core")
    parser.add_argument("--spark-s", type=float, default=0.02, help="of a slot, between two tasks")
    parser.add_argument("--driver-s", type=float, required=True, help="of the Python driver, for a partition")
    parser.add_argument("--partitions", type=int, default=10_000)
    wanted = parser.parse_args()
    terms = Terms(
        task_s=wanted.task_s, spark_s=wanted.spark_s, before_s=wanted.driver_s / 3, after_s=wanted.driver_s * 2 / 3
    )
    print("| slots | minutes | efficiency |\n|---|---|---|")
    for slots in (1, 2, 10, 20, 60, 100, 200, 400):
        took_s = makespan_s(terms, partitions=wanted.partitions, slots=slots)
        print(f"| {slots} | {took_s / 60:.1f} | {wanted.partitions * terms.task_s / (slots * took_s):.2f} |")


if __name__ == "__main__":
    main()
