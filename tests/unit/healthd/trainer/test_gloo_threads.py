"""The end of a process waits for the threads of gloo's that have not let go of their tensors yet."""

from __future__ import annotations

import atexit
import ctypes
import threading
import zlib

import pytest

from healthd.trainer.adapters import gloo_threads
from healthd.trainer.adapters.process_group import shared_by_group
from healthd.trainer.adapters.pytorch_ranks import Ranks
from healthd.trainer.exchange import ExchangeLimits

SET_NAME = 15  # prctl(2): PR_SET_NAME
BLOCK = bytes(2_000_000)


def test_it_waits_for_a_thread_that_is_at_work() -> None:
    stop, begun = threading.Event(), threading.Event()

    def work() -> None:
        ctypes.CDLL(None).prctl(SET_NAME, gloo_threads.NAME.encode())
        begun.set()
        while not stop.is_set():
            zlib.crc32(BLOCK)  # without the interpreter, as gloo

    thread = threading.Thread(target=work)
    waiting = threading.Thread(target=gloo_threads.wait_for_gloo_threads)
    thread.start()
    begun.wait()
    waiting.start()
    waiting.join(gloo_threads.MOST_SECONDS / 4)
    assert waiting.is_alive()
    stop.set()
    thread.join()
    waiting.join(gloo_threads.MOST_SECONDS)
    assert not waiting.is_alive()


def test_it_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gloo_threads, "NAME", "")
    monkeypatch.setattr(gloo_threads, "_name_and_state", lambda _stat: ("", "R"))
    monkeypatch.setattr(gloo_threads, "MOST_SECONDS", 0.01)
    gloo_threads.wait_for_gloo_threads()


@pytest.mark.torch
@pytest.mark.parametrize(
    "use", [shared_by_group, lambda: Ranks(ExchangeLimits(10.0))], ids=["the job's group", "a group of ours"]
)
def test_whoever_uses_a_gloo_group_waits_at_the_end(group: None, use: object) -> None:
    atexit.unregister(gloo_threads.wait_for_gloo_threads)
    before = atexit._ncallbacks()
    assert callable(use)
    use()
    assert atexit._ncallbacks() == before + 1
