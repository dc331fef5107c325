"""Several sources on one figure: who is believed. Pure.

A table can be wrong for a variant of a product, a fleet can be young, siblings can be slow together. So:

1. What the test itself demands is decisive, and so is a fleet of at least eight other nodes.
2. Siblings of the same run decide alone, unless the fleet finds the figure usual. Without a fleet, which knows how devices
   scatter, they do so from 12 % on only.
3. Else it takes two sources that agree, or one static bound missed by far. One alone proves nothing: no conclusion.
4. A fleet that is content overrules table, link and history: then the table disagrees with the fleet, which is a remark.
5. History never decides; a missed one is a second witness.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from preflight.expect.bounds import NAMES, Bound, behind, clause, margin, misses, misses_grossly, named
from preflight.expect.figures import said
from preflight.expect.fleet import NODES_ALONE
from preflight.results import Expectation, Figure, Outcome, Source

GROSS_SHARE = 0.4  # of a static bound: tables confuse one way with both ways (a half), hardly more
SIBLINGS_ALONE_SHARE = 0.12
USUAL_SHARE = 0.05  # so little under the fleet's median is usual there
_STATIC = (Source.PHYSICAL, Source.SKU)
_OVERRULED = (*_STATIC, Source.HISTORY)


class Ruling(msgspec.Struct, frozen=True, kw_only=True):
    """One figure judged: with its expectations and margin, what follows for a test that passed, and why."""

    figure: Figure
    outcome: Outcome = Outcome.PASS
    reason: str = ""
    remarks: tuple[str, ...] = ()


def weigh(figure: Figure, bounds: Mapping[Source, Bound]) -> Ruling:
    """The ruling over a figure that is a measurement. The expectations it comes with are its test's own demands."""
    own = [e for e in figure.expected if e.fails and misses(figure.value, e)]
    missed = [s for s, b in bounds.items() if b.expectation.fails and misses(figure.value, b.expectation)]
    overruled = [source for source in missed if _overruled(figure, source, bounds)]
    against = [source for source in missed if source not in overruled]
    outcome = _outcome(figure, bounds, against)
    weighed = _with(figure, bounds, overruled if outcome is not Outcome.PASS or own else missed)
    remarks = tuple(_disagreement(figure, source, bounds) for source in overruled)
    if own:
        clauses = [clause(figure, e) for e in own] + [clause(figure, bounds[source].expectation) for source in against]
        return Ruling(figure=weighed, outcome=Outcome.FAIL, reason=_sentence(figure, clauses), remarks=remarks)
    reason = "" if outcome is Outcome.PASS else _reason(figure, bounds, against, outcome)
    return Ruling(figure=weighed, outcome=outcome, reason=reason, remarks=remarks)


def _overruled(figure: Figure, source: Source, bounds: Mapping[Source, Bound]) -> bool:
    """Whether the fleet knows better than `source`."""
    fleet = bounds.get(Source.FLEET)
    if fleet is None or misses(figure.value, fleet.expectation):
        return False
    return source in _OVERRULED or (source is Source.SIBLINGS and behind(figure, fleet.usual) <= USUAL_SHARE)


def _outcome(figure: Figure, bounds: Mapping[Source, Bound], against: list[Source]) -> Outcome:
    if not against:
        return Outcome.PASS
    fleet, siblings = bounds.get(Source.FLEET), bounds.get(Source.SIBLINGS)
    alone = (fleet is not None and Source.FLEET in against and fleet.witnesses >= NODES_ALONE) or (
        siblings is not None
        and Source.SIBLINGS in against
        and (fleet is not None or behind(figure, siblings.usual) >= SIBLINGS_ALONE_SHARE)
    )
    gross = any(misses_grossly(figure.value, bounds[s].expectation, GROSS_SHARE) for s in against if s in _STATIC)
    if alone or gross or len(against) > 1:
        return Outcome.FAIL
    return Outcome.PASS if against == [Source.HISTORY] else Outcome.ERROR


def _with(figure: Figure, bounds: Mapping[Source, Bound], harmless: list[Source]) -> Figure:
    """The figure with everything that is expected of it. What does not count for this ruling fails nothing."""
    added = tuple(
        msgspec.structs.replace(b.expectation, fails=b.expectation.fails and s not in harmless)
        for s, b in bounds.items()
    )
    expected = figure.expected + added
    margins = [margin(figure.value, e) for e in expected if e.fails]
    return msgspec.structs.replace(figure, expected=expected, margin=min(margins) if margins else None)


def _reason(figure: Figure, bounds: Mapping[Source, Bound], against: list[Source], outcome: Outcome) -> str:
    words = _sentence(figure, [clause(figure, bounds[source].expectation) for source in against])
    if content := [_bound(s, b.expectation) for s, b in bounds.items() if s not in against and b.expectation.fails]:
        words += f"; met: {', '.join(content)}"
    if outcome is Outcome.FAIL:
        return words
    if Source.SIBLINGS in against:
        return f"{words}. Devices may differ by so much, and no fleet baseline says whether these do"
    if Source.FLEET in against:
        return f"{words}. {bounds[Source.FLEET].witnesses} nodes are too few to fail by alone: learn from {NODES_ALONE}"
    return f"{words}. The machine or the bound is wrong, and no fleet baseline says which"


def _disagreement(figure: Figure, source: Source, bounds: Mapping[Source, Bound]) -> str:
    fleet = bounds[Source.FLEET]
    return (
        f"{_sentence(figure, [clause(figure, bounds[source].expectation)])}; but {fleet.witnesses} other nodes reach "
        f"{said(fleet.usual)}: this bound disagrees with the fleet, which is believed"
    )


def _sentence(figure: Figure, clauses: list[str]) -> str:
    return f"{named(figure)}: {', and '.join(clauses)}"


def _bound(source: Source, expectation: Expectation) -> str:
    limit = expectation.at_least if expectation.at_least is not None else expectation.at_most
    return f"{said(limit or 0.0)} of {NAMES[source]}"
