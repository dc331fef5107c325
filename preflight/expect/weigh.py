"""Several sources on one figure: who is believed. Pure.

A table can be wrong for a variant of a product, a fleet can be young, siblings can be slow together. So:

1. What the test itself demands decides. So does a fleet of at least eight other nodes with the same software, unless three of
   them are as slow: they may all have another part.
2. So do siblings of the same run: from 9 % on where the fleet knows how devices scatter, else from 12 % on. Not where the fleet
   finds the figure usual. Where devices or nodes scatter too far, neither decides.
3. So does a static bound (table, link) that is missed by far more than a table can be wrong.
4. Else a witness takes a second source. One witness alone proves nothing: no conclusion. A hint alone is a remark.
5. Of a figure that tells of the worst moment only (p99, least, greatest) others' words are hints: it has heavy tails.
6. A fleet that is content overrules table, link and history: then the bound disagrees with the fleet, which is a remark.
7. A static bound that the siblings miss too is no second source to them: that it is wrong would explain as much.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from preflight.expect.bounds import NAMES, Bound, Word, behind, clause, margin, misses, misses_grossly, named
from preflight.expect.figures import extreme, said
from preflight.results import Expectation, Figure, Outcome, Source

GROSS_SHARE = 0.4  # of a static bound: tables confuse one way with both ways (a half), hardly more
SIBLINGS_ALONE_SHARE = 0.12
USUAL_SHARE = 0.05  # so little under the fleet's median is usual there
_STATIC = (Source.PHYSICAL, Source.SKU)
_OVERRULED = (*_STATIC, Source.HISTORY)
Bounds = Mapping[Source, Bound]


class Ruling(msgspec.Struct, frozen=True, kw_only=True):
    """One figure judged: with its expectations and margin, what follows for a test that passed, and why."""

    figure: Figure
    outcome: Outcome = Outcome.PASS
    reason: str = ""
    remarks: tuple[str, ...] = ()


def weigh(figure: Figure, bounds: Bounds) -> Ruling:
    """The ruling over a figure that is a measurement. The expectations it comes with are its test's own demands."""
    own = [e for e in figure.expected if e.fails and misses(figure.value, e)]
    missed = [s for s, b in bounds.items() if b.expectation.fails and misses(figure.value, b.expectation)]
    overruled = [source for source in missed if _overruled(figure, source, bounds)]
    against = [source for source in missed if source not in overruled]
    outcome = Outcome.FAIL if own else _outcome(figure, bounds, against)
    harmless = missed if outcome is Outcome.PASS else overruled
    remarks = [_disagreement(figure, source, bounds) for source in overruled]
    if outcome is Outcome.PASS:
        remarks += [
            _sentence(figure, [_clause(figure, source, bounds)])
            for source in against
            if bounds[source].doubt or (extreme(figure) and source is not Source.HISTORY)
        ]
    clauses = [clause(figure, e) for e in own] + [_clause(figure, source, bounds) for source in against]
    reason = "" if outcome is Outcome.PASS else _reason(figure, bounds, clauses, against, outcome)
    return Ruling(figure=_with(figure, bounds, harmless), outcome=outcome, reason=reason, remarks=tuple(remarks))


def _overruled(figure: Figure, source: Source, bounds: Bounds) -> bool:
    """Whether the fleet knows better than `source`."""
    fleet = bounds.get(Source.FLEET)
    if fleet is None or misses(figure.value, fleet.expectation):
        return False
    return source in _OVERRULED or (source is Source.SIBLINGS and behind(figure, fleet.usual) <= USUAL_SHARE)


def _outcome(figure: Figure, bounds: Bounds, against: list[Source]) -> Outcome:
    told = [(source, _word(figure, source, bounds)) for source in against]
    words = [word for source, word in told if word is Word.DECIDES or not _doubted(source, bounds, against)]
    if Word.DECIDES in words or (Word.WITNESS in words and len(words) > 1):
        return Outcome.FAIL
    hints_only = Word.WITNESS not in words and (len(words) < 2 or extreme(figure))
    return Outcome.PASS if hints_only else Outcome.ERROR


def _word(figure: Figure, source: Source, bounds: Bounds) -> Word:
    """What a missed bound is worth."""
    bound, fleet = bounds[source], bounds.get(Source.FLEET)
    if source not in _STATIC and extreme(figure):
        return Word.HINT
    if source in _STATIC and misses_grossly(figure.value, bound.expectation, GROSS_SHARE):
        return Word.DECIDES
    if source is Source.SIBLINGS:
        scatter_known = fleet is not None and fleet.word is not Word.HINT
        sure = not bound.doubt and (scatter_known or behind(figure, bound.usual) >= SIBLINGS_ALONE_SHARE)
        return Word.DECIDES if sure else Word.WITNESS
    return bound.word


def _doubted(source: Source, bounds: Bounds, against: list[Source]) -> bool:
    """Whether a static bound is missed by the usual sibling too, so that it adds nothing to what the siblings say."""
    if source not in _STATIC or Source.SIBLINGS not in against:
        return False
    return misses(bounds[Source.SIBLINGS].usual, bounds[source].expectation)


def _with(figure: Figure, bounds: Bounds, harmless: list[Source]) -> Figure:
    """The figure with everything that is expected of it. What does not count for this ruling fails nothing."""
    added = tuple(
        msgspec.structs.replace(b.expectation, fails=b.expectation.fails and s not in harmless)
        for s, b in bounds.items()
    )
    expected = figure.expected + added
    margins = [margin(figure.value, e) for e in expected if e.fails]
    return msgspec.structs.replace(figure, expected=expected, margin=min(margins) if margins else None)


def _reason(figure: Figure, bounds: Bounds, clauses: list[str], against: list[Source], outcome: Outcome) -> str:
    words = _sentence(figure, clauses)
    if content := [_bound(s, b.expectation) for s, b in bounds.items() if s not in against and b.expectation.fails]:
        words += f"; met: {', '.join(content)}"
    if outcome is Outcome.FAIL or any(bounds[source].doubt for source in against):
        return words
    if Source.SIBLINGS in against:
        return f"{words}. Devices may differ by so much, and no fleet baseline says whether these do"
    return f"{words}. The machine or the bound is wrong, and no fleet baseline says which"


def _disagreement(figure: Figure, source: Source, bounds: Bounds) -> str:
    fleet = bounds[Source.FLEET]
    return (
        f"{_sentence(figure, [_clause(figure, source, bounds)])}; but {fleet.witnesses} other nodes reach "
        f"{said(fleet.usual)}: this bound disagrees with the fleet, which is believed"
    )


def _clause(figure: Figure, source: Source, bounds: Bounds) -> str:
    doubt = bounds[source].doubt
    return clause(figure, bounds[source].expectation) + (f"; {doubt}" if doubt else "")


def _sentence(figure: Figure, clauses: list[str]) -> str:
    return f"{named(figure)}: {', and '.join(clauses)}"


def _bound(source: Source, expectation: Expectation) -> str:
    limit = expectation.at_least if expectation.at_least is not None else expectation.at_most
    return f"{said(limit or 0.0)} of {NAMES[source]}"
