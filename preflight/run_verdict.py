"""Derives a verdict with reasons from results. Pure. An unknown result never passes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from preflight.results import Outcome, Result, Verdict

_BAD = (Outcome.FAIL, Outcome.HANG)
_OPEN = (Outcome.ERROR, Outcome.NOT_RUN)


def judge_run(
    planned: Sequence[str], results: Sequence[Result], devices: Mapping[str, Sequence[str]] | None = None
) -> tuple[Verdict, tuple[str, ...]]:
    """The verdict over all `planned` tests, with reasons; they are empty only for a pass.

    `devices` names, per test, the devices that must have a result; for other tests any device will do. In order of weight: one
    failure or hang fails, whatever else is missing. Then what an operator must fix. Then inconclusive or missing results. A
    pass requires that every test passes or does not apply, and at least one passes. Remarks do not count.
    """
    if bad := _build_reasons(r for r in results if r.outcome in _BAD):
        return Verdict.FAIL, bad
    if wrong := _build_reasons(r for r in results if r.misconfigured):
        return Verdict.MISCONFIGURED, wrong
    unsure = _build_reasons(r for r in results if r.outcome in _OPEN) + _list_missing_results(
        planned, results, devices or {}
    )
    if unsure:
        return Verdict.INCONCLUSIVE, unsure
    if not any(r.outcome is Outcome.PASS for r in results):
        return Verdict.INCONCLUSIVE, ("no test applied to this machine, so nothing is qualified",)
    return Verdict.PASS, ()


def _list_missing_results(
    planned: Sequence[str], results: Sequence[Result], devices: Mapping[str, Sequence[str]]
) -> tuple[str, ...]:
    seen = {(r.test, r.device) for r in results}
    missing = [f"{test}: no result" for test in planned if test not in {r.test for r in results}]
    missing += [
        f"{test} on {device}: no result"
        for test, names in devices.items()
        for device in names
        if (test, device) not in seen
    ]
    return tuple(missing)


def _build_reasons(results: Iterable[Result]) -> tuple[str, ...]:
    """One sentence per reason; equal reasons of one device are merged."""
    tests: dict[tuple[str, str], list[str]] = {}
    for result in results:
        tests.setdefault((result.device, result.reason or result.outcome.value), []).append(result.test)
    return tuple(
        f"{', '.join(dict.fromkeys(names))}{f' on {device}' if device else ''}: {reason}"
        for (device, reason), names in tests.items()
    )
