"""Row hammering: memory keeps its words while neighbouring rows are activated as often as possible.

All memory holds random words, then their complement, and is verified. Groups of its lines are read for a few refresh
intervals, past the caches; then these lines get their words back, and all memory is verified again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
import torch

from preflight.check_context import Context, Device
from preflight.checks.memory_allocation import (
    AllocatedMemory,
    allocate_test_memory,
    find_triton_failure,
    warm_up_kernels,
)
from preflight.checks.memory_diagnosis import Diagnosis, MemoryFaultKind, build_failed_result, diagnose_errors
from preflight.checks.torch_devices import run_on_device, synchronize_device
from preflight.kernels.aggressor_lines import Aggressors, choose_aggressors, find_neighbour, restore_aggressors
from preflight.kernels.memory_errors import Errors
from preflight.kernels.memory_patterns import GATE, Pattern, reseed_patterns
from preflight.kernels.memory_sweeps import hold_and_verify, verify_pieces
from preflight.kernels.tensor_digests import is_interpreted
from preflight.results import Evidence, Outcome, Result

TEST = "row_hammer"
PATTERNS = (GATE[1], GATE[1].inverted())
GROUPS_OF_SM = 4
GPU_TURNS, HAMMER_S = 20_000, 0.2  # of one launch; of one pattern, some six refresh intervals
INTERPRETED_GROUPS, INTERPRETED_TURNS = 3, 2
CAPABILITY_MIN = (8, 0)  # older GPUs cannot discard a line
FLIPPED_BIT = 37
VICTIM_BIT, ONE_FLIP = "victim_bit", "one_flip"
HammerRows = Callable[[Aggressors, int], Any]


class HammerLoad(NamedTuple):
    """How rows are activated: by `groups` of lines at once, `turns` in a launch, launched for `seconds`, at least once."""

    run: HammerRows
    groups: int
    turns: int
    seconds: float


class HammeredPattern(NamedTuple):
    """The errors of one pattern, found before rows were activated (then none were), or afterwards (`activated`)."""

    pattern: Pattern
    aggressors: Aggressors
    activated: bool
    errors: Errors


class RowHammer:
    """Hammers one device, and counts what it does."""

    def __init__(self, context: Context, room: AllocatedMemory, load: HammerLoad) -> None:
        self._context, self._room, self._load = context, room, load
        self._flips = 0
        self.rounds, self.groups, self.reads, self.seconds = 0, 0, 0, 0.0
        self.strides: set[int] = set()

    def run_rounds(self, first: Aggressors) -> HammeredPattern | None:
        """Rounds for the test's duration, each with other words and groups. The first pattern with errors, if any."""
        began, aggressors = time.perf_counter(), first
        while not self.rounds or time.perf_counter() - began < self._context.seconds:
            for pattern in reseed_patterns(PATTERNS, self.rounds):
                done = self.hammer_pattern(aggressors, pattern)
                if done.errors.wrong:
                    return done
            self.rounds += 1
            aggressors = choose_aggressors(self._room.pieces, self.rounds, self._load.groups) or first
        return None

    def hammer_pattern(self, aggressors: Aggressors, pattern: Pattern) -> HammeredPattern:
        """Write and verify, activate rows, and verify again what is not in a line that was read."""
        name, layout = self._room.device.name, aggressors.layout
        self._context.note(f"{name}: round {self.rounds}, {pattern.name}, writing and verifying")
        # Reading all memory also writes back what the L2 holds of it: no word outside of a line depends on the cache.
        before = hold_and_verify(self._room.way, self._room.pieces, pattern, lambda: None)
        if before.wrong:
            return HammeredPattern(pattern, aggressors, activated=False, errors=before)
        self._context.note(f"{name}: hammering {layout.sides} lines, {layout.stride >> 10} KiB apart")
        self._activate_rows(aggressors)
        self._inject_fault(aggressors)
        restore_aggressors(aggressors, pattern)
        self._context.note(f"{name}: verifying {pattern.name}")
        after = verify_pieces(self._room.way, self._room.pieces, pattern)
        return HammeredPattern(pattern, aggressors, activated=True, errors=after)

    def _activate_rows(self, aggressors: Aggressors) -> None:
        began, launches = time.perf_counter(), 0
        while not launches or time.perf_counter() - began < self._load.seconds:
            self._load.run(aggressors, self._load.turns)
            synchronize_device(self._room.device)
            launches += 1
        self.seconds += time.perf_counter() - began
        self.reads += aggressors.groups * aggressors.layout.sides * self._load.turns * launches
        self.groups += aggressors.groups
        self.strides.add(aggressors.layout.stride)

    def _inject_fault(self, aggressors: Aggressors) -> None:
        if self._context.fault == VICTIM_BIT or (self._context.fault == ONE_FLIP and not self._flips):
            piece, word = find_neighbour(aggressors)
            self._room.pieces[piece].memory[word] ^= 1 << FLIPPED_BIT
            self._flips += 1

    @property
    def evidence(self) -> Evidence:
        """What was done. A read counts as an activation, though rows may stay open between two of them."""
        return {
            "rounds": self.rounds,
            "groups": self.groups,
            "reads": self.reads,
            "activations_per_s": round(self.reads / self.seconds) if self.seconds else 0,
            "strides_kib": ", ".join(str(stride >> 10) for stride in sorted(self.strides)),
        }


