"""The tests of memory on a little of the host's, sound and with each fault committed."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
import torch

from preflight.check_context import Context, Device
from preflight.checks import cache_pattern, memory_bandwidth, memory_pattern, memory_retention, memory_traffic
from preflight.checks.cache_sizes import read_host_cache_bytes
from preflight.checks.memory_allocation import allocate_test_memory, count_disagreements
from preflight.kernels.memory_errors import Piece
from preflight.kernels.memory_patterns import FULL, GATE, Pattern
from preflight.kernels.torch_memory import TorchWay
from preflight.results import Figure, Outcome, Result

pytestmark = pytest.mark.torch
HOST = "torch, 1 thread of the host"
DEVICES = 64  # so many share the cache, that little of it is each one's
Run = Callable[[Context], Iterator[Result]]
EVERY: tuple[Run, ...] = (
    memory_pattern.check_memory_pattern,
    memory_retention.check_memory_retention,
    memory_bandwidth.check_memory_bandwidth,
    cache_pattern.check_cache_pattern,
)


@pytest.fixture(autouse=True)
def _as_a_process_of_its_own(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def device(memory_bytes: int = 1 << 20) -> Device:
    return Device(name="cpu:1", torch_name="cpu", index=1, label="host memory", memory_bytes=memory_bytes)


def context(fault: str = "", level: str = "gate", told: list[str] | None = None, seconds: float = 0.0) -> Context:
    note = (told if told is not None else []).append
    devices = (device(),) * DEVICES
    return Context(device=devices[1], devices=devices, level=level, seconds=seconds, fault=fault, note=note)


def one(run: Run, fault: str = "", level: str = "gate", told: list[str] | None = None, seconds: float = 0.0) -> Result:
    (result,) = run(context(fault, level, told, seconds))
    assert result.device == "cpu:1"
    return result


def figures(result: Result) -> dict[str, Figure]:
    return {figure.name: figure for figure in result.figures}


@pytest.mark.parametrize("run", EVERY, ids=lambda run: run.__module__.rpartition(".")[2])
def test_sound_memory_passes_and_what_is_told_names_the_device(run: Run) -> None:
    told: list[str] = []
    result = one(run, told=told)
    assert (result.outcome, result.reason) == (Outcome.PASS, "")
    assert result.evidence["way"] == "torch"
    assert told
    assert all("cpu:1" in each for each in told)
    assert all(figure.value > 0 for figure in result.figures)


@pytest.mark.parametrize("run", EVERY, ids=lambda run: run.__module__.rpartition(".")[2])
def test_a_test_of_a_device_says_nothing_of_a_node(run: Run) -> None:
    assert list(run(msgspec.structs.replace(context(), device=None))) == []


def test_a_pattern_test_says_how_much_it_went_over_how_often_and_how_fast() -> None:
    gate, full = one(memory_pattern.check_memory_pattern), one(memory_pattern.check_memory_pattern, level="burn-in")
    assert (gate.evidence["patterns"], full.evidence["patterns"]) == (len(GATE), len(FULL))
    assert (1 << 20) - 32 <= int(gate.evidence["bytes"]) <= 1 << 20
    rates = figures(gate)
    assert {name: figure.setting for name, figure in rates.items()} == {
        "write_rate": f"random, {HOST}",
        "verify_rate": f"random, {HOST}",
        "rewrite_rate": f"4 patterns, {HOST}",
    }
    assert {figure.unit for figure in rates.values()} == {"GB/s"}


def test_rounds_go_on_for_as_long_as_the_level_says() -> None:
    told: list[str] = []
    result = one(memory_pattern.check_memory_pattern, told=told, seconds=0.3)
    assert int(result.evidence["rounds"]) >= 1
    assert f"cpu:1: round {result.evidence['rounds']}, walking ones" in told


@pytest.mark.parametrize(
    ("fault", "kind", "says"),
    [
        (
            "bit_flip",
            "changed_once",
            "1 wrong read in random: correct after being rewritten; first: allocation 1 +",
        ),
        ("stuck_bit", "stuck_bit", "bit 42 of one word is stuck at 1"),
        ("stuck_line", "data_line", "bit 13 of many words"),
        ("alias", "alias", "they differ in bit 18 of the address"),
    ],
)
def test_each_fault_of_memory_is_found_named_and_placed(fault: str, kind: str, says: str) -> None:
    result = one(memory_pattern.check_memory_pattern, fault)
    assert (result.outcome, result.evidence["kind"]) == (Outcome.FAIL, kind)
    assert says in result.reason
    assert result.locations
    assert result.figures == ()


def test_a_flipped_bit_is_placed_to_the_byte() -> None:
    words = (1 << 20) // 8
    first, second = words * 2 // 3 | 1, words // 3 - 2 | 1
    result = one(memory_pattern.check_memory_pattern, "bit_flip")
    offset = second * 2 // 3 * 8
    assert [each.address for each in result.locations] == [f"{first * 8 + offset:#x}"]
    assert result.locations[0].page == f"allocation 1, virtual page {offset >> 16} of 64 KiB, 0 of 2 MiB"
    assert result.evidence["bit_histogram"] == "21: 1"


class HitOnce(TorchWay):
    """Memory in which the first word ever written loses a bit."""

    def __init__(self) -> None:
        super().__init__()
        self._hit = False

    def write(self, piece: Piece, pattern: Pattern) -> None:
        super().write(piece, pattern)
        if not self._hit:
            piece.memory[0] ^= 1
        self._hit = True


def test_an_error_met_while_rates_are_taken_counts() -> None:
    room = allocate_test_memory(device(), lambda _: None)._replace(way=HitOnce())
    result = memory_pattern.verify_test_memory(context(), room)
    assert (result.outcome, result.evidence["kind"], result.evidence["rounds"]) == (Outcome.FAIL, "changed_once", 0)
    assert [each.address for each in result.locations] == ["0x0"]


def test_an_error_met_while_the_cache_is_made_ready_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    room, windows = cache_pattern._allocate_windows(context(), device())
    monkeypatch.setattr(cache_pattern, "_allocate_windows", lambda *_: (room._replace(way=HitOnce()), windows))
    result = one(cache_pattern.check_cache_pattern)
    assert (result.outcome, result.evidence["kind"], result.evidence["rounds"]) == (Outcome.FAIL, "changed_once", 0)
    assert [each.address for each in result.locations] == ["0x0"]


def test_two_ways_that_disagree_on_a_device_are_told() -> None:
    assert count_disagreements(TorchWay(), device()) == 0
    assert count_disagreements(HitOnce(), device()) == 1


def test_charge_that_cells_lose_while_they_are_held_is_told_from_a_broken_cell() -> None:
    told: list[str] = []
    result = one(memory_retention.check_memory_retention, "decay", told=told)
    assert (result.outcome, result.evidence["kind"]) == (Outcome.FAIL, "decayed")
    assert "correct right after the write" in result.reason
    assert result.evidence["bit_histogram"] == "30: 32"
    assert int(result.evidence["bursts"]) == 2
    assert told[-1] == "cpu:1: errors found; checking again without the hold time"


@pytest.mark.parametrize(
    ("fault", "traffic", "kind", "says"),
    [
        ("wrong_copy", "copy_rate", "mismoved", "1 wrong read in random: the copy differs from the source"),
        ("skipped_copy", "copy_rate", "mismoved", "the copy was not done"),
        ("wrong_read", "read_rate", "misread", "a read or an addition was wrong"),
    ],
)
def test_traffic_that_lies_is_found_however_fast_it_was(fault: str, traffic: str, kind: str, says: str) -> None:
    result = one(memory_bandwidth.check_memory_bandwidth, fault)
    assert (result.outcome, result.evidence["traffic"], result.evidence["kind"]) == (Outcome.FAIL, traffic, kind)
    assert says in result.reason


def test_rates_are_medians_of_three_rounds_at_least_and_say_what_they_depend_on() -> None:
    result = one(memory_bandwidth.check_memory_bandwidth)
    assert result.evidence["rounds"] == 3
    assert set(figures(result)) == {"copy_rate", "write_rate", "read_rate"}
    assert all(figure.setting == HOST for figure in result.figures)
    for name, figure in figures(result).items():
        assert 0 < float(result.evidence[f"{name}_lowest"]) <= figure.value + 0.001


def test_a_buffer_that_a_cache_holds_is_remarked_on() -> None:
    held = one(memory_bandwidth.check_memory_bandwidth).remarks
    assert bool(held) == (2 * read_host_cache_bytes() > 1 << 20)
    assert all("the rates partly measure the cache" in remark for remark in held)


def test_a_slow_copy_moves_all_words_as_often_as_it_says_and_they_are_right() -> None:
    room = allocate_test_memory(device(), lambda _: None)
    calls: list[int] = []

    class Counted(memory_traffic.MemoryTraffic):
        def _copy(self) -> None:
            before = self._targets[0].memory._version
            super()._copy()
            calls.append(self._targets[0].memory._version - before)

    for fault in ("", "slow_copy"):
        assert not Counted(room, fault).copy(1).wrong
    assert calls == [1, memory_traffic.SLOW_TIMES]


def test_the_whole_window_of_a_cache_is_read_many_times() -> None:
    told: list[str] = []
    result = one(cache_pattern.check_cache_pattern, told=told)
    assert result.evidence["window_bytes"] == cache_pattern.choose_window_bytes(device(), DEVICES)
    assert f"each read {cache_pattern.REPEATS} times" in told[-1]
    assert figures(result)["cache_rate"].setting.endswith(f"KiB verified, {HOST}")


@pytest.mark.parametrize(("fault", "kind"), [("bit_flip", "changed_once"), ("stuck_bit", "stuck_bit")])
def test_a_fault_of_a_cache_is_found_in_every_reading(fault: str, kind: str) -> None:
    result = one(cache_pattern.check_cache_pattern, fault)
    assert (result.outcome, result.evidence["kind"]) == (Outcome.FAIL, kind)
    assert int(result.evidence["wrong_reads"]) % cache_pattern.REPEATS == 0
    assert result.evidence["wrong_words"] == 1


def test_the_size_of_a_cache_is_the_largest_that_the_kernel_tells(tmp_path: Path) -> None:
    for index, size in enumerate(("48K", "2048K", "1G\n", "?")):
        (tmp_path / f"index{index}").mkdir()
        (tmp_path / f"index{index}" / "size").write_text(size)
    assert read_host_cache_bytes(tmp_path) == 1 << 30
    assert read_host_cache_bytes(tmp_path / "none") == 0


@pytest.mark.skipif(bool(importlib.util.find_spec("triton")), reason="there is a Triton here")
def test_where_triton_is_wanted_and_missing_torch_does_it_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    result = one(memory_pattern.check_memory_pattern)
    assert (result.outcome, result.evidence["way"]) == (Outcome.PASS, "torch")
    (remark,) = result.remarks
    assert "Triton does not work here (No module named 'triton'): torch wrote and verified" in remark
