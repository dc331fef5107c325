"""Several sources on one figure: who is believed. Pure.

A table can be wrong for a variant of a product, a fleet can be young, siblings can be slow together. So:

1. What the test itself demands decides. So does a fleet of at least eight other nodes with the same software, unless three of
   them are as slow: they may all have another part.
2. So do siblings of the same run, where the fleet knows how devices scatter and does not find the figure usual. Where devices or
   nodes scatter too far, neither decides.
3. So does a static bound (table, link) that is missed by far more than a table can be wrong.
4. Else a witness takes a second source. One witness alone proves nothing: no conclusion. A hint alone is a remark.
5. Of a figure that tells of the worst moment only (p99, least, greatest) others' words are hints: it has heavy tails.
6. A fleet that is content overrules table, link and history: then the bound disagrees with the fleet, which is a remark.
7. A static bound that the siblings miss too is no second source to them: that it is wrong would explain as much.
8. On a platform that has not been measured no bound fails a figure, except the test's own: the result is inconclusive.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from preflight.expectations.bounds import (
    NAMES,
    SourceBound,
    SourceWeight,
    compute_margin,
    compute_shortfall,
    describe_figure,
    describe_missed_bound,
    misses_bound,
    misses_grossly,
)
from preflight.expectations.measurement_keys import format_value, is_extreme
from preflight.results import Expectation, Figure, Outcome, Source

GROSS_SHARE = 0.4  # of a static bound: tables confuse one direction with both (a half), hardly more
USUAL_SHARE = 0.05  # this far below the fleet's median is still usual
UNMEASURED = (
    "No limit fails a device here, because this platform has not been measured: learn a baseline from three nodes"
)
_STATIC = (Source.PHYSICAL, Source.SKU)
_OVERRULED = (*_STATIC, Source.HISTORY)
Bounds = Mapping[Source, SourceBound]


class FigureRuling(msgspec.Struct, frozen=True, kw_only=True):
    """The ruling on one figure: expectations and margin, the outcome for a passed test, and the reason."""

    figure: Figure
    outcome: Outcome = Outcome.PASS
    reason: str = ""
    remarks: tuple[str, ...] = ()


def weigh_bounds(figure: Figure, bounds: Bounds, *, measured: bool = True) -> FigureRuling:
    """Rule on a measured figure. Its existing expectations are the test's own requirements.

    `measured`: whether this platform's figures and their scatter are known; otherwise none fails.
    """
    own = [e for e in figure.expected if e.fails and misses_bound(figure.value, e)]
    missed = [s for s, b in bounds.items() if b.expectation.fails and misses_bound(figure.value, b.expectation)]
    overruled = [source for source in missed if _is_overruled(figure, source, bounds)]
    against = [source for source in missed if source not in overruled]
    decided = _decide_outcome(figure, bounds, against)
    unproven = decided is Outcome.FAIL and not measured and not own
    outcome = Outcome.FAIL if own else Outcome.ERROR if unproven else decided
    harmless = missed if outcome is Outcome.PASS else overruled
    remarks = [_describe_disagreement(figure, source, bounds) for source in overruled]
    if outcome is Outcome.PASS:
        remarks += [
            _join_clauses(figure, [_describe_clause(figure, source, bounds)])
            for source in against
            if bounds[source].doubt or (is_extreme(figure) and source is not Source.HISTORY)
        ]
    clauses = [describe_missed_bound(figure, e) for e in own] + [
        _describe_clause(figure, source, bounds) for source in against
    ]
    reason = "" if outcome is Outcome.PASS else _build_reason(figure, bounds, clauses, against, decided)
    reason += f". {UNMEASURED}" if unproven else ""
    return FigureRuling(
        figure=_attach_expectations(figure, bounds, harmless), outcome=outcome, reason=reason, remarks=tuple(remarks)
    )


def _is_overruled(figure: Figure, source: Source, bounds: Bounds) -> bool:
    """Whether the fleet overrules `source`."""
    fleet = bounds.get(Source.FLEET)
    if fleet is None or misses_bound(figure.value, fleet.expectation):
        return False
    return source in _OVERRULED or (source is Source.SIBLINGS and compute_shortfall(figure, fleet.usual) <= USUAL_SHARE)


def _decide_outcome(figure: Figure, bounds: Bounds, against: list[Source]) -> Outcome:
    told = [(source, _weigh_source(figure, source, bounds)) for source in against]
    words = [word for source, word in told if word is SourceWeight.DECIDES or not _is_doubted(source, bounds, against)]
    if SourceWeight.DECIDES in words or (SourceWeight.WITNESS in words and len(words) > 1):
        return Outcome.FAIL
    hints_only = SourceWeight.WITNESS not in words and (len(words) < 2 or is_extreme(figure))
    return Outcome.PASS if hints_only else Outcome.ERROR


def _weigh_source(figure: Figure, source: Source, bounds: Bounds) -> SourceWeight:
    """The weight of a missed bound."""
    bound, fleet = bounds[source], bounds.get(Source.FLEET)
    if source not in _STATIC and is_extreme(figure):
        return SourceWeight.HINT
    if source in _STATIC and misses_grossly(figure.value, bound.expectation, GROSS_SHARE):
        return SourceWeight.DECIDES
    if source is Source.SIBLINGS:
        scatter_known = fleet is not None and fleet.word is not SourceWeight.HINT
        return SourceWeight.DECIDES if scatter_known and not bound.doubt else SourceWeight.WITNESS
    return bound.word


def _is_doubted(source: Source, bounds: Bounds, against: list[Source]) -> bool:
    """Whether the median sibling misses a static bound too, so that it adds nothing to the siblings' evidence."""
    if source not in _STATIC or Source.SIBLINGS not in against:
        return False
    return misses_bound(bounds[Source.SIBLINGS].usual, bounds[source].expectation)


