"""The test of host memory on real memory, and the arithmetic around it on machines that are folders."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight.check_context import Context
from preflight.checks import host_memory
from preflight.host import edac_counters
from preflight.host.edac_counters import ModuleErrors
from preflight.host.host_patterns import TILE_WORDS, build_tile, derive_block_key, find_wrong_words, write_block
from preflight.host.memory_budget import compute_memory_budget, distribute_over_zones
from preflight.host.memory_shares import PIECE_BYTES, OomVictimPreference, StepTiming, compute_zone_rates
from preflight.results import Outcome, Result
from tests.nodes.machines import dgx
from vocabulary.hardware.machine_files import Machine

GIB = 1 << 30


def machine(root: Path, files: dict[str, str] | None = None, available_mib: int = 1450) -> Machine:
    """A machine that says it has two gigabytes, so that a test takes little of this one."""
    dgx.write(root, "/proc/meminfo", f"MemTotal: {2 << 20} kB\nMemAvailable: {available_mib << 10} kB")
    for path, text in (files or {}).items():
        dgx.write(root, path, text)
    return Machine(root)


def the(fault: str, on: Machine) -> Result:
    notes: list[str] = []
    context = Context(device=None, devices=(), level="gate", seconds=0.05, fault=fault, note=notes.append)
    (result,) = host_memory.check_host_memory(context, on)
    assert notes[0] == "allocating host memory"
    return result


def test_good_memory_passes_with_every_rate_and_gives_all_of_it_back(tmp_path: Path) -> None:
    affinity = os.sched_getaffinity(0)
    result = the("", machine(tmp_path))
    assert result.outcome is Outcome.PASS, result.reason
    assert {figure.name for figure in result.figures} == {"host_write_rate", "host_verify_rate", "host_copy_rate"}
    assert all(figure.value > 0 and figure.unit == "GB/s" and "threads" in figure.setting for figure in result.figures)
    assert int(result.evidence["bytes"]) >= 4 * PIECE_BYTES
    assert int(result.evidence["patterns"]) >= 2
    assert os.sched_getaffinity(0) == affinity


def test_one_flipped_bit_is_found_and_placed(tmp_path: Path) -> None:
    result = the("bit_flip", machine(tmp_path))
    assert result.outcome is Outcome.FAIL
    assert (result.evidence["wrong_words"], result.evidence["wrong_bits"]) == (1, f"{1 << 21:#018x}")
    assert "1 wrong words in pattern 1" in result.reason
    assert "wrong when read again" in result.reason
    (location,) = result.locations
    assert int(location.address, 16) % PIECE_BYTES == 77 * 8
    assert not location.page or int(location.page, 16) % 4096 == 77 * 8


def test_slow_memory_shows_in_its_rate(tmp_path: Path) -> None:
    def copying(fault: str) -> float:
        return next(f.value for f in the(fault, machine(tmp_path)).figures if f.name == "host_copy_rate")

    assert max(copying("slow") for _ in range(2)) < max(
        copying("") for _ in range(3)
    )  # ten times, and what else runs here


def test_little_room_is_no_conclusion(tmp_path: Path) -> None:
    context = Context(device=None, devices=(), level="gate", seconds=0.05, fault="", note=lambda _: None)
    (result,) = host_memory.check_host_memory(context, machine(tmp_path, available_mib=1100))
    assert result.outcome is Outcome.ERROR
    assert "MiB of host memory can be allocated" in result.reason


def test_others_keep_what_they_need(tmp_path: Path) -> None:
    def at(level: str, available_gib: float, files: dict[str, str] | None = None) -> float:
        dgx.write(tmp_path, "/proc/meminfo", f"MemTotal: {100 << 20} kB\nMemAvailable: {int(available_gib * 2**20)} kB")
        for path, text in (files or {}).items():
            dgx.write(tmp_path, path, text)
        return compute_memory_budget(Machine(tmp_path), level) / GIB

    assert at("burn-in", 90) == pytest.approx(72)
    assert at("standard", 90) == pytest.approx(45)
    assert at("burn-in", 15) == pytest.approx(5)  # a tenth of all memory stays
    assert at("burn-in", 5) == 0
    two = {
        "/proc/self/cgroup": "0::/system.slice/job_7\n",
        "/sys/fs/cgroup/system.slice/memory.max": str(20 * GIB),
        "/sys/fs/cgroup/system.slice/memory.current": str(2 * GIB),
        "/sys/fs/cgroup/system.slice/memory.stat": f"anon 5\ninactive_file {1 * GIB}",
        "/sys/fs/cgroup/system.slice/job_7/memory.max": "max",
        "/sys/fs/cgroup/system.slice/job_7/memory.current": str(1 * GIB),
    }
    assert at("standard", 90, two) == pytest.approx(9)  # the group above allows nineteen, less ten in reserve
    one = {
        "/proc/self/cgroup": "4:cpu,memory:/a\n",
        "/sys/fs/cgroup/memory/memory.limit_in_bytes": str(9223372036854771712),
        "/sys/fs/cgroup/memory/memory.usage_in_bytes": "1",
        "/sys/fs/cgroup/memory/a/memory.limit_in_bytes": str(12 * GIB),
        "/sys/fs/cgroup/memory/a/memory.usage_in_bytes": "0",
    }
    assert at("standard", 90, one) == pytest.approx(2)
    assert compute_memory_budget(Machine(tmp_path / "nothing"), "gate") == 0


def numa(root: Path, *nodes: tuple[str, int]) -> Machine:
    dgx.write(root, "/sys/devices/system/node/online", f"0-{len(nodes) - 1}")
    for number, (cpus, free_gib) in enumerate(nodes):
        where = f"/sys/devices/system/node/node{number}"
        dgx.write(root, f"{where}/cpulist", cpus)
        dgx.write(root, f"{where}/meminfo", f"Node {number} MemTotal: 1 kB\nNode {number} MemFree: {free_gib << 20} kB")
    return Machine(root)


def test_each_memory_node_is_tested_from_its_own_processors(tmp_path: Path) -> None:
    near, far = distribute_over_zones(numa(tmp_path, ("0-1", 30), ("2-60", 10), ("", 96)), 8 * GIB, range(40))
    assert (near.cpus, near.threads, near.bytes_) == ((0, 1), 2, 6 * GIB)
    assert (far.cpus[-1], far.threads, far.bytes_) == (39, 16, 2 * GIB)
    (only,) = distribute_over_zones(Machine(tmp_path / "nothing"), GIB, [0, 3])
    assert (only.cpus, only.bytes_) == ((0, 3), GIB)


def test_rates_are_of_each_node_from_first_to_last() -> None:
    done = [
        StepTiming(0, 1.0, 2.0, 10**9),
        StepTiming(0, 1.5, 3.0, 10**9),
        StepTiming(1, 1.0, 2.0, 3 * 10**9),
        StepTiming(2, 1.0, 1.0, 1),
    ]
    assert compute_zone_rates(done) == {0: 1.0, 1: 3.0}


def controller(root: Path, corrected: int, uncorrected: int, unknown: int) -> Machine:
    where = "/sys/devices/system/edac/mc/mc0"
    for path, text in {
        "dimm3/dimm_label": "CPU0_C1",
        "dimm3/dimm_ce_count": corrected,
        "dimm3/dimm_ue_count": uncorrected,
        "ce_noinfo_count": unknown,
        "ue_noinfo_count": 0,
    }.items():
        dgx.write(root, f"{where}/{path}", str(text))
    return Machine(root)


def test_modules_that_had_errors_during_the_test_are_named(tmp_path: Path) -> None:
    before = edac_counters.read_edac_counts(controller(tmp_path, 5, 1, 0))
    faults, remarks = edac_counters.judge_edac_growth(
        before, edac_counters.read_edac_counts(controller(tmp_path, 8, 2, 3))
    )
    assert faults == ("mc0 CPU0_C1: 1 uncorrectable memory errors during the test; replace the module",)
    assert remarks[0] == "mc0 CPU0_C1: 3 corrected memory errors during the test"
    assert remarks[-1] == "mc0, module unknown: 3 corrected memory errors during the test"
    (storm,), _ = edac_counters.judge_edac_growth(
        {"a": ModuleErrors(0, 0)}, {"a": ModuleErrors(edac_counters.CORRECTED_MAX + 1, 0)}
    )
    assert "101 corrected" in storm
    assert edac_counters.judge_edac_growth(before, before)[0] == ()
    assert edac_counters.read_edac_counts(Machine(tmp_path / "nothing")) == {}


def test_counters_alone_fail_the_memory() -> None:
    result = host_memory.judge_host_memory(host_memory.MemoryFindings((), 1, 2), (("mc0 A: bad",), ()), 1)
    assert (result.outcome, result.reason) == (Outcome.FAIL, "mc0 A: bad")


TILE = build_tile(7)


@given(
    pattern=st.integers(0, 9),
    block=st.integers(0, 1 << 20),
    place=st.integers(0, 2 * TILE_WORDS - 1),
    bit=st.integers(0, 63),
)
def test_any_wrong_bit_anywhere_is_found(pattern: int, block: int, place: int, bit: int) -> None:
    words, scratch = np.empty(2 * TILE_WORDS, dtype=np.uint64), np.empty(TILE_WORDS, dtype=np.uint64)
    mark = derive_block_key(pattern, block)
    write_block(words, TILE, mark)
    assert find_wrong_words(words, TILE, mark, scratch, 8) == (0, ())
    before = int(words[place])
    words[place] ^= np.uint64(1 << bit)
    count, (one,) = find_wrong_words(words, TILE, mark, scratch, 8)
    assert (count, one.offset, one.expected, one.found) == (1, 8 * place, before, before ^ 1 << bit)


@given(st.integers(0, 1000), st.integers(0, 1 << 30), st.integers(0, 1 << 30))
def test_no_two_blocks_are_alike_and_patterns_come_in_complements(pattern: int, one: int, other: int) -> None:
    assert (derive_block_key(pattern, one) == derive_block_key(pattern, other)) == (one == other)
    assert derive_block_key(2 * pattern, one) ^ derive_block_key(2 * pattern + 1, one) == (1 << 64) - 1


def test_a_block_that_answers_for_another_is_wrong_everywhere_and_a_short_one_is_whole() -> None:
    words, scratch = np.empty(TILE_WORDS + 100, dtype=np.uint64), np.empty(TILE_WORDS, dtype=np.uint64)
    write_block(words, TILE, derive_block_key(0, 1))
    count, listed = find_wrong_words(words, TILE, derive_block_key(0, 2), scratch, 3)
    assert (count, len(listed)) == (words.size, 3)


def test_the_test_goes_first_when_memory_is_short_and_is_as_before_afterwards() -> None:
    score = Path("/proc/self/oom_score_adj")
    before = score.read_text()
    with OomVictimPreference():
        assert score.read_text().strip() == "1000"
    assert score.read_text() == before
