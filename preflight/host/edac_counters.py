"""Error counts of the host's memory controllers: corrected and uncorrected errors per module."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from vocabulary.hardware.machine_files import Machine, read_memory_modules

CORRECTED_MAX = 100  # in one test: a module that corrects this often within minutes is about to fail


class ModuleErrors(msgspec.Struct, frozen=True):
    """Error counts of one module since boot."""

    corrected: int
    uncorrected: int


def read_edac_counts(machine: Machine) -> dict[str, ModuleErrors]:
    """Every module by its label; empty without ECC memory or the chipset's driver."""
    return {
        f"{of.controller} {of.label or of.name}" if of.name else f"{of.controller}, module unknown": ModuleErrors(
            of.corrected or 0, of.uncorrected or 0
        )
        for of in read_memory_modules(machine)
        if of.name or of.corrected is not None or of.uncorrected is not None
    }


def judge_edac_growth(
    before: Mapping[str, ModuleErrors], after: Mapping[str, ModuleErrors]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Faults and remarks from the increase between two readings. Pure."""
    faults, remarks = [], []
    none = ModuleErrors(0, 0)
    for module, now in after.items():
        then = before.get(module, none)
        corrected, uncorrected = now.corrected - then.corrected, now.uncorrected - then.uncorrected
        if uncorrected > 0:
            faults.append(f"{module}: {uncorrected} uncorrectable memory errors during the test; replace the module")
        if corrected > CORRECTED_MAX:
            faults.append(f"{module}: {corrected} corrected memory errors during the test; replace the module")
        elif corrected > 0:
            remarks.append(f"{module}: {corrected} corrected memory errors during the test")
        if then.uncorrected > 0:
            remarks.append(f"{module}: {then.uncorrected} uncorrectable memory errors since boot, before the test")
    return tuple(faults), tuple(remarks)
