"""Combines the results of both ends of each pair into one record per pair and rail. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from preflight.fault_localisation.localisation_records import PairResult, Why
from preflight.group.group_records import PairRecord, RailMeasurement, StepAnswer

_WEIGHT = {Why.MEASURED: 0, Why.NOT_RUN: 1, Why.HANG: 2, Why.ERROR: 3}


def combine_pair_answers(
    number: int, pairs: Iterable[tuple[str, str]], answers: Mapping[str, StepAnswer], *, compared: bool
) -> list[PairRecord]:
    """One record per pair and rail: the worse of both ends' results, the lower of two rates.

    Args:
        number: of the round.
        pairs: the pairs of the round.
        answers: by node; missing nodes did not answer.
        compared: whether measured rates are judged; else only their injected part, as a share.
    """
    records = []
    for a, b in pairs:
        ends = {node: answers.get(node) for node in (a, b)}
        rails = {one.rail for said in ends.values() if said for one in said.measured} or {None}
        for rail in sorted(rails, key=lambda number: -1 if number is None else number):
            said = {node: _select_rail_answer(answer, rail) for node, answer in ends.items()}
            records.append(_build_pair_record(number, a, b, rail, said, compared=compared))
    return records


def build_pair_results(records: Iterable[PairRecord], *, compared: bool) -> list[PairResult]:
    """The same in the localisation's format."""
    return [
        PairResult(
            r.round, r.a, r.b, r.rail, (r.rate if compared else r.share) if r.why is Why.MEASURED else None, r.why
        )
        for r in records
    ]


def _select_rail_answer(answer: StepAnswer | None, rail: int | None) -> RailMeasurement:
    if answer is None:
        return RailMeasurement(rail=rail, why=Why.HANG, words="no answer")
    for one in answer.measured:
        if one.rail == rail:
            return one
    return RailMeasurement(rail=rail, why=Why.ERROR, words="has no such rail")


def _build_pair_record(
    number: int, a: str, b: str, rail: int | None, said: Mapping[str, RailMeasurement], *, compared: bool
) -> PairRecord:
    why = max((one.why for one in said.values()), key=lambda each: _WEIGHT[each])
    failing = {node: one for node, one in said.items() if one.wrong_words} or said
    words = "; ".join(f"{node}: {one.words}" for node, one in failing.items() if one.words)
    rates = [one.rate for one in said.values() if one.rate is not None]
    return PairRecord(
        round=number,
        a=a,
        b=b,
        rail=rail,
        rate=min(rates) if rates and why is Why.MEASURED else None,
        share=None if compared or why is not Why.MEASURED else min(one.factor for one in said.values()),
        why=why,
        words=words,
        wrong_words=sum(one.wrong_words for one in said.values()),
    )
