"""Runs a plan for as many rounds as its level requires, and judges the node: measure, compare, decide."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from preflight.baseline_files import load_knowledge
from preflight.check_context import Device
from preflight.device_comparison.comparison_table import judge_across_devices
from preflight.device_comparison.failure_locations import resolve_failure_locations
from preflight.execution.counter_results import add_counter_conclusions
from preflight.execution.plan_runner import PlanRunner
from preflight.execution.progress_output import Progress
from preflight.expectations.measurement_keys import describe_software_stack
from preflight.expectations.result_judgement import Knowledge, apply_expectations
from preflight.plan import LASTS_S, LEVELS, Injection, Plan, Scope
from preflight.results import DOCUMENT_VERSION, Document, Outcome, Result, Verdict
from preflight.run_verdict import judge_run
from vocabulary.clock import Clock


def qualify_node(
    chosen: Plan,
    node: str,
    inject: Sequence[str],
    baselines: Path,
    clock: Clock,
    progress: Progress,
    *,
    one_round: bool = False,
) -> Document:
    """Run `chosen` on this node and build the document.

    Args:
        chosen: the plan.
        node: the node's name.
        inject: the requested faults, which mark the document.
        baselines: the folder with expectation files.
        clock: the time.
        progress: receives the progress.
        one_round: run each test once, however long the level lasts.

    Raises:
        PlanError: a fault is to be injected on a missing device.
    """
    started_at, began = clock.wall(), clock.monotonic()
    known = load_knowledge(baselines, node, {})  # before the tests: a hanging file system costs no result
    lasts_s = LASTS_S[chosen.level] if chosen.needs(Scope.DEVICE, Scope.PEERS) and not one_round else 0.0
    rounds, round_s, verdict = 0, 0.0, Verdict.PASS
    with PlanRunner(chosen, clock, progress) as runner:
        while rounds == 0 or (verdict is Verdict.PASS and clock.monotonic() - began + round_s <= lasts_s):
            round_began, rounds = clock.monotonic(), rounds + 1
            results = _judge_results(runner.round(), runner, known)
            if slow := list_tests_to_repeat(results):
                results = confirm_slow_results(results, _judge_results(runner.round(slow), runner, known, results))
            verdict, reasons = judge_run(
                [spec.test for spec in chosen.specs], results, list_awaited_results(chosen, runner.names)
            )
            round_s = clock.monotonic() - round_began
        devices, software, left_out = runner.devices, runner.software, runner.left_out
    if verdict is Verdict.PASS and (unfound := describe_undetected_faults(chosen.faults, results)):
        verdict, reasons = Verdict.INCONCLUSIVE, unfound
    return Document(
        version=DOCUMENT_VERSION,
        level=chosen.level,
        node=node,
        rounds=rounds,
        complete=len(chosen.specs) == len(LEVELS[chosen.level]) and not left_out,
        verdict=verdict,
        reason="; ".join(reasons),
        reasons=reasons,
        injected=tuple(inject),
        started_at=started_at,
        seconds=round(clock.monotonic() - began, 3),
        devices=devices,
        software=software,
        results=add_remarks(results, devices, (left_out, *known.remarks)),
    )


def _judge_results(
    found: Sequence[Result], runner: PlanRunner, known: Knowledge, earlier: Sequence[Result] = ()
) -> tuple[Result, ...]:
    """What the results of a round mean; `earlier` ones of other tests tell the properties of the devices."""
    tests = {result.test for result in found}
    measured = judge_across_devices(found, runner.devices)
    rest = [result for result in earlier if result.test not in tests]
    knows = msgspec.structs.replace(known, software=describe_software_stack(runner.software))
    judged = apply_expectations([*measured, *rest], runner.devices, knows)[: len(measured)]
    counted = add_counter_conclusions(judged, runner.counter_conclusions)
    return resolve_failure_locations(counted, runner.devices)


def list_tests_to_repeat(results: Sequence[Result]) -> tuple[str, ...]:
    """The tests in which a device missed a limit of rates: it may have been disturbed, and is measured again."""
    return tuple(dict.fromkeys(result.test for result in results if result.by_limit))


def confirm_slow_results(first: Sequence[Result], second: Sequence[Result]) -> tuple[Result, ...]:
    """The first results, with those of the second measurement where a limit was missed, or a fault appeared since.

    A missed limit counts only if it is missed twice. Wrong bits, hangs and errors of either measurement stay.
    """
    latest = {(result.test, result.device): result for result in second}
    merged = []
    for result in first:
        later = latest.pop((result.test, result.device), None)
        if later is not None and result.by_limit:
            remark = f"measured twice; the first time: {result.reason}"
            merged.append(msgspec.structs.replace(later, remarks=(*later.remarks, remark)))
        elif later is not None and result.outcome is Outcome.PASS and not later.by_limit:
            merged.append(later)
        else:
            merged.append(result)
    return (*merged, *latest.values())


def list_awaited_results(chosen: Plan, names: Sequence[str]) -> dict[str, Sequence[str]]:
    """For each device test, the devices that must have a result."""
    return {spec.test: names for spec in chosen.specs if spec.scope is Scope.DEVICE}


def describe_undetected_faults(faults: Mapping[str, Injection], results: Sequence[Result]) -> tuple[str, ...]:
    """A sentence for each injected fault that its test did not detect."""
    found = {result.test for result in results if result.outcome not in (Outcome.PASS, Outcome.NOT_APPLICABLE)}
    return tuple(
        f"{test}: the fault {injection.fault} was injected and not detected"
        for test, injection in faults.items()
        if test not in found
    )


def add_remarks(results: Sequence[Result], devices: Sequence[Device], remarks: Sequence[str]) -> tuple[Result, ...]:
    """`results` with all remarks that are not empty on the first one about a device; on the first if there is none."""
    names = {device.name for device in devices}
    first = next((place for place, result in enumerate(results) if result.device in names), 0)
    return tuple(
        msgspec.structs.replace(result, remarks=(*result.remarks, *filter(None, remarks))) if place == first else result
        for place, result in enumerate(results)
    )
