"""Runs a plan, round after round as its level asks, and judges it: the measured, compared, judged whole of one node."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from preflight.across.locating import located
from preflight.across.table import together
from preflight.baselines import knowledge
from preflight.expect.apply import expected
from preflight.judge import judge
from preflight.plan import LASTS_S, LEVELS, Plan, Scope
from preflight.progress import Progress
from preflight.results import DOCUMENT_VERSION, Document, Verdict
from preflight.runner import Runner
from vocabulary.clock import Clock


def prove(
    chosen: Plan, node: str, inject: Sequence[str], baselines: Path, clock: Clock, progress: Progress
) -> Document:
    """Run `chosen` here and say what came of it.

    Args:
        chosen: the plan.
        node: what this machine is called.
        inject: the faults asked for, as they were asked for; they mark the document.
        baselines: the folder of what is known of figures.
        clock: the time.
        progress: who hears how far it is.

    Raises:
        PlanError: a fault is to be committed on a device that isn't there.
    """
    started_at, began = clock.wall(), clock.monotonic()
    lasts_s = LASTS_S[chosen.level] if chosen.needs(Scope.DEVICE, Scope.PEERS) else 0.0
    rounds, round_s, verdict = 0, 0.0, Verdict.PASS
    with Runner(chosen, clock, progress) as runner:
        while rounds == 0 or (verdict is Verdict.PASS and clock.monotonic() - began + round_s <= lasts_s):
            round_began, rounds = clock.monotonic(), rounds + 1
            measured = together(runner.round(), runner.devices)
            judged = expected(measured, runner.devices, knowledge(baselines, node, runner.software))
            results = located(judged, runner.devices)
            verdict, reasons = judge([spec.test for spec in chosen.specs], results, awaited(chosen, runner.names))
            round_s = clock.monotonic() - round_began
        devices, software = runner.devices, runner.software
    return Document(
        version=DOCUMENT_VERSION,
        level=chosen.level,
        node=node,
        rounds=rounds,
        complete=len(chosen.specs) == len(LEVELS[chosen.level]),
        verdict=verdict,
        reason="; ".join(reasons),
        reasons=reasons,
        injected=tuple(inject),
        started_at=started_at,
        seconds=round(clock.monotonic() - began, 3),
        devices=devices,
        software=software,
        results=results,
    )


def awaited(chosen: Plan, names: Sequence[str]) -> dict[str, Sequence[str]]:
    """For each test of devices those that must have a result."""
    return {spec.test: names for spec in chosen.specs if spec.scope is Scope.DEVICE}
