"""Small disks that fill up."""

from tests.torture.tally import Tally


def run(*, share: float, seed: int) -> Tally:
    return Tally()
