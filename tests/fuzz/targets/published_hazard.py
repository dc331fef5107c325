"""The file in which healthd tells a job how likely a failure is; the trainer reads it."""

from __future__ import annotations

from healthd.trainer.interval.hazard_file import parse_hazard
from tests.fuzz.target import Target


def judge(data: bytes) -> None:
    """Never an error: a number that can be reckoned with, or none."""
    hazard = parse_hazard(data, "j", 100.0)
    if hazard is not None and not (hazard.nodes > 0 and 0 <= hazard.per_s < 1e9 and hazard.valid_until > 100.0):
        raise AssertionError(f"no hazard to reckon with: {hazard}")


TARGET = Target(
    judge,
    (
        b'{"version":1,"job":"j","per_s":1e-7,"nodes":8,"valid_until":1e9}',
        b'{"version":1,"job":"j","per_s":NaN,"nodes":1e400,"valid_until":Infinity}',
    ),
    bytes_max=512,
)
