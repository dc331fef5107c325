"""The end of a process waits for the threads of gloo's that have not let go of their tensors yet."""

from __future__ import annotations

import atexit
import ctypes
import subprocess
import sys
import threading
import zlib

import pytest

from healthd.trainer.adapters import gloo_threads
from healthd.trainer.adapters.process_group import shared_by_group
from healthd.trainer.adapters.pytorch_rank_channel import RankChannel
from healthd.trainer.exchange_limits import ExchangeLimits

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
    monkeypatch.setattr(gloo_threads, "_parse_name_and_state", lambda _stat: ("", "R"))
    monkeypatch.setattr(gloo_threads, "MOST_SECONDS", 0.01)
    gloo_threads.wait_for_gloo_threads()


@pytest.mark.torch
@pytest.mark.parametrize(
    "use", [shared_by_group, lambda: RankChannel(ExchangeLimits(10.0))], ids=["the job's group", "a group of ours"]
)
def test_whoever_uses_a_gloo_group_waits_at_the_end(group: None, use: object) -> None:
    atexit.unregister(gloo_threads.wait_for_gloo_threads)
    before = atexit._ncallbacks()
    assert callable(use)
    use()
    assert atexit._ncallbacks() == before + 1


FORKED = """
import gc, os, signal
import torch.distributed as dist
from healthd.trainer.adapters.gloo_threads import contain_gloo_threads

contain_gloo_threads()

class Cycle:
    pass

dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
dist.barrier()
cycle = Cycle()
cycle.itself, cycle.group = cycle, dist.group.WORLD
dist.destroy_process_group()
del cycle
gc.disable()
if not (child := os.fork()):
    signal.alarm(20)
    gc.collect()
    os._exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.torch
def test_a_forked_process_leaves_the_groups_of_the_past_alone() -> None:
    """As a DataLoader worker of a job whose lost ranks were replaced."""
    argv = [sys.executable, "-W", "ignore", "-c", FORKED]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "0"
