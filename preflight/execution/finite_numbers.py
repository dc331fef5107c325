"""Replaces NaN and infinity, which JSON lacks, so that results can be serialized. Pure."""

from __future__ import annotations

import math

import msgspec

from preflight.results import Outcome, Result


def replace_non_finite(result: Result) -> Result:
    """`result` without non-finite numbers: such figures are dropped, and a pass with one becomes an error.

    In evidence they become text.
    """
    wrong = [figure for figure in result.figures if not math.isfinite(figure.value)]
    evidence = {name: _spell_out_number(value) for name, value in result.evidence.items()}
    if not wrong:
        return result if evidence == result.evidence else msgspec.structs.replace(result, evidence=evidence)
    kept = tuple(figure for figure in result.figures if math.isfinite(figure.value))
    words = "; ".join(f"{figure.name} is {figure.value}, not a number: the test measured nothing" for figure in wrong)
    passed = result.outcome is Outcome.PASS
    return msgspec.structs.replace(
        result,
        outcome=Outcome.ERROR if passed else result.outcome,
        reason="; ".join(filter(None, (result.reason, words))) if passed else result.reason,
        remarks=result.remarks if passed else (*result.remarks, words),
        figures=kept,
        evidence=evidence,
    )


def _spell_out_number(value: str | float | bool) -> str | int | float | bool:  # noqa: FBT001 - evidence is plain values
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
