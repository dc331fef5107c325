"""Converts a finished step from a rank's page to the form in reports and evidence: plain numbers only."""

from __future__ import annotations

from math import isfinite

from healthd.trainer.beacons.step_ring import StepRecord
from vocabulary.messages.evidence_bundle import StepTaken


def convert_step(step: StepRecord) -> StepTaken:
    """Round durations to 1 µs and start times to 1 ms; a loss that is not finite is named, not carried."""
    numbers = {"loss": step.loss, "grad_norm": step.grad_norm}
    finite = {name: value for name, value in numbers.items() if value is not None and isfinite(value)}
    return StepTaken(
        step=step.step,
        started_at=round(step.started_at, 3),
        seconds=round(step.seconds, 6),
        sections={name: round(value, 6) for name, value in step.sections.items()},
        loss=finite.get("loss"),
        grad_norm=finite.get("grad_norm"),
        tokens=step.tokens,
        not_finite=tuple(name for name, value in numbers.items() if value is not None and name not in finite),
    )
