"""Error counts of the host's memory controllers: corrected and uncorrected errors per module."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from preflight.host.machine_files import Machine

_WHERE = "/sys/devices/system/edac/mc"
CORRECTED_MAX = 100  # in one test: a module that corrects this often within minutes is about to fail


class ModuleErrors(msgspec.Struct, frozen=True):
    """Error counts of one module since boot."""

    corrected: int
    uncorrected: int


def read_edac_counts(machine: Machine) -> dict[str, ModuleErrors]:
    """Every module by its label; empty without ECC memory or the chipset's driver."""
    found = {}
    for controller in machine.names(_WHERE):
        where = f"{_WHERE}/{controller}"
        for name in machine.names(where):
            if not name.startswith(("dimm", "rank")):
                continue
            counts = [machine.number(f"{where}/{name}/dimm_{kind}_count") for kind in ("ce", "ue")]
            label = machine.text(f"{where}/{name}/dimm_label") or name
            found[f"{controller} {label}"] = ModuleErrors(counts[0] or 0, counts[1] or 0)
        rest = [machine.number(f"{where}/{kind}_noinfo_count") for kind in ("ce", "ue")]
        if any(count is not None for count in rest):
            found[f"{controller}, module unknown"] = ModuleErrors(rest[0] or 0, rest[1] or 0)
    return found


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
