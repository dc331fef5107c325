"""The next step for an operator after a result. Pure."""

from __future__ import annotations

from preflight.plan import SPECS
from preflight.report.result_tables import ReportedFailure, list_failures
from preflight.results import COUNTED, Document, Outcome, Verdict

_REPLACE_GPU = (
    "Keep the node out of work. Reset the GPU and test again at level burn-in; if it fails again, replace the GPU."
)
_CORRUPT = (
    "Keep the node out of work, and do not trust results computed on this GPU since it last passed. "
    "Test again at level burn-in; if it fails again, replace the GPU."
)
_HOST = (
    "Keep the node out of work. Check for memory and machine-check errors in the kernel log, and test again at level burn-in; "
    "if it fails again, replace the module or the processor."
)
_FOLLOW_REASON = "Follow the reason: reset or replace the GPU. Then test again."
_FAILED = {
    "gpu_state": _FOLLOW_REASON,
    "memory_pattern": _REPLACE_GPU,
    "memory_retention": _REPLACE_GPU,
    "row_hammer": "Keep the node out of work. If ECC is off, switch it on (nvidia-smi -e 1) and reset the GPU. "
    "Test again at level burn-in; if it fails again, replace the GPU.",
    "memory_bandwidth": "Check that no other process uses the GPU and that its memory clock is not limited, then test again.",
    "cache_pattern": _CORRUPT,
    "on_chip_memory": _CORRUPT,
    "matmul_repeat": _CORRUPT,
    "special_functions": _CORRUPT,
    "host_memory": "Keep the node out of work. Check for memory errors in the kernel log, then test or replace the module.",
    "storage": "Check the kernel log for errors of the device, and its free space, then replace it.",
    "host_link": "Check the link's width and generation (lspci -vv), reseat the card or its riser, then test again.",
    "sustained_load": "Check airflow, fans, cold plates and power supplies, and clock and power limits.",
    "power_steps": "Check power supplies, cables and the GPU's power connectors, then test again; if it fails again, replace the GPU.",
    "peer_links": "Check the links' state and counters (nvidia-smi nvlink --status), reset the GPUs, then test again.",
    "collectives": "Check the peer_links result of the same devices. If it is clean, check the versions of NCCL and its plugins.",
    "nic_rails": "Check the port's state and counters, then change transceiver, cable and switch port, one at a time.",
}
_DEFAULT = {
    Outcome.FAIL: "Keep the node out of work, and test again at level burn-in.",
    Outcome.HANG: "Reboot the node, since a process stuck in the driver cannot be killed; then test again.",
    Outcome.ERROR: "Inconclusive. Read the reason, then run it again with {only}.",
    Outcome.NOT_RUN: "Inconclusive. Run it again with {only}.",
}
RETEST = "The node neither failed nor qualified: test it again before it gets work."


def advise_repair(wrong: ReportedFailure) -> str:
    """The recommended repair; "" if none."""
    result = wrong.first
    only = " ".join((f"--level {wrong.level}", *(f"--only {test}" for test in wrong.tests if test in SPECS)))
    if result.misconfigured:
        return f"Fix the cause named in the reason, then run it again with {only}."
    if result.outcome is Outcome.FAIL and COUNTED in result.evidence:
        return _FOLLOW_REASON
    if result.outcome is Outcome.FAIL and result.test in _FAILED:
        return _HOST if result.device.startswith("cpu:") else _FAILED[result.test]
    return _DEFAULT.get(result.outcome, "").format(only=only)


def list_next_steps(document: Document) -> tuple[str, ...]:
    """The next steps for the whole document, most urgent first, without duplicates; empty for a pass."""
    if document.verdict is Verdict.PASS:
        return ()
    steps = []
    if document.injected:
        steps.append("A fault was injected on request: this result does not mean that the machine is broken.")
    grave, rest = split_failures(document)
    steps += [f"{wrong.where}: {advise_repair(wrong)}" for wrong in grave or rest]
    if document.verdict is not Verdict.FAIL:
        steps.append(RETEST)
    return tuple(dict.fromkeys(steps))


def split_failures(document: Document) -> tuple[tuple[ReportedFailure, ...], tuple[ReportedFailure, ...]]:
    """The failures that decided the verdict, in full, and what else is unverified."""
    found = list_failures(document)
    if document.verdict is not Verdict.FAIL:
        return found, ()
    decided = (Outcome.FAIL, Outcome.HANG)
    return tuple(w for w in found if w.first.outcome in decided), tuple(
        w for w in found if w.first.outcome not in decided
    )
