"""The memory that a test allocates, how it is written and verified, and how long that takes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple, TypeVar

import torch

from preflight.check_context import Device, Note
from preflight.checks.torch_devices import synchronize_device
from preflight.kernels.gpu_memory_allocation import TakenMemory, allocate_gpu_memory
from preflight.kernels.memory_errors import WORD_BYTES, Piece
from preflight.kernels.memory_patterns import GATE, Pattern
from preflight.kernels.memory_sweeps import Way, sweep_patterns, verify_pieces
from preflight.kernels.tensor_digests import is_interpreted
from preflight.kernels.torch_memory import TorchWay
from preflight.results import Evidence, Figure, Outcome, Result

COVERAGE_MIN = 0.98  # of the free memory
OF_ALL_MIN = 0.95  # of the total memory: a CUDA context takes less than the rest
POISON = 0x5AFE_C0DE_5AFE_C0DE  # content before the first write
_WARM_WORDS = 1 << 14
Answer = TypeVar("Answer")


class AllocatedMemory(NamedTuple):
    """The allocated memory and its access method. `remarks` are for people."""

    device: Device
    way: Way
    taken: TakenMemory
    remarks: tuple[str, ...]

    @property
    def pieces(self) -> list[Piece]:
        """The allocations. None if nearly nothing is free."""
        return self.taken.pieces

    @property
    def words(self) -> int:
        """The number of 64-bit words."""
        return self.taken.taken_bytes // WORD_BYTES

    @property
    def doing(self) -> str:
        """The access method, since figures depend on it."""
        if not self.device.on_host:
            return self.way.name
        threads = torch.get_num_threads()
        return f"{self.way.name}, {threads} thread{'' if threads == 1 else 's'} of the host"

    @property
    def evidence(self) -> Evidence:
        """What was tested and how; for a GPU also the theoretical memory bandwidth."""
        said: Evidence = {"way": self.way.name, "bytes": self.taken.taken_bytes, "allocations": len(self.pieces)}
        if self.device.on_host:
            return said
        facts = torch.cuda.get_device_properties(self.device.torch_name)
        clock, bits = (
            getattr(facts, "memory_clock_rate", 0),
            getattr(facts, "memory_bus_width", 0),
        )  # not every torch reports it
        return said | ({"memory_clock_max_mhz": clock / 1000, "memory_bus_bits": bits} if clock and bits else {})

    @property
    def figures(self) -> tuple[Figure, ...]:
        """The share of the free memory that was tested; the host's is only a sample."""
        if self.device.on_host:
            return ()
        return (Figure(name="coverage", value=round(self.taken.coverage, 4), unit="share", setting="of free memory"),)

    def passed(self, test: str, figures: tuple[Figure, ...], evidence: Evidence) -> Result:
        """The result of a test without errors."""
        return Result(
            test=test,
            outcome=Outcome.PASS,
            device=self.device.name,
            figures=figures,
            remarks=self.remarks,
            evidence=self.evidence | evidence,
        )

    def empty(self, test: str) -> Result:
        """The result if too little memory is free."""
        free = self.taken.free_bytes >> 20
        reason = (
            f"not enough free memory: {free} MiB are free on {self.device.name}; stop the processes that use the rest"
        )
        return Result(test=test, outcome=Outcome.ERROR, device=self.device.name, reason=reason, remarks=self.remarks)

    def timed(self, call: Callable[[], Answer]) -> tuple[float, Answer]:
        """Time `call` on the device: seconds, and its return value."""
        synchronize_device(self.device)
        began = time.perf_counter()
        answer = call()
        synchronize_device(self.device)
        return time.perf_counter() - began, answer


def allocate_test_memory(device: Device, note: Note) -> AllocatedMemory:
    """Allocate nearly all free memory of a GPU, or `memory_bytes` of the host's."""
    way, said = choose_memory_way(device, note)
    note(f"{device.name}: allocating memory")
    if device.on_host:
        return AllocatedMemory(device, way, _allocate_host_memory(device.memory_bytes), said)
    taken = allocate_gpu_memory(device.torch_name)
    total = int(torch.cuda.mem_get_info(device.torch_name)[1])
    if taken.pieces and taken.coverage < COVERAGE_MIN:
        said += (f"allocated only {taken}: another process allocated memory at the same time, or it is fragmented",)
    elif taken.taken_bytes < OF_ALL_MIN * total:
        held = (total - taken.free_bytes) / 2**30
        said += (
            f"{held:.1f} of {total / 2**30:.1f} GiB were already in use and are not tested; stop the processes that use them",
        )
    return AllocatedMemory(device, way, taken, said)


def choose_memory_way(device: Device, note: Note) -> tuple[Way, tuple[str, ...]]:
    """Choose Triton kernels on a GPU, else torch; and remarks on the choice.

    With ``TRITON_INTERPRET=1`` the kernels run on the host, in Triton's interpreter.
    """
    if device.on_host and not is_interpreted():
        return TorchWay(), ()
    if why := find_triton_failure(device, note):
        return TorchWay(), (f"Triton does not work here ({why}): torch wrote and verified instead, which is slower",)
    from preflight.kernels.triton_memory import TritonWay  # noqa: PLC0415 - it may not be here

    return TritonWay(), ()


def find_triton_failure(device: Device, note: Note) -> str:
    """Why Triton does not work on this device; "" if it does, and agrees with torch.

    Raises:
        ArithmeticError: they disagree.
    """
    note(f"{device.name}: starting Triton")
    try:
        from preflight.kernels.triton_memory import TritonWay  # noqa: PLC0415 - it may not be here

        wrong = count_disagreements(TritonWay(), device)
    except Exception as error:  # noqa: BLE001 - no Triton, no compiler, no driver for it; a broken device fails again at once
        return next(iter(str(error).splitlines()), "") or type(error).__name__
    if wrong:
        raise ArithmeticError(
            f"Triton's kernels and torch disagree about {wrong} words on {device.name}: the device computes wrongly, or Triton "
            "compiles wrongly for it; check the result of matmul_repeat, and try another version of Triton"
        )
    return ""


def count_disagreements(way: Way, device: Device) -> int:
    """Count words that differ between `way` and plain torch, on this device."""
    piece = Piece(torch.empty(_WARM_WORDS, dtype=torch.int64, device=device.torch_name), 1 << 33)
    wrong = 0
    for pattern in GATE[:2]:
        for writer, reader in ((way, TorchWay()), (TorchWay(), way)):
            writer.write(piece, pattern)
            wrong += verify_pieces(reader, [piece], pattern).wrong
    return wrong


def warm_up_kernels(way: Way, device: Device, patterns: tuple[Pattern, ...]) -> None:
    """Compile and load every kernel that a sweep with `patterns` needs, so that it does not distort rates."""
    sweep_patterns(way, [Piece(torch.empty(_WARM_WORDS, dtype=torch.int64, device=device.torch_name))], patterns)


def _allocate_host_memory(memory_bytes: int) -> TakenMemory:
    """Two allocations of odd sizes: partial blocks, and addresses that continue across allocations."""
    words = memory_bytes // WORD_BYTES
    sizes = (words * 2 // 3 | 1, words // 3 - 2 | 1)
    first, second = (torch.full((size,), POISON) for size in sizes)  # also maps the pages before the timing
    return TakenMemory([Piece(first), Piece(second, sizes[0])], memory_bytes, sum(sizes) * WORD_BYTES)
