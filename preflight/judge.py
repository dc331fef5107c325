"""From results to a verdict, with reasons. Pure. What is unknown never passes."""

from __future__ import annotations

from collections.abc import Sequence

from preflight.results import Outcome, Result, Verdict

_BAD = (Outcome.FAIL, Outcome.HANG)
_OPEN = (Outcome.ERROR, Outcome.NOT_RUN)


def judge(planned: Sequence[str], results: Sequence[Result]) -> tuple[Verdict, tuple[str, ...]]:
    """The verdict over all `planned` tests, and why; the reasons are empty only for a pass.

    In order of weight: one failure or hang fails, whatever else is missing. Then what a person must put right.
    Then anything that came to no conclusion, a test without a result among them. A pass needs every test to pass or
    not to apply, and at least one to have passed.
    """
    if bad := [_sentence(r) for r in results if r.outcome in _BAD]:
        return Verdict.FAIL, tuple(bad)
    if wrong := [_sentence(r) for r in results if r.misconfigured]:
        return Verdict.MISCONFIGURED, tuple(wrong)
    unsure = [_sentence(r) for r in results if r.outcome in _OPEN]
    seen = {r.test for r in results}
    unsure += [f"{test}: no result" for test in planned if test not in seen]
    if unsure:
        return Verdict.INCONCLUSIVE, tuple(unsure)
    if not any(r.outcome is Outcome.PASS for r in results):
        return Verdict.INCONCLUSIVE, ("no test applied to this machine, so nothing is proven",)
    return Verdict.PASS, ()


def _sentence(result: Result) -> str:
    where = f" on {result.device}" if result.device else ""
    return f"{result.test}{where}: {result.reason or result.outcome.value}"
