"""One pair between nodes: two threads of this process over gloo, on a simulated `cuda` too."""

from __future__ import annotations

import contextlib
import threading
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.distributed import HashStore, PrefixStore, ProcessGroupGloo  # noqa: E402 - torch is optional

from preflight.group.group_records import RailMeasurement  # noqa: E402 - torch is optional
from preflight.group.pair_transfer import ExchangeRequest, GroupRail, exchange_payloads  # noqa: E402 - torch is optional
from tests.unit.preflight.simulated_cuda import Event, install_cuda  # noqa: E402 - torch is optional

pytestmark = [pytest.mark.torch, pytest.mark.timeout(60)]
WORDS = 1 << 10


class GlooForNccl:
    """NCCL's process group as far as the transfer uses it."""

    class Options:
        """Its options."""

    def __new__(cls, store: Any, rank: int, size: int, options: Any) -> Any:
        return ProcessGroupGloo(store, rank, size, options._timeout)


def exchange(device: str, *, corrupt: bool = False) -> dict[int, RailMeasurement]:
    """The results of both sides."""
    store, rail = HashStore(), GroupRail(device=device)
    found: dict[int, RailMeasurement] = {}

    def run(side: int) -> None:
        what = ExchangeRequest(seed=7, side=side, seconds=20.0, words=WORDS, corrupt=corrupt and side == 0)
        with contextlib.suppress(RuntimeError):  # the other side may have left with its answer
            found[side] = exchange_payloads(PrefixStore("pair", store), rail, what, lambda _: None)

    threads = [threading.Thread(target=run, args=(side,)) for side in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


@pytest.fixture(autouse=True)
def _on_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    monkeypatch.setattr(torch.distributed, "ProcessGroupNCCL", GlooForNccl, raising=False)


def test_transfers_of_a_gpu_are_timed_by_its_events(monkeypatch: pytest.MonkeyPatch) -> None:
    state = install_cuda(monkeypatch)

    class Slow(Event):
        def elapsed_time(self, other: Event) -> float:
            assert super().elapsed_time(other) >= 0
            return 8.0

    monkeypatch.setattr(torch.cuda, "Event", Slow)
    assert [one.rate for one in exchange("cuda:1").values()] == pytest.approx([8 * WORDS / 8e-3 / 1e9] * 2)
    assert state.contexts == {1}, "no other GPU is used"


def test_transfers_of_the_host_are_timed_by_its_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "Event", None)
    assert all(one.rate and not one.wrong_words for one in exchange("cpu").values())


@pytest.mark.parametrize("device", ["cpu", "cuda:1"])
def test_a_flipped_bit_is_found_at_the_other_end(monkeypatch: pytest.MonkeyPatch, device: str) -> None:
    install_cuda(monkeypatch)
    assert exchange(device, corrupt=True)[1].wrong_words == 1
