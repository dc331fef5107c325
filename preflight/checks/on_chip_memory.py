"""The memories inside a GPU's multiprocessors (SMs): register file, shared memory, L1.

Programs enough to fill every SM several times keep random words in one of them, rewrite or reread them over many turns, and
return them. What is wrong has the number of the SM. Nothing but kernels reaches these memories, so without Triton the test
does not apply.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

import torch

from preflight.check_context import Context, Device
from preflight.checks.memory_allocation import find_triton_failure
from preflight.checks.torch_devices import run_on_device, synchronize_device
from preflight.kernels.on_chip_words import (
    FAULT_BIT,
    L1,
    LINE_WORDS,
    MEMORIES,
    NOT_KNOWN,
    REGISTERS,
    SHARED,
    TURNS,
    ProgramOutputs,
    SourceWords,
    WrongWords,
    build_source_words,
    find_wrong_words,
)
from preflight.kernels.tensor_digests import is_interpreted
from preflight.results import Evidence, Location, Outcome, Result
from vocabulary.text.plurals import format_count

TEST = "on_chip_memory"
PROGRAMS_OF_SM = 16  # two waves of those that hold words; for the L1 as many as an SM runs at once
GPU_TURNS, INTERPRETED_TURNS = 20 * TURNS, TURNS
INTERPRETED_PROGRAMS, INTERPRETED_WINDOW = 2, 2
L1_UNKNOWN_BYTES = 100 << 10
FAULTS = {"register_bit": REGISTERS, "shared_bit": SHARED, "l1_bit": L1}
REASONS_MAX = 8
RunPrograms = Callable[[str, SourceWords, int, int, int, int], ProgramOutputs]


class ProgramLoad(NamedTuple):
    """How the programs run; `window` is what one reads through the L1, in lines. `multiprocessors`: 0 if not known."""

    run: RunPrograms
    programs: int
    window: int
    turns: int
    multiprocessors: int


class RoundResult(NamedTuple):
    """One round over all memories: what was wrong, the SMs that ran programs in each, and source words that changed."""

    wrong: list[WrongWords]
    sms: dict[str, set[int]]
    source_words: int


@run_on_device
def check_on_chip_memory(context: Context, device: Device) -> Result:
    """Rounds over the three memories for the test's duration, each with other words."""
    if device.on_host and not is_interpreted():
        return _build_skipped(device, "a processor has no multiprocessors")
    if why := find_triton_failure(device, context.note):
        synchronize_device(device)  # an error of the device is raised here
        return _build_skipped(device, f"not tested, because Triton does not work here: {why}")
    load = build_program_load(device)
    context.note(f"{device.name}: preparing {format_count(len(MEMORIES), 'memory', 'memories')}")
    seen = _run_round(load, context, device, 0)  # compiles kernels ahead of the timing; errors here count too
    began, number = time.perf_counter(), 0
    while not seen.wrong and (not number or time.perf_counter() - began < context.seconds):
        number += 1
        seen = _run_round(load, context, device, number)
    evidence: Evidence = {"rounds": number, "programs": load.programs, "turns": load.turns}
    evidence["l1_window_bytes"] = load.window * LINE_WORDS * 4
    if not seen.wrong:
        return _build_passed(device, load, seen, evidence)
    context.note(f"{device.name}: errors found; checking again")
    return build_failed_result(device, seen, _run_round(load, context, device, number + 1), evidence)


def load_kernels() -> RunPrograms:
    """Triton's way to run the programs."""
    from preflight.kernels.on_chip_kernels import run_programs  # noqa: PLC0415 - Triton may not be here

    return run_programs


def build_program_load(device: Device) -> ProgramLoad:
    """Programs for every SM of this device. Their L1 windows together are as large as its shared memory can be."""
    if device.on_host:
        return ProgramLoad(load_kernels(), INTERPRETED_PROGRAMS, INTERPRETED_WINDOW, INTERPRETED_TURNS, 0)
    facts = torch.cuda.get_device_properties(device.torch_name)
    share = getattr(facts, "shared_memory_per_multiprocessor", L1_UNKNOWN_BYTES) // PROGRAMS_OF_SM
    programs = PROGRAMS_OF_SM * facts.multi_processor_count
    return ProgramLoad(
        load_kernels(), programs, max(share // (LINE_WORDS * 4), 1), GPU_TURNS, facts.multi_processor_count
    )


def _run_round(load: ProgramLoad, context: Context, device: Device, number: int) -> RoundResult:
    lines = load.programs * load.window
    source = build_source_words(number, lines, load.turns, device.torch_name)
    wrong: list[WrongWords] = []
    sms: dict[str, set[int]] = {}
    for memory in MEMORIES:
        context.note(f"{device.name}: round {number}, {memory}")
        fault = load.programs // 2 if FAULTS.get(context.fault) == memory else -1
        outputs = load.run(memory, source, load.programs, load.window, fault, 1 << FAULT_BIT)
        wrong += find_wrong_words(memory, outputs, source)
        sms[memory] = set(outputs.sms.tolist()) - {NOT_KNOWN}
    if not wrong:
        return RoundResult(wrong, sms, 0)
    again = build_source_words(number, lines, load.turns, device.torch_name)
    changed = sum(int((one != other).sum()) for one, other in zip(source, again, strict=True))
    return RoundResult(wrong, sms, changed)


def _build_skipped(device: Device, reason: str) -> Result:
    return Result(test=TEST, outcome=Outcome.NOT_APPLICABLE, device=device.name, reason=reason)


def _build_passed(device: Device, load: ProgramLoad, seen: RoundResult, evidence: Evidence) -> Result:
    remarks = tuple(
        f"tested on {len(seen.sms[memory])} of {load.multiprocessors} SMs only: {memory}"
        for memory in MEMORIES
        if len(seen.sms[memory]) < load.multiprocessors
    )
    evidence |= {"multiprocessors": min(map(len, seen.sms.values()))}
    return Result(test=TEST, outcome=Outcome.PASS, device=device.name, remarks=remarks, evidence=evidence)


def build_failed_result(device: Device, first: RoundResult, second: RoundResult, evidence: Evidence) -> Result:
    """The result of a device with wrong words, from the round that found them and one after it. Pure."""
    gpu = device.uuid or device.name
    named = "; ".join(map(str, first.wrong[:REASONS_MAX]))
    more = len(first.wrong) - REASONS_MAX
    named += f"; and {more} more" if more > 0 else ""
    if first.source_words:
        named = (
            f"{format_count(first.source_words, 'word')} changed in the GPU's memory, outside the SMs; seen as {named}"
        )
    repeated = {(each.memory, each.sm) for each in first.wrong} & {(each.memory, each.sm) for each in second.wrong}
    again = "wrong again" if repeated else "wrong elsewhere" if second.wrong else "correct"
    sms = [] if first.source_words else sorted({each.sm for each in first.wrong} - {NOT_KNOWN})
    return Result(
        test=TEST,
        outcome=Outcome.FAIL,
        device=device.name,
        reason=f"{named}; {again} when run again",
        locations=tuple(Location(gpu=gpu, sm=sm) for sm in sms) or (Location(gpu=gpu),),
        evidence=evidence
        | {
            "wrong_words": sum(each.words for each in first.wrong),
            "wrong_memories": ", ".join(dict.fromkeys(each.memory for each in first.wrong)),
            "wrong_bits": " | ".join(f"{each.bits:#010x}" for each in first.wrong[:REASONS_MAX]),
            "again": again,
        },
    )
