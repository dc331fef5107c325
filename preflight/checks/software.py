"""Driver, libraries and modes of the node: facts for comparing nodes, and settings that an operator must fix first."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from preflight.check_context import Context
from preflight.host.allowed_states import allowed_states
from preflight.host.configuration_states import NodeState, collect_comparable_facts, list_states
from preflight.host.installed_software import InstalledGpu, InstalledSoftware
from preflight.host.software_inventory import read_installed_software
from preflight.results import Outcome, Result
from vocabulary.hardware.machine_files import Machine

TEST = "software"


def check_software(context: Context, machine: Machine | None = None) -> Iterator[Result]:
    """One result for the node."""
    software = _inject_fault(context.fault, read_installed_software(machine or Machine(), context.note))
    yield build_software_result(software, list_states(software, allowed_states()))


def build_software_result(software: InstalledSoftware, found: tuple[NodeState, ...]) -> Result:
    """A wrong setting makes the run misconfigured; the others are remarks."""
    wrong = [f"{state.says} ({state.name})" for state in found if state.wrong]
    return Result(
        test=TEST,
        outcome=Outcome.NOT_RUN if wrong else Outcome.PASS,
        misconfigured=bool(wrong),
        reason="; ".join(wrong),
        remarks=tuple(f"{state.says} ({state.name})" for state in found if not state.wrong),
        evidence=collect_comparable_facts(software),
    )


def _inject_fault(fault: str, software: InstalledSoftware) -> InstalledSoftware:
    """The injected fault, on the last GPU; on a node without one, on a simulated GPU."""
    gpus = software.gpus or (InstalledGpu(index=0, product="injected"),)
    if fault in ("ecc_off", "mig_on"):
        change = {"ecc": False} if fault == "ecc_off" else {"mig": True}
        return msgspec.structs.replace(software, gpus=(*gpus[:-1], msgspec.structs.replace(gpus[-1], **change)))
    if fault == "mismatch":
        return msgspec.structs.replace(software, driver_mismatch=True)
    if fault == "no_fabric_manager":
        gpus = tuple(msgspec.structs.replace(gpu, fabric_state=None) for gpu in software.gpus)
        return msgspec.structs.replace(software, gpus=gpus, switches_on_bus=4, fabric_manager=False)
    return software
