"""Triton compiles for a GPU without one: so the kernels that ran here through numpy are known to be accepted, and what they cost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("triton")
from bench.gpu.instruction_counts import REGISTER_STEP, REGISTERS, WARPS
from preflight.kernels.on_chip_words import HELD_WORDS

ROOT = Path(__file__).parents[4]
OLDEST = ROOT / "build" / "triton-oldest"  # made by `make test`
REGISTERS_MAX = 72  # so that seven programs of 128 threads run at once, and read 56 KiB of a multiprocessor's share
# Half of the instruction slots stay free at the data sheet's bandwidth: latencies do not overlap perfectly.
GATE_SHARE_MIN, ANY_SHARE_MIN = 1.9, 1.0
# Of each multiprocessor, by the programs that its registers allow at once. Shared memory is 100 KiB at least.
HELD_SHARE_MIN, SHARED_BYTES_MIN, L1_PROGRAMS_MIN = 0.6, 96 << 10, 12
OVER_MEMORY = ("write ", "verify ")


def compile_all(*arguments: str, path: str = "") -> dict[str, Any]:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-m", "bench.gpu.compiled_kernels", "--json", *arguments],
        env={**environment, "PYTHONPATH": path},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def assert_memory_kernels_are_cheap(found: dict[str, Any]) -> None:
    for name, cost in found.items():
        architecture, _, kernel = name.partition(" ")
        assert cost["spilled_bytes"] == 0, name
        if not kernel.startswith(OVER_MEMORY):
            continue
        assert cost["registers"] <= REGISTERS_MAX, name
        accesses = [op for op in cost["healthy"] if op.startswith(("LDG", "STG"))]
        assert accesses, name
        assert all(op.endswith(".128") for op in accesses), name
        gate = kernel in {each.partition(" ")[2] for each in found if each.startswith("100")} or architecture != "90"
        assert cost["share"] >= (GATE_SHARE_MIN if gate else ANY_SHARE_MIN), name


def assert_on_chip_kernels_fill_a_multiprocessor(found: dict[str, Any]) -> None:
    for name, cost in found.items():
        kernel = name.partition(" ")[2]
        programs = REGISTERS // (-(-cost["registers"] // REGISTER_STEP) * REGISTER_STEP * 32 * WARPS)
        ptx = cost["ptx"]
        if kernel == "registers":
            assert programs * HELD_WORDS / REGISTERS >= HELD_SHARE_MIN, name
            assert ptx.count("xor.b32") >= HELD_WORDS // (32 * WARPS), name
            assert cost["shared_bytes"] == 0, name
        elif kernel == "shared memory":
            assert cost["shared_bytes"] >= HELD_WORDS * 4, name
            assert programs * HELD_WORDS * 4 >= SHARED_BYTES_MIN, name
            assert any(op in ptx for op in ("st.shared", "stmatrix")), name
            assert any(op in ptx for op in ("ld.shared", "ldmatrix")), name
        elif kernel == "l1":
            assert programs >= L1_PROGRAMS_MIN, name
            assert "ld.global.ca" in ptx, name
        else:
            continue
        assert "%smid" in ptx, name
        assert cost["spilled_bytes"] == 0, name


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    return compile_all()


def test_memory_kernels_leave_room_beside_the_memory_on_every_architecture(found: dict[str, Any]) -> None:
    assert {name.partition(" ")[0] for name in found} == {"80", "89", "90", "100", "120"}
    assert_memory_kernels_are_cheap(found)


def test_on_chip_kernels_fill_a_multiprocessor_on_every_architecture(found: dict[str, Any]) -> None:
    assert sum(name.endswith((" registers", " shared memory", " l1")) for name in found) == 15
    assert_on_chip_kernels_fill_a_multiprocessor(found)


def test_digests_read_two_words_at_a_time(found: dict[str, Any]) -> None:
    for name, cost in found.items():
        if name.endswith("digest"):
            assert "ld.global.v2.b64" in cost["ptx"], name


def test_our_product_uses_the_tensor_cores_and_asks_for_its_sm(found: dict[str, Any]) -> None:
    for architecture, instruction in (("80", "mma.sync"), ("90", "wgmma.mma_async"), ("100", "tcgen05.mma")):
        assert instruction in found[f"{architecture} product"]["ptx"]
        assert "%smid" in found[f"{architecture} product"]["ptx"]


def assert_hammered_lines_leave_the_cache(found: dict[str, Any], architectures: int) -> None:
    costs = [cost for name, cost in found.items() if name.endswith(" hammer")]
    assert len(costs) == architectures
    for cost in costs:
        loop = cost["ptx"].partition("ld.volatile.global.b32")[2]
        assert "discard.global.L2" in loop.partition("bra")[0]
        assert cost["spilled_bytes"] == 0


def test_every_read_that_hammers_is_followed_by_a_discard(found: dict[str, Any]) -> None:
    assert_hammered_lines_leave_the_cache(found, 5)


@pytest.mark.skipif(not OLDEST.is_dir(), reason="needs the oldest Triton: make test fetches it")
def test_the_oldest_triton_compiles_them_as_well() -> None:
    """For architectures that its assembler knows: it is older than Blackwell."""
    found = compile_all("80", "89", "90", path=str(OLDEST))
    assert_memory_kernels_are_cheap(found)
    assert_on_chip_kernels_fill_a_multiprocessor(found)
    assert_hammered_lines_leave_the_cache(found, 3)
