"""The libraries of the codecs: one thread at a time opens them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from kcompact.kernels import columns as c
from kcompact.kernels import libraries


def test_one_thread_at_a_time_opens_a_codec(monkeypatch: pytest.MonkeyPatch) -> None:
    inside, most = [0], [0]

    def opening(words: memoryview) -> Iterator[Callable[[], None]]:
        inside[0] += 1
        most[0] = max(most[0], inside[0])
        time.sleep(0.01)
        inside[0] -= 1
        yield from ()

    monkeypatch.setattr(libraries, "_OPENERS", {c.ZSTD: opening, c.LZ4: opening})
    threads = [threading.Thread(target=libraries.Codecs().open, args=(codec,)) for codec in (c.ZSTD, c.LZ4) * 3]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1]
