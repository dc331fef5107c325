"""Derives the verdict from all results of a group. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from preflight.device_comparison.version_differences import FactDifference, find_fact_differences
from preflight.fault_localisation.confirmation_rounds import plan_confirmation_round
from preflight.fault_localisation.localisation_records import (
    Accused,
    Conclusion,
    Kind,
    PairExpectations,
    Round,
    Topology,
    Why,
)
from preflight.fault_localisation.localisation_records import LocalisationVerdict as Located
from preflight.fault_localisation.localisation_verdict import localise_faults as locate
from preflight.group.culprit_messages import describe_culprit
from preflight.group.gpu_direct import (
    GpuDirectUse,
    describe_node_without,
    describe_rare_use,
    find_nodes_without,
)
from preflight.group.group_records import Named, NodeReport, PairRecord, Standing
from preflight.group.pair_records import build_pair_results
from preflight.results import Verdict
from vocabulary.text.plurals import format_count

LEAVES_NODES_MIN = 6  # in smaller groups the classes of pairs are too small for a baseline
SILENT_SHARE_MAX = 0.5  # above it, the coordinator's own network is the likelier cause


@dataclass(frozen=True)
class GroupEvidence:
    """All data of a group. `standing` names every node; `words` those that arrived; `records` are all pairs so far.

    `expected` is a healthy rate in GB/s, None if unknown. `silent_since` explains missing nodes, `odd` what an operator must fix
    on a node; `doubles` are ranks with a duplicate name, listed as NAME#RANK;
    `gpu_direct` is each node's use of GPUDirect RDMA.
    """

    standing: Mapping[str, Standing]
    words: Mapping[str, NodeReport]
    records: Sequence[PairRecord]
    compared: bool
    expected: float | None = None
    silent_since: Mapping[str, str] = field(default_factory=dict)
    strangers: Sequence[str] = ()
    odd: Mapping[str, str] = field(default_factory=dict)
    doubles: Mapping[str, Sequence[int]] = field(default_factory=dict)
    gpu_direct: Mapping[str, GpuDirectUse] = field(default_factory=dict)


class GroupJudgement(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict of a group, with its reasons and the role of each node."""

    verdict: Verdict
    reasons: tuple[str, ...]
    remarks: tuple[str, ...]
    culprits: tuple[Named, ...]
    suspects: tuple[Named, ...]
    cleared: tuple[str, ...]
    unknown: tuple[str, ...]
    exclude: tuple[str, ...]


def judge_group(scene: GroupEvidence) -> GroupJudgement:
    """Find the culprits, and decide whether the group may work.

    In order of weight, as for one node: culprits, then what an operator must fix, then unknowns. All reasons are listed.
    """
    located = _localise_culprits(scene)
    blamed = tuple(_build_named(scene, each) for each in located.culprits if not _lacks_gpu_direct(scene, each))
    culprits = (*_name_unfit_nodes(scene), *blamed)
    suspects = tuple(_build_named(scene, each) for each in located.suspects if not _lacks_gpu_direct(scene, each))
    unsure = [*_describe_unknowns(scene, culprits), *(describe_culprit(one) for one in suspects)]
    if located.conclusion is Conclusion.INCONCLUSIVE and len(_list_tested_nodes(scene)) > 1 and not scene.strangers:
        unsure += located.reasons
    wrong = list(_describe_misconfigurations(scene))
    wrong += [
        f"{describe_culprit(_build_named(scene, each))}, without GPUDirect RDMA"
        for each in located.culprits
        if _lacks_gpu_direct(scene, each)
    ]
    classes = (
        (Verdict.FAIL, [describe_culprit(culprit) for culprit in culprits]),
        (Verdict.MISCONFIGURED, wrong),
        (Verdict.INCONCLUSIVE, unsure),
    )
    return GroupJudgement(
        verdict=next((verdict for verdict, reasons in classes if reasons), Verdict.PASS),
        reasons=tuple(dict.fromkeys(reason for _, reasons in classes for reason in reasons)),
        remarks=tuple(_build_remarks(scene, located)),
        culprits=culprits,
        suspects=suspects,
        cleared=located.cleared,
        unknown=tuple(dict.fromkeys((*located.unknown, *_list_nodes_with(scene, Standing.ABSENT, Standing.WAITS)))),
        exclude=tuple(name for name in select_excluded_nodes(culprits) if name not in _list_generated_names(scene)),
    )


