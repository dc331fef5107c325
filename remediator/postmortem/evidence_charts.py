"""Selects and orders the evidence for charts. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from remediator.postmortem.postmortem_document import ChartLine, EvidenceChart
from vocabulary.finding import Finding
from vocabulary.identity import ComponentKind
from vocabulary.messages.evidence_bundle import EvidenceBundle, RankEvidence, Series

POINTS_MAX = 240  # per line: more exceeds the pixels
LINES_MAX = 16
CHARTS_MAX = 24
VALUE_MAX = 1e18  # larger values are no measurements
BEFORE_S, AFTER_S = 3600.0, 60.0  # of a bundle, which covers only this time
STEP_TIMES = "time of a training step"

# The order in which operators read them. Others follow by name.
_FIRST = (
    STEP_TIMES,
    "temperature",
    "power",
    "SM clock",
    "utilization",
    "memory temperature",
    "memory clock",
    "throttle reasons",
)
_ALWAYS = frozenset(
    {STEP_TIMES, "temperature", "power", "SM clock", "utilization", "memory temperature"}
)  # shown even if it never changed


def build_evidence_charts(
    bundle: EvidenceBundle, findings: Iterable[Finding], mark_at: float
) -> tuple[EvidenceChart, ...]:
    """Build one chart per informative value; constant ones are left out."""
    mark = "fault"
    if not _is_within_window(bundle, mark_at):
        mark_at, mark = bundle.taken_at, "asked"  # it began long before, and those minutes were not kept
    worth = [
        (value, sorted((line for line in lines if line.points), key=lambda line: not line.suspect))
        for value, lines in sorted(
            _collect_curves(bundle, suspect_components(bundle, findings)).items(), key=lambda v: _title_rank(v[0][0])
        )
        if any(_is_varying(line) or (value[0] in _ALWAYS and line.points) for line in lines)
    ][:CHARTS_MAX]
    times = [at for _, lines in worth for line in lines for at, _ in line.points]
    return tuple(
        EvidenceChart(
            title=title,
            unit=unit,
            node=bundle.node,
            began=min([*times, mark_at]),
            ended=max([*times, mark_at]),
            mark_at=mark_at,
            lines=tuple(lines[:LINES_MAX]),
            mark=mark,
            left_out=max(0, len(lines) - LINES_MAX),
        )
        for (title, unit), lines in worth
    )


def _collect_curves(bundle: EvidenceBundle, suspects: frozenset[str]) -> dict[tuple[str, str], list[ChartLine]]:
    """Collect curves by quantity and unit."""
    curves: dict[tuple[str, str], list[ChartLine]] = {}
    for rank in bundle.ranks:
        curves.setdefault((STEP_TIMES, "s"), []).append(_step_time_line(bundle, rank))
    for series in bundle.series:
        curves.setdefault((series.name, series.unit), []).append(_series_line(bundle, series, suspects))
    return curves


def suspect_components(bundle: EvidenceBundle, findings: Iterable[Finding]) -> frozenset[str]:
    """Return keys of the components that findings name; a GPU known by address only, by its UUID as well."""
    keys = set()
    for finding in findings:
        component = finding.component
        keys.add(component.key)
        if component.kind is ComponentKind.GPU:
            keys |= {f"gpu:{gpu.uuid}" for gpu in bundle.gpus if component.pci and gpu.pci == component.pci}
    return frozenset(keys)


def thin_points(points: Sequence[tuple[float, float]], most: int = POINTS_MAX) -> tuple[tuple[float, float], ...]:
    """Thin to about `most` points, keeping the lowest and highest of every stretch: spikes matter most."""
    if len(points) <= most:
        return tuple(points)
    stretch = -(-2 * len(points) // most)
    kept: list[tuple[float, float]] = []
    for at in range(0, len(points), stretch):
        part = points[at : at + stretch]
        kept += sorted({min(part, key=_point_value), max(part, key=_point_value)})
    return tuple(kept)


def _series_line(bundle: EvidenceBundle, series: Series, suspects: frozenset[str]) -> ChartLine:
    names = {f"gpu:{gpu.uuid or gpu.pci}": f"GPU {gpu.index}" for gpu in bundle.gpus}
    label = names.get(series.component) or series.component.partition(":")[2] or series.component
    return ChartLine(label, thin_points(_plausible_points(bundle, series.points)), series.component in suspects)


def _step_time_line(bundle: EvidenceBundle, rank: RankEvidence) -> ChartLine:
    points = [(step.started_at, step.seconds) for step in rank.steps]
    several = len({(each.job, each.attempt) for each in bundle.ranks}) > 1
    whose = f"{rank.job} {rank.attempt}, " if several else ""
    return ChartLine(f"{whose}rank {rank.rank}", thin_points(_plausible_points(bundle, points)))


def _plausible_points(bundle: EvidenceBundle, points: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Drop impossible measurements: a beacon or a bundle may hold any number."""
    return sorted((at, value) for at, value in points if _is_within_window(bundle, at) and abs(value) <= VALUE_MAX)


def _is_within_window(bundle: EvidenceBundle, at: float) -> bool:
    return -BEFORE_S <= at - bundle.taken_at <= AFTER_S


def _title_rank(title: str) -> tuple[int, str]:
    return (_FIRST.index(title) if title in _FIRST else len(_FIRST)), title


def _is_varying(line: ChartLine) -> bool:
    values = [value for _, value in line.points]
    return bool(values) and min(values) != max(values)


def _point_value(point: tuple[float, float]) -> float:
    return point[1]
