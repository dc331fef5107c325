"""Findings from preflights that no order started: in a prolog, in a group, or run manually. Pure.

A failure is an event, not a level. A verification clears it: an ordered preflight, or a complete pass of the same or a
deeper level. A part that fails at several levels is one finding, which keeps the deepest level: a shallower pass does
not clear it. An inconclusive run is recorded and raises nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from healthd.findings.facts import Clear, Fact, Raise, make_gpu_component
from healthd.samples.preflight import LEVELS, TEXT_MAX, PreflightSample, Result
from vocabulary.finding import Evidence, Finding, Severity
from vocabulary.identity import Component, ComponentKind
from vocabulary.messages.wire import Gpu

CHECK = "preflight"
FAILED = "failed"
COMPONENTS_MAX = 64  # more at once, and it is the host
# What a reported pass disproves. No level repeats a group test: as with orders, a standard pass clears a group's
# failure.
DISPROVES = {"gate": ("gate",), "standard": ("gate", "standard", "group"), "burn-in": LEVELS}
HOST = Component(ComponentKind.HOST, name="preflight")

SEVERITIES = {FAILED: Severity.ERROR, "inconclusive": Severity.INFO, "misconfigured": Severity.INFO}

_BAD = ("fail", "hang")


def judge_preflight_sample(
    sample: PreflightSample, gpus: Iterable[Gpu], active: Iterable[Finding], at: float
) -> list[Fact]:
    """Return a fact per failed component, or clears for a pass. `active` are the current findings, `at` UTC seconds."""
    if sample.verdict == "pass":
        return _clear_disproved_failures(sample, active, at)
    if sample.verdict != "fail":
        return [_raise_preflight_fact(sample, HOST, (), at, code=sample.verdict)]
    by_uuid = {gpu.uuid: gpu for gpu in gpus}
    failed: dict[Component, list[Result]] = {}
    for result in sample.results:
        if result.outcome in _BAD:
            for component in _list_fault_components(result, by_uuid):
                failed.setdefault(component, []).append(result)
    if len(failed) > COMPONENTS_MAX:
        failed = {HOST: [result for results in failed.values() for result in results]}
    known = list(active)
    return [
        _raise_preflight_fact(
            sample, component, results, at, outweighs=_outweighs_known_failure(sample, component, known)
        )
        for component, results in (failed or {HOST: []}).items()
    ]


def _outweighs_known_failure(sample: PreflightSample, component: Component, active: Iterable[Finding]) -> bool:
    """Return whether this failure is from a deeper level than the component's known failure."""
    return any(
        finding.kind == f"{CHECK}/{FAILED}"
        and finding.component.key == component.key
        and finding.injected is bool(sample.injected)
        and LEVELS.index(sample.level) > _rank_level(finding)
        for finding in active
    )


def _rank_level(finding: Finding) -> int:
    level = finding.evidence.get("level")
    return LEVELS.index(level) if level in LEVELS else -1


def _clear_disproved_failures(sample: PreflightSample, active: Iterable[Finding], at: float) -> list[Fact]:
    if not sample.complete or sample.injected or sample.level not in DISPROVES:
        return []
    covered = DISPROVES[sample.level]
    by = f"preflight {sample.level} passed"
    return [
        Clear(check=CHECK, code=FAILED, component=finding.component, at=at, by=by)
        for finding in active
        if finding.kind == f"{CHECK}/{FAILED}"
        and finding.evidence.get("level") in covered
        and finding.last_seen <= sample.started_at
    ]


def _list_fault_components(result: Result, by_uuid: Mapping[str, Gpu]) -> list[Component]:
    found = []
    for place in result.locations:
        gpu = by_uuid.get(place.gpu)
        if place.nic:
            found.append(Component(ComponentKind.NIC_PORT, name=place.nic))
        elif gpu is not None and place.link is not None:
            found.append(Component(ComponentKind.NVLINK, name=f"{gpu.uuid}/{place.link}", pci=gpu.pci, index=gpu.index))
        elif gpu is not None:
            found.append(make_gpu_component(gpu))
    return list(dict.fromkeys(found)) or [HOST]


def _raise_preflight_fact(
    sample: PreflightSample,
    component: Component,
    results: Iterable[Result],
    at: float,
    *,
    code: str = FAILED,
    outweighs: bool = False,
) -> Raise:
    said = [f"{r.test}{f' on {r.device}' if r.device else ''}: {r.reason or r.outcome}" for r in results]
    evidence: Evidence = {"level": sample.level, "complete": sample.complete}
    if tests := ", ".join(dict.fromkeys(r.test for r in results)):
        evidence["tests"] = tests[:TEXT_MAX]
    if sample.injected:
        evidence["faults"] = ", ".join(sample.injected)[:TEXT_MAX]
    return Raise(
        check=CHECK,
        code=code,
        component=component,
        severity=SEVERITIES[code],
        summary=f"preflight {sample.level}: {'; '.join(said) or sample.reason or sample.verdict}"[:TEXT_MAX],
        at=at,
        event=True,
        outweighs=outweighs,
        origin=f"preflight:{sample.level}:{sample.started_at or at:.6f}",
        injected=bool(sample.injected),
        evidence=evidence,
    )