def plan_next_round(scene: GroupEvidence) -> Round:
    """The pairs that would settle open questions; empty if there are none, or no node can help."""
    located = _localise_culprits(scene)
    if located.conclusion is Conclusion.NOBODY:
        return ()
    return plan_confirmation_round(
        located, _build_topology(scene), build_pair_results(_select_tested_records(scene), compared=scene.compared)
    )


def select_excluded_nodes(culprits: Sequence[Named]) -> tuple[str, ...]:
    """The nodes to leave out so that the rest can work: each culprit, and of links the ends that cover most links."""
    out = {name for one in culprits if one.kind in (Kind.NODE, Kind.NIC) for name in one.where[:1]}
    links = [one.where for one in culprits if one.kind is Kind.LINK]
    while open_links := [where for where in links if out.isdisjoint(where)]:
        ends = [name for where in open_links for name in where]
        out.add(max(sorted(set(ends)), key=ends.count))
    return tuple(sorted(out))


def _list_generated_names(scene: GroupEvidence) -> set[str]:
    return {f"{name}#{rank}" for name, ranks in scene.doubles.items() for rank in ranks}


def _list_tested_nodes(scene: GroupEvidence) -> list[str]:
    return [node for node, standing in scene.standing.items() if standing is Standing.TESTED]


def _list_nodes_with(scene: GroupEvidence, *standings: Standing) -> list[str]:
    return [node for node, standing in scene.standing.items() if standing in standings]


def _build_topology(scene: GroupEvidence) -> Topology:
    nodes = tuple(_list_tested_nodes(scene))
    if len(nodes) < LEAVES_NODES_MIN:
        return Topology(nodes)
    return Topology(nodes, {node: scene.words[node].leaf for node in nodes if scene.words[node].leaf})


def _select_tested_records(scene: GroupEvidence) -> list[PairRecord]:
    tested = set(_list_tested_nodes(scene))
    return [record for record in scene.records if record.a in tested and record.b in tested]


def _localise_culprits(scene: GroupEvidence) -> Located:
    topology = _build_topology(scene)
    healthy = scene.expected if scene.compared else 1.0
    known = PairExpectations(of_node=dict.fromkeys(topology.nodes, healthy)) if healthy else PairExpectations()
    return locate(build_pair_results(_select_tested_records(scene), compared=scene.compared), topology, known)


def _lacks_gpu_direct(scene: GroupEvidence, accused: Accused) -> bool:
    """Whether all its pairs gave right data, and each of its pairs has an end without GPUDirect RDMA: a setting, not broken hardware."""
    without, ends = set(find_nodes_without(scene.gpu_direct)), set(accused.where)
    if accused.kind is Kind.SWITCH:
        return False
    mine = [r for r in _select_tested_records(scene) if ends <= {r.a, r.b} and accused.rail in (None, r.rail)]
    return all(r.why is Why.MEASURED and {r.a, r.b} & without for r in mine)


def _name_unfit_nodes(scene: GroupEvidence) -> Iterator[Named]:
    for node in _list_nodes_with(scene, Standing.UNFIT):
        own = scene.words[node].own
        yield Named(kind=Kind.NODE, where=(node,), evidence=(f"failed its own test: {own.reason if own else ''}",))
    if not _is_mostly_silent(scene):
        for node in _list_nodes_with(scene, Standing.SILENT):
            yield Named(kind=Kind.NODE, where=(node,), evidence=(scene.silent_since.get(node, "stopped answering"),))


def _is_mostly_silent(scene: GroupEvidence) -> bool:
    silent = len(_list_nodes_with(scene, Standing.SILENT))
    return silent > SILENT_SHARE_MAX * (silent + len(_list_tested_nodes(scene)))


