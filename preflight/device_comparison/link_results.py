"""Compares the results of all device pairs: which device or link is slow, corrupts data, or has too few NVLinks. Pure."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence

import msgspec

from preflight.check_context import Device
from preflight.device_comparison import nvlink_shortfall
from preflight.device_comparison.pair_culprits import Pair, find_pair_culprits
from preflight.fault_localisation.localisation_records import (
    Accused,
    Conclusion,
    Kind,
    LocalisationVerdict,
    PairExpectations,
    PairResult,
    Round,
    Topology,
)
from preflight.results import Evidence, Figure, Location, Outcome, Result
from vocabulary.text.plurals import format_count

TEST = "peer_links"
HOST = "host"
# The smallest reported loss. One dead NVLink of 18 costs 5.6 %, part of which noise may hide. PCIe pairs differ by
# location. Processes of one host share its CPUs with other load: rates above HOST_LEAST_GB_S count as equal.
WORTH = {"nvlink": 0.04, HOST: 0.1}
WORTH_ELSE = 0.3
HOST_LEAST_GB_S = 0.005  # every working CPU copies faster
ONE_WAY_SHARE = {"nvlink": 0.9, HOST: 0.9}  # of the other direction, if there are too few pairs to compare
ONE_WAY_ELSE = 0.7
_PAIRS_MIN = 3  # fewer have no meaningful median


class PairMeasurement(msgspec.Struct, frozen=True):
    """The data over one directed pair in one round."""

    round: int
    sender: str
    receiver: str
    medium: str
    alone: float
    both_ways: float


class _LinkFault(msgspec.Struct, frozen=True):
    """One fault of a device, or between two devices; `by_limit`: it is one of rates."""

    ends: tuple[str, ...]
    sentence: str
    outcome: Outcome = Outcome.FAIL
    wrong_data: bool = False
    by_limit: bool = False


def judge_peer_links(results: Sequence[Result], devices: Sequence[Device]) -> list[Result]:
    """One result per device, from all measurements of it.

    Rates are judged only if every device finished: a missing device makes others look slow.
    """
    names = [device.name for device in devices]
    pairs = [result for result in results if _is_pair(result)]
    rest = [result for result in results if not _is_pair(result)]
    if not pairs:
        return [*results]
    said = _find_corrupt_pairs(pairs, names)
    products = {device.name: device.product for device in devices}
    silent: set[str] = set()
    if all(result.outcome in (Outcome.PASS, Outcome.FAIL) for result in rest):
        measured = [_parse_measurement(result) for result in pairs]
        said += _find_slow_pairs(measured)
        lacks = nvlink_shortfall.find_gpus_off_nvlink(
            [nvlink_shortfall.MeasuredPath(m.sender, m.receiver, m.medium, m.alone) for m in measured], products
        )
        said += [_LinkFault((lack.device,), lack.sentence, lack.outcome) for lack in lacks]
        silent = {result.device for result in pairs} - {result.device for result in rest}
    said += [
        _LinkFault((lack.device,), lack.sentence)
        for lack in nvlink_shortfall.find_missing_nvlinks(rest, sorted(silent), products)
    ]
    heard = {result.device for result in results}
    order = [*(name for name in names if name in heard), *sorted(heard - set(names))]
    return [_merge_device_result(name, [r for r in results if r.device == name], said) for name in order]


def plan_next_pairs(measured: Sequence[PairResult], names: Sequence[str], medium: str) -> Round:
    """The pairs to measure next to confirm or clear the suspects; empty without suspects."""
    from preflight.fault_localisation.confirmation_rounds import plan_confirmation_round  # noqa: PLC0415 - numpy, which only who has pairs need have

    topology = Topology(tuple(names))
    if medium == HOST:
        measured = [r._replace(value=min(r.value, HOST_LEAST_GB_S)) for r in measured if r.value is not None]
    if len({frozenset((r.a, r.b)) for r in measured}) < _PAIRS_MIN:
        return ()
    verdict = _localise_pairs(measured, topology, _build_expectations(medium))
    return plan_confirmation_round(verdict, topology, measured) if verdict.suspects else ()


def _localise_pairs(
    results: Sequence[PairResult], topology: Topology, expectations: PairExpectations
) -> LocalisationVerdict:
    from preflight.fault_localisation.localisation_verdict import localise_faults  # noqa: PLC0415 - numpy, which only who has pairs need have

    return localise_faults(results, topology, expectations)


def _is_pair(result: Result) -> bool:
    measured = len(result.figures) == 2  # a non-numeric rate does not count as a measurement
    return measured and "round" in result.evidence and len(result.locations) == 1 and bool(result.locations[0].peer)


def _parse_measurement(result: Result) -> PairMeasurement:
    alone, both = result.figures
    number = result.evidence["round"]
    return PairMeasurement(int(number), result.locations[0].peer, result.device, alone.setting, alone.value, both.value)


def _build_expectations(medium: str) -> PairExpectations:
    return PairExpectations(slowdown_min=WORTH.get(medium, WORTH_ELSE))


def _find_corrupt_pairs(pairs: Iterable[Result], names: Sequence[str]) -> list[_LinkFault]:
    wrong: dict[Pair, str] = {}
    for result in pairs:
        if result.outcome is Outcome.FAIL:
            ends = result.locations[0].peer, result.device
            wrong.setdefault((min(ends), max(ends)), f"{result.device}: {result.reason}")
    found = find_pair_culprits(wrong, names)
    said = []
    for device in found.devices:
        mine = [pair for pair in wrong if device in pair]
        words = f"data of {len(mine)} of its {format_count(len(names) - 1, 'pair')} arrived corrupt; {wrong[mine[0]]}"
        said.append(_LinkFault((device,), words, wrong_data=True))
    for one, other in found.pairs:
        words = f"data arrived corrupt between {one} and {other}{_describe_ambiguity(names)}; {wrong[one, other]}"
        said.append(_LinkFault((one, other), words, wrong_data=True))
    return said


def _describe_ambiguity(names: Sequence[str]) -> str:
    return " (a single pair cannot tell which)" if len(names) == 2 else ""


def _find_slow_pairs(measured: Sequence[PairMeasurement]) -> list[_LinkFault]:
    said: list[_LinkFault] = []
    for medium in dict.fromkeys(each.medium for each in measured):
        mine = [each for each in measured if each.medium == medium]
        leveled = [_drop_duplex_gap(each) for each in mine] if medium == HOST else mine
        if len({frozenset((m.sender, m.receiver)) for m in mine}) >= _PAIRS_MIN:
            said += _compare_pairs(leveled, medium, statistics.median(each.alone for each in mine))
        else:
            said += _find_slow_directions(mine, leveled, medium)
        if medium == HOST:
            said += [s for s in _find_stalled_pairs(mine) if not any(set(s.ends) & set(known.ends) for known in said)]
    return said


def _drop_duplex_gap(each: PairMeasurement) -> PairMeasurement:
    """Ignore the gap with both directions at once, where only the CPU load is higher."""
    alone = min(each.alone, HOST_LEAST_GB_S)
    return msgspec.structs.replace(each, alone=alone, both_ways=alone)


def _compare_pairs(measured: Sequence[PairMeasurement], medium: str, usual: float) -> list[_LinkFault]:
    names = tuple(sorted({name for m in measured for name in (m.sender, m.receiver)}))
    said: list[_LinkFault] = []
    for words, rates in (
        ("", {(m.round, m.sender, m.receiver): m.alone for m in measured}),
        (" in both directions at once", {(m.round, m.sender, m.receiver): m.both_ways for m in measured}),
    ):
        slower: dict[tuple[int, str, str], float] = {}
        for (number, sender, receiver), rate in rates.items():
            key = number, min(sender, receiver), max(sender, receiver)
            slower[key] = min(rate, slower.get(key, rate))
        results = [PairResult(number, a, b, None, rate) for (number, a, b), rate in slower.items()]
        verdict = _localise_pairs(results, Topology(names), _build_expectations(medium))
        found = [_describe_accused(accused, words, usual) for accused in verdict.culprits]
        found += [] if found else _describe_undecided(verdict, words, usual)
        said += [new for new in found if new.ends not in {old.ends for old in said}]
    return said


def _describe_accused(accused: Accused, words: str, usual: float) -> _LinkFault:
    rate = f"at best {accused.score:.0%} of the usual rate (median of all pairs: {usual:.3g} GB/s)"
    what = "it is slow" if accused.kind is Kind.NODE else f"the link between {' and '.join(accused.where)} is slow"
    return _LinkFault(accused.where, f"{what}{words}: {rate}; {'; '.join(accused.evidence)}", by_limit=True)


def _describe_undecided(verdict: LocalisationVerdict, words: str, usual: float) -> list[_LinkFault]:
    """Some pairs are slow, but no device is identified: neither a pass nor a device fault."""
    if verdict.conclusion is not Conclusion.INCONCLUSIVE:
        return []
    if verdict.suspects:
        return [
            _LinkFault(
                s.where, f"suspected, not confirmed: {_describe_accused(s, words, usual).sentence}", Outcome.ERROR
            )
            for s in verdict.suspects
        ]
    return [
        _LinkFault((), f"pairs differ{words}, but no device stands out: {'; '.join(verdict.reasons)}", Outcome.ERROR)
    ]


def _find_slow_directions(
    measured: Sequence[PairMeasurement], leveled: Sequence[PairMeasurement], medium: str
) -> list[_LinkFault]:
    """With too few pairs to compare, compare the two directions of one pair."""
    share = ONE_WAY_SHARE.get(medium, ONE_WAY_ELSE)
    rates, best = _find_best_rates(measured), _find_best_rates(leveled)
    said = []
    for sender, receiver in best:
        back = receiver, sender
        if best[sender, receiver] < share * best.get(back, 0.0):
            words = f"{rates[sender, receiver]:.3g} GB/s, {rates[back]:.3g} GB/s in the other direction; a single pair cannot tell which end"
            said.append(_LinkFault((sender, receiver), f"slow from {sender} to {receiver}: {words}", by_limit=True))
    return said


def _find_best_rates(measured: Sequence[PairMeasurement]) -> dict[Pair, float]:
    best: dict[Pair, float] = {}
    for each in measured:
        way = each.sender, each.receiver
        best[way] = max(each.alone, best.get(way, 0.0))
    return best


def _find_stalled_pairs(measured: Sequence[PairMeasurement]) -> list[_LinkFault]:
    best: dict[Pair, float] = defaultdict(float)
    for each in measured:
        pair = min(each.sender, each.receiver), max(each.sender, each.receiver)
        best[pair] = max(best[pair], each.alone)
    return [
        _LinkFault(
            (one, other),
            f"slow between {one} and {other}: {rate:.2g} GB/s at best; a single pair cannot tell which end",
        )
        for (one, other), rate in best.items()
        if rate < HOST_LEAST_GB_S
    ]


def _merge_device_result(name: str, mine: Sequence[Result], said: Sequence[_LinkFault]) -> Result:
    """Merge all results of one device: its own failures first, then conclusions, then figures."""
    own = [r for r in mine if not _is_pair(r)]
    about = [s for s in said if name in s.ends or not s.ends]
    outcomes = [r.outcome for r in own] + [s.outcome for s in about]
    worst = next((o for o in _ORDER if o in outcomes), Outcome.PASS)
    reasons = [r.reason for r in own if r.reason] + [s.sentence for s in about]
    others = [(s, end) for s in about for end in s.ends if end != name]
    spoilt = [r for r in mine if _is_pair(r) and r.outcome is Outcome.FAIL]
    cleared = [f"not at fault here: {r.reason}" for r in spoilt if not any(s.wrong_data for s in about)]
    failing = [(r.outcome, r.by_limit) for r in own] + [(s.outcome, s.by_limit) for s in about]
    evidence: Evidence = {}
    for result in own:
        evidence |= result.evidence
    evidence |= {"pairs": len({r.locations[0].peer for r in mine if _is_pair(r)})}
    located = [loc for r in own for loc in r.locations] + [Location(gpu=name, peer=end) for _, end in others]
    return Result(
        test=TEST,
        outcome=worst,
        device=name,
        reason="; ".join(dict.fromkeys(reasons)),
        seconds=sum(r.seconds for r in mine),
        figures=_build_pair_figures(name, [r for r in mine if _is_pair(r)]),
        locations=tuple(dict.fromkeys(located)) or (Location(gpu=name),) if about else tuple(located),
        remarks=tuple(dict.fromkeys([*(remark for r in own for remark in r.remarks), *cleared])),
        evidence=evidence,
        misconfigured=any(r.misconfigured for r in own),
        by_limit=worst is Outcome.FAIL and all(limit for outcome, limit in failing if outcome is Outcome.FAIL),
    )


_ORDER = (Outcome.FAIL, Outcome.HANG, Outcome.ERROR, Outcome.NOT_RUN)


def _build_pair_figures(name: str, pairs: Sequence[Result]) -> tuple[Figure, ...]:
    """The best rate of each pair as ``MEDIUM, SENDER to RECEIVER``, and the median over all pairs of a medium as ``MEDIUM``."""
    best: dict[tuple[str, str], float] = {}
    for result in pairs:
        for figure in result.figures:
            key = figure.setting, result.locations[0].peer
            best[key] = max(figure.value, best.get(key, 0.0))
    middle: dict[str, list[float]] = defaultdict(list)
    for (setting, _), value in best.items():
        middle[setting].append(value)
    return (
        *(_build_rate_figure(setting, statistics.median(values)) for setting, values in middle.items()),
        *(_build_rate_figure(f"{setting}, {peer} to {name}", value) for (setting, peer), value in best.items()),
    )


def _build_rate_figure(setting: str, value: float) -> Figure:
    return Figure(name="pair_rate", value=round(value, 4), unit="GB/s", setting=setting)