@run_on_device
def check_row_hammer(context: Context, device: Device) -> Result:
    """Hammer rows for the test's duration. Errors are hammered again: a particle flips no bit twice."""
    if device.on_host and not is_interpreted():
        return _build_skipped(device, "it activates rows of a GPU's memory only")
    if not device.on_host and torch.cuda.get_device_capability(device.torch_name) < CAPABILITY_MIN:
        return _build_skipped(device, "this GPU cannot discard lines of its cache")
    if why := find_triton_failure(device, context.note):
        synchronize_device(device)  # an error of the device is raised here
        return _build_skipped(device, f"not tested, because Triton does not work here: {why}")
    room = allocate_test_memory(device, context.note)
    load = build_hammer_load(device)
    first = choose_aggressors(room.pieces, 0, load.groups)
    if first is None:
        return room.empty(TEST)
    context.note(f"{device.name}: preparing to hammer")
    warm_up_kernels(room.way, device, PATTERNS)
    load.run(first, 1)
    hammer = RowHammer(context, room, load)
    found = hammer.run_rounds(first)
    if found is None:
        return room.passed(TEST, room.figures, hammer.evidence)
    context.note(f"{device.name}: errors found; checking again")
    return _build_wrong_result(room, hammer, found)


def load_kernels() -> HammerRows:
    """Triton's way to read lines past the caches."""
    from preflight.kernels.hammer_kernels import hammer_rows  # noqa: PLC0415 - Triton may not be here

    return hammer_rows


def build_hammer_load(device: Device) -> HammerLoad:
    """Groups for every SM of this device."""
    if device.on_host:
        return HammerLoad(load_kernels(), INTERPRETED_GROUPS, INTERPRETED_TURNS, 0.0)
    units = torch.cuda.get_device_properties(device.torch_name).multi_processor_count
    return HammerLoad(load_kernels(), GROUPS_OF_SM * units, GPU_TURNS, HAMMER_S)


def _build_skipped(device: Device, reason: str) -> Result:
    return Result(test=TEST, outcome=Outcome.NOT_APPLICABLE, device=device.name, reason=reason)


def _build_wrong_result(room: AllocatedMemory, hammer: RowHammer, found: HammeredPattern) -> Result:
    """The result of errors, after checking again."""
    if not found.activated:
        others = reseed_patterns(PATTERNS, hammer.rounds + 1)
        second = [hold_and_verify(room.way, room.pieces, pattern, lambda: None) for pattern in others]
        diagnosis = diagnose_errors([found.errors], second, {found.pattern.name: found.pattern}, room.words)
        return build_failed_result(room.passed(TEST, (), hammer.evidence), [found.errors], diagnosis, room.device)
    again = hammer.hammer_pattern(found.aggressors, found.pattern)
    outcome, diagnosis = judge_repeat(found.errors, again.errors)
    layout = found.aggressors.layout
    evidence = hammer.evidence | {"stride_kib": layout.stride >> 10, "sides": layout.sides}
    result = build_failed_result(room.passed(TEST, (), evidence), [found.errors], diagnosis, room.device)
    return msgspec.structs.replace(result, outcome=outcome)


def judge_repeat(first: Errors, again: Errors) -> tuple[Outcome, Diagnosis]:
    """What errors after hammering mean, given those when the same rows were hammered again. Pure."""
    said = "correct until rows near them were activated"
    if not again.wrong:
        why = f"{said}, and also when that was repeated: it may have been a particle"
        return Outcome.ERROR, Diagnosis(MemoryFaultKind.CHANGED_ONCE, why)
    if {word.address for word in first.listed} & {word.address for word in again.listed}:
        why = f"{said}, and the same words are wrong when that is repeated"
        return Outcome.FAIL, Diagnosis(MemoryFaultKind.HAMMERED, why)
    return Outcome.FAIL, Diagnosis(
        MemoryFaultKind.INTERMITTENT, f"{said}, and other words are wrong when that is repeated"
    )