def _describe_misconfigurations(scene: GroupEvidence) -> Iterator[str]:
    for name, ranks in scene.doubles.items():
        yield f"two processes have the name {name} (ranks {', '.join(map(str, ranks))}); start one process per node, each with its own name"
    yield from (f"node {node} {text}" for node, text in scene.odd.items())
    for node in scene.strangers:
        yield f"--inject names {node}, which is not in this group; nodes: {', '.join(sorted(scene.standing)[:20])}"
    for node, word in scene.words.items():
        if word.own is not None and word.own.verdict is Verdict.MISCONFIGURED:
            yield f"node {node}: {word.own.reason}"
    yield from (describe_node_without(node, scene.gpu_direct) for node in find_nodes_without(scene.gpu_direct))
    yield from (str(found) for found in _compare_software_facts(scene) if found.matters)


def _compare_software_facts(scene: GroupEvidence) -> tuple[FactDifference, ...]:
    return find_fact_differences({node: word.facts for node, word in scene.words.items() if word.facts})


def _describe_unknowns(scene: GroupEvidence, culprits: Sequence[Named]) -> Iterator[str]:
    for node in _list_nodes_with(scene, Standing.ABSENT):
        yield f"node {node} {scene.silent_since.get(node, 'never joined')}"
    yield from (
        f"the software versions of {node} could not be read; run there: python -m preflight.group.node_self_test"
        for node, word in scene.words.items()
        if word.facts is None
    )
    if _is_mostly_silent(scene):
        silent = _list_nodes_with(scene, Standing.SILENT)
        yield f"{format_count(len(silent), 'node')} stopped answering, most of the group: {', '.join(silent)}; check the network of rank 0"
    for node, word in scene.words.items():
        if word.own is not None and word.own.verdict is Verdict.INCONCLUSIVE:
            yield f"node {node}: {word.own.reason}"
    blamed = {name for one in culprits for name in one.where}
    for record in _select_tested_records(scene):
        if record.wrong_words and blamed.isdisjoint((record.a, record.b)):
            yield f"wrong data between {record.a} and {record.b} in round {record.round}: {record.words}"
    if len(_list_tested_nodes(scene)) < 2 and len(scene.standing) > 1:
        yield "fewer than two nodes could be paired"
    elif len(scene.standing) == 1 and all(word.own is None for word in scene.words.values()):
        yield "a group of one node without its own test: nothing was tested"


def _build_remarks(scene: GroupEvidence, located: Located) -> Iterator[str]:
    if not scene.compared and len(_list_tested_nodes(scene)) > 1:
        yield (
            "rates are not compared, because nodes share a machine, or there are only two and no expected rate; "
            "checked were only answers and data"
        )
    yield from filter(None, [describe_rare_use(scene.gpu_direct)])
    yield from (str(found) for found in _compare_software_facts(scene) if not found.matters)
    if located.conclusion is not Conclusion.INCONCLUSIVE:
        yield from located.reasons


def _build_named(scene: GroupEvidence, accused: Accused) -> Named:
    nic = ""
    if accused.kind is Kind.NIC and accused.rail is not None:
        rails = scene.words[accused.where[0]].rails
        nic = rails[accused.rail] if accused.rail < len(rails) else ""
    return Named(
        kind=accused.kind,
        where=accused.where,
        rail=accused.rail,
        nic=nic,
        score=round(accused.score, 4),
        margin=round(accused.margin, 4),
        evidence=tuple(_describe_wrong_data(scene, accused)) or accused.evidence,
    )


def _describe_wrong_data(scene: GroupEvidence, accused: Accused) -> Iterator[str]:
    """Report wrong data; a low rate beside it does not matter, and a test with wrong data has none."""
    ends = set(accused.where)
    mine = [r for r in _select_tested_records(scene) if (ends <= {r.a, r.b}) and accused.rail in (None, r.rail)]
    if accused.kind is not Kind.SWITCH and (wrong := [r for r in mine if r.wrong_words]):
        yield f"wrong data in {len(wrong)} of its {format_count(len(mine), 'test')}: {wrong[0].words}"
