"""Driver, libraries and modes of the node: facts to compare nodes by, and states that a person must put right first."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from preflight.allowed import allowed_states
from preflight.checks.context import Context
from preflight.host.installed import Gpu, Software
from preflight.host.machine import Machine
from preflight.host.software import read
from preflight.host.states import State, facts, states
from preflight.results import Outcome, Result

TEST = "software"


def run(context: Context, machine: Machine | None = None) -> Iterator[Result]:
    """One result for the node."""
    software = _commit(context.fault, read(machine or Machine(), context.note))
    yield result(software, states(software, allowed_states()))


def result(software: Software, found: tuple[State, ...]) -> Result:
    """A state that is wrong makes the run misconfigured; the others are remarks."""
    wrong = [f"{state.says} ({state.name})" for state in found if state.wrong]
    return Result(
        test=TEST,
        outcome=Outcome.NOT_RUN if wrong else Outcome.PASS,
        misconfigured=bool(wrong),
        reason="; ".join(wrong),
        remarks=tuple(f"{state.says} ({state.name})" for state in found if not state.wrong),
        evidence=facts(software),
    )


def _commit(fault: str, software: Software) -> Software:
    """The injected fault, on the last GPU; on a node without one, on one made up."""
    gpus = software.gpus or (Gpu(index=0, product="injected"),)
    if fault in ("ecc_off", "mig_on"):
        change = {"ecc": False} if fault == "ecc_off" else {"mig": True}
        return msgspec.structs.replace(software, gpus=(*gpus[:-1], msgspec.structs.replace(gpus[-1], **change)))
    if fault == "mismatch":
        return msgspec.structs.replace(software, driver_mismatch=True)
    if fault == "no_fabric_manager":
        gpus = tuple(msgspec.structs.replace(gpu, fabric_state=None) for gpu in software.gpus)
        return msgspec.structs.replace(software, gpus=gpus, switches_on_bus=4, fabric_manager=False)
    return software