def _attach_expectations(figure: Figure, bounds: Bounds, harmless: list[Source]) -> Figure:
    """Add all expectations to the figure. Those that do not count for this ruling do not fail it."""
    added = tuple(
        msgspec.structs.replace(b.expectation, fails=b.expectation.fails and s not in harmless)
        for s, b in bounds.items()
    )
    expected = figure.expected + added
    margins = [compute_margin(figure.value, e) for e in expected if e.fails]
    return msgspec.structs.replace(figure, expected=expected, margin=min(margins) if margins else None)


def _build_reason(figure: Figure, bounds: Bounds, clauses: list[str], against: list[Source], outcome: Outcome) -> str:
    words = _join_clauses(figure, clauses)
    if content := [
        _describe_bound(s, b.expectation) for s, b in bounds.items() if s not in against and b.expectation.fails
    ]:
        words += f"; met: {', '.join(content)}"
    if outcome is Outcome.FAIL or any(bounds[source].doubt for source in against):
        return words
    if Source.SIBLINGS in against:
        return f"{words}. Devices can differ this much, and there is no fleet baseline to compare with"
    return f"{words}. Either the machine or the bound is wrong, and there is no fleet baseline to tell which"


def _describe_disagreement(figure: Figure, source: Source, bounds: Bounds) -> str:
    fleet = bounds[Source.FLEET]
    return (
        f"{_join_clauses(figure, [_describe_clause(figure, source, bounds)])}; but {fleet.witnesses} other nodes reach "
        f"{format_value(fleet.usual)}: this bound disagrees with the fleet, and the fleet takes precedence"
    )


def _describe_clause(figure: Figure, source: Source, bounds: Bounds) -> str:
    doubt = bounds[source].doubt
    return describe_missed_bound(figure, bounds[source].expectation) + (f"; {doubt}" if doubt else "")


def _join_clauses(figure: Figure, clauses: list[str]) -> str:
    return f"{describe_figure(figure)}: {', and '.join(clauses)}"


def _describe_bound(source: Source, expectation: Expectation) -> str:
    limit = expectation.at_least if expectation.at_least is not None else expectation.at_most
    return f"{format_value(limit or 0.0)} of {NAMES[source]}"
