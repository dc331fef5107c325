"""Views of GPUs and jobs, from the committed state and the nodes' last reports. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from itertools import chain
from statistics import median_low
from typing import NamedTuple

from msgspec.structs import replace

from remediator.engine.decision_engine import StateSnapshot
from remediator.fleet.report_registry import ReportEntry, ReportRegistry
from remediator.model.detector_origin import is_concluded
from remediator.model.job_share import JobShare
from remediator.model.journal_records import JobRef
from remediator.model.views_jobs import GpuView, JobRank, JobView, ReportedSwap
from vocabulary.finding import Finding
from vocabulary.health import Health, health_of
from vocabulary.identity import ComponentKind

FINDINGS_LISTED = 100  # per job
SWAPS_LISTED = 32  # per job; of a launcher healthd reports at most half as many
NOWHERE = ("", -1)
_ABOUT_GPUS = frozenset({ComponentKind.GPU, ComponentKind.NVLINK})


def parse_gpu_key(text: str) -> tuple[str, int]:
    """Parse ``NODE/INDEX`` as a position in the list; a node alone is the position before its first GPU.

    Raises:
        ValueError: the index is no number.
    """
    node, slash, index = text.rpartition("/")
    return (node, int(index)) if slash else (text, -1)


def list_gpu_views(
    snapshot: StateSnapshot,
    registry: ReportRegistry,
    now: float,
    pattern: str = "*",
    after: tuple[str, int] = NOWHERE,
    limit: int = 1,
) -> tuple[GpuView, ...]:
    """Return up to so many GPUs after that one, by node and index, of nodes that match a shell pattern."""
    found: list[GpuView] = []
    known = _findings_by_gpu(snapshot.findings.values())
    names = [name for name in snapshot.nodes if name >= after[0] and (pattern == "*" or fnmatchcase(name, pattern))]
    for name in sorted(names):
        entry = registry.get(name)
        if entry is not None:
            found += [view for view in _node_gpu_views(entry, known, now) if (name, view.index) > after]
        if len(found) >= limit:
            break
    return tuple(found[:limit])


def _findings_by_gpu(findings: Iterable[Finding]) -> dict[tuple[str, str], list[Finding]]:
    """Return active findings by node and by each name of their GPU."""
    found: dict[tuple[str, str], list[Finding]] = {}
    for finding in findings:
        about = finding.component
        if finding.active and about.kind in _ABOUT_GPUS:
            for name in {about.name, about.pci} - {""}:
                found.setdefault((finding.node, name), []).append(finding)
    return found


def _node_gpu_views(
    entry: ReportEntry, known: Mapping[tuple[str, str], list[Finding]], now: float
) -> Iterator[GpuView]:
    ranks = {rank.gpu: rank for rank in entry.reported_ranks if rank.gpu and rank.alive}
    heard = now - entry.seen_at <= entry.ttl_s
    for gpu in sorted(entry.gpus, key=lambda each: each.index):
        found = {
            f.id: f for key in (gpu.uuid, gpu.pci) for f in known.get((entry.node, key), ()) if key
        }  # reported under both names, it is one
        rank = ranks.get(gpu.uuid)
        yield GpuView(
            node=entry.node,
            index=gpu.index,
            uuid=gpu.uuid,
            pci=gpu.pci,
            health=health_of(found.values(), sources_known=heard and entry.health is not Health.UNKNOWN).value,
            name=gpu.name,
            serial=gpu.serial,
            findings=tuple(f"{f.kind}: {f.summary}" for f in found.values()),
            job=rank.job if rank is not None else "",
            rank=rank.rank if rank is not None else None,
        )


class _JobAttempt(NamedTuple):
    """One attempt of a job: its nodes, and the last report of each that has reported."""

    nodes: list[str]
    shares: list[JobShare]


def list_job_views(snapshot: StateSnapshot, registry: ReportRegistry) -> tuple[JobView, ...]:
    """Return every job with ranks, its newest attempt, by name; without its ranks."""
    entries = [registry.get(name) for name in snapshot.nodes]
    gathered, swaps = _gather_job_attempts(entries), _gather_swaps(entries)
    for record, entry in zip(snapshot.nodes.values(), entries, strict=True):
        if entry is None:  # it has not reported to this leader yet
            for ref in record.jobs:
                gathered.setdefault(ref, _JobAttempt([], [])).nodes.append(record.node)
    newest: dict[str, JobRef] = {}
    for ref in gathered:
        if ref.job not in newest or ref.attempt > newest[ref.job].attempt:
            newest[ref.job] = ref
    on_node, of_job = _active_findings(snapshot.findings.values())
    return tuple(
        replace(
            _build_job_view(newest[job], gathered[newest[job]], on_node, of_job.get(job, ())), swaps=swaps.get(job, ())
        )
        for job in sorted(newest)
    )


def find_job_view(snapshot: StateSnapshot, registry: ReportRegistry, name: str) -> JobView | None:
    """Return one job with its ranks, by rank; None if no node reports it."""
    told = [
        entry for each in snapshot.nodes if (entry := registry.get(each)) is not None and _entry_has_job(entry, name)
    ]
    waiting = [
        r for r in snapshot.nodes.values() if registry.get(r.node) is None and any(j.job == name for j in r.jobs)
    ]
    known = [*(entry.jobs for entry in told), *(record.jobs for record in waiting)]
    attempts = [ref.attempt for refs in known for ref in refs if ref.job == name]
    if not attempts:
        return None
    ref = JobRef(name, max(attempts))
    ranks = [JobRank(entry.node, rank) for entry in told for rank in entry.ranks_of(ref)]
    gathered = _gather_job_attempts(told).get(ref, _JobAttempt([], []))
    gathered.nodes.extend([record.node for record in waiting if ref in record.jobs])
    on_node, of_job = _active_findings(snapshot.findings.values())
    view = _build_job_view(ref, gathered, on_node, of_job.get(name, ()))
    swaps = _gather_swaps(registry.get(each) for each in snapshot.nodes).get(name, ())
    return replace(view, ranks=tuple(sorted(ranks, key=lambda each: (each.status.rank, each.node))), swaps=swaps)


def _gather_swaps(entries: Iterable[ReportEntry | None]) -> dict[str, tuple[ReportedSwap, ...]]:
    """Return the newest swaps of each job, newest first; one that two nodes report, once: a requeued launcher moves."""
    found: dict[str, dict[tuple[int, float], ReportedSwap]] = {}
    for entry in filter(None, entries):
        for swap in entry.swaps:
            found.setdefault(swap.job, {})[swap.attempt, swap.at] = ReportedSwap(entry.node, swap)
    newest = {job: sorted(swaps.values(), key=lambda each: -each.swap.at) for job, swaps in found.items()}
    return {job: tuple(swaps[:SWAPS_LISTED]) for job, swaps in newest.items()}


def _entry_has_job(entry: ReportEntry, job: str) -> bool:
    return any(ref.job == job for ref in entry.jobs)


def _gather_job_attempts(entries: Iterable[ReportEntry | None]) -> dict[JobRef, _JobAttempt]:
    found: dict[JobRef, _JobAttempt] = {}
    for entry in entries:
        if entry is None:
            continue
        for share in entry.shares:
            job = found.get(share.ref)
            if job is None:
                job = found[share.ref] = _JobAttempt([], [])
            job.nodes.append(entry.node)
            job.shares.append(share)
    return found


def _active_findings(findings: Iterable[Finding]) -> tuple[dict[str, list[Finding]], dict[str, list[Finding]]]:
    """Return active findings: nodes' own by node, the detectors' by job name."""
    on_node: dict[str, list[Finding]] = {}
    of_job: dict[str, list[Finding]] = {}
    for finding in findings:
        if not finding.active:
            continue
        job = finding.evidence.get("job")
        if is_concluded(finding) and isinstance(job, str):
            of_job.setdefault(job, []).append(finding)
        else:
            on_node.setdefault(finding.node, []).append(finding)
    return on_node, of_job


def _build_job_view(
    ref: JobRef, job: _JobAttempt, on_node: Mapping[str, Collection[Finding]], concluded: Collection[Finding]
) -> JobView:
    """Build one job's view with the findings about its own ranks only: a node may run several jobs."""
    own = f"{ref.job}.{ref.attempt}"
    said = [
        finding
        for name in job.nodes
        for finding in on_node.get(name, ())
        if finding.component.kind is not ComponentKind.RANK or finding.component.name.startswith(own)
    ]
    newest = sorted(concluded, key=lambda f: (-f.last_seen, f.id))
    most_severe = sorted([*newest, *said], key=lambda f: (-f.severity.rank, f.first_seen, f.id))
    shares, phases = job.shares, Counter[str]()
    for share in shares:
        for phase, count in share.phases.items():
            phases[phase] += count
    steps = list(chain.from_iterable([share.steps_s for share in shares]))
    return JobView(
        job=ref.job,
        attempt=ref.attempt,
        world=max([share.world for share in shares], default=0),
        ranks_told=sum([share.living for share in shares]),
        nodes=tuple(sorted(job.nodes)),
        step=max([share.step for share in shares], default=-1),
        step_s=median_low(steps) if steps else 0.0,
        phase=min(phases, key=lambda phase: (-phases[phase], phase), default=""),
        at=max([share.at for share in shares], default=0.0),
        verdicts=tuple(finding.summary for finding in newest),
        findings=tuple(most_severe[:FINDINGS_LISTED]),
    )
