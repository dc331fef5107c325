"""Assembles an evidence bundle from samples in memory, and from the trainers' beacon pages and stacks."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from healthd.collectors.infiniband import InfinibandSample
from healthd.collectors.pcie import PcieSample
from healthd.collectors.rank_stacks import LocalRank, read_rank_stacks
from healthd.collectors.stack_sockets import RankProcess
from healthd.collectors.versions import VersionsSample
from healthd.daemon_status import Status
from healthd.findings.gpu_state import GpuState
from healthd.samples.source import SourceReading, SourceState
from healthd.telemetry.step_summaries import convert_step
from healthd.telemetry.telemetry_history import Telemetry
from healthd.trainer.beacons.beacon_directory import PageFile, iterate_page_files
from healthd.trainer.beacons.beacon_page import BeaconError
from healthd.trainer.beacons.page_reader import BeaconView, RetryBudget
from vocabulary import VERSION
from vocabulary.messages.evidence_bundle import (
    EVIDENCE_VERSION,
    WHY_CHARS_MAX,
    EvidenceBundle,
    Missing,
    RankEvidence,
    RankStack,
    TopologyFact,
    fit_bundle,
)
from vocabulary.order import Order

PAGES_MAX = 1024  # of all users in turn
RANKS_MAX = 64
BROKEN_MAX = 20
STEPS_MIN = 64  # also of a rank that died before the requested span
_WANTED = ("nvml", "kernel_log", "infiniband", "ethernet", "pcie", "versions")


def collect_evidence(
    status: Status,
    telemetry: Telemetry,
    beacon_dir: Path,
    order: Order | None = None,
    stacks: Iterable[RankStack] = (),
) -> EvidenceBundle:
    """Return the bundle for `order`, or for a person on this node; never larger than its bound.

    Unreadable pages and silent sources are named in `missing`. `stacks` are those of ranks that stood still; the stacks
    of other living ranks are read now, within some seconds.
    """
    ranks, living, broken = _collect_ranks(beacon_dir, telemetry.from_at)
    missing = [*_list_unrecorded_time(telemetry), *_list_silent_sources(status), *broken]
    if not ranks:
        missing.append(Missing("training steps", "no beacon page on this node"))
    return fit_bundle(
        EvidenceBundle(
            version=EVIDENCE_VERSION,
            node=status.node,
            boot_id=status.boot_id,
            taken_at=telemetry.at,
            from_at=telemetry.from_at,
            order=order.id if order else "",
            incident=order.incident if order else "",
            injected=bool(order and order.injected),
            series=telemetry.series,
            kernel_lines=telemetry.kernel_lines,
            ranks=ranks,
            stacks=tuple(_collect_stacks(beacon_dir, living, list(stacks), telemetry.at)),
            gpus=status.gpus,
            versions=_collect_versions(status),
            topology=tuple(_collect_topology(status)),
            missing=tuple(missing),
        )
    )


def _list_unrecorded_time(telemetry: Telemetry) -> list[Missing]:
    if telemetry.began_at is None:
        return []
    since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(telemetry.began_at))
    return [Missing(f"telemetry and kernel lines before {since}", "healthd started then")]


def _list_silent_sources(status: Status) -> list[Missing]:
    readings = [
        status.sources.get(name) or SourceReading(source=name, state=SourceState.WAITING, at=0.0) for name in _WANTED
    ]
    return [
        Missing(reading.source, f"{reading.state.value}: {reading.reason}".rstrip(": ")[:WHY_CHARS_MAX])
        for reading in readings
        if reading.state is not SourceState.PRESENT
    ]


def _collect_stacks(
    directory: Path, living: Sequence[LocalRank], known: Sequence[RankStack], at: float
) -> Iterator[RankStack]:
    """Return one stack per rank: where it stood still, or else where it is now."""
    names = {(stack.job, stack.attempt, stack.rank) for stack in known}
    others = [rank for rank in living if rank[:3] not in names]
    fresh = read_rank_stacks(str(directory), others, at, [rank.process for rank in others])
    yield from sorted([*known, *fresh], key=lambda stack: (stack.job, stack.attempt, stack.rank))[:RANKS_MAX]


def _collect_ranks(directory: Path, from_at: float) -> tuple[tuple[RankEvidence, ...], list[LocalRank], list[Missing]]:
    """Return the most recently updated ranks, alternating between users, sorted by job, attempt and rank; who lives.

    Each page is read once to choose and once more to keep, one at a time: a page has 128 KiB, and its steps are as
    large.
    """
    broken: list[Missing] = []
    found: dict[int, list[tuple[bool, float, PageFile]]] = {}
    for file, view in _read_page_views(_list_page_files(directory, broken), broken):
        found.setdefault(view.uid, []).append((view.alive, view.state.at, file))
    in_turn = itertools.zip_longest(*(sorted(each, reverse=True) for each in found.values()))
    chosen = [each[2] for turn in in_turn for each in turn if each is not None][:RANKS_MAX]
    ranks: list[RankEvidence] = []
    living: list[LocalRank] = []
    for _, view in _read_page_views(chosen, []):
        ranks.append(_make_rank_evidence(view, from_at))
        if view.alive:
            identity, process = view.identity, RankProcess(view.identity.pid, view.uid)
            living.append(LocalRank(identity.job, identity.attempt, identity.rank, process))
    return tuple(sorted(ranks, key=lambda rank: (rank.job, rank.attempt, rank.rank))), living, broken[:BROKEN_MAX]


def _list_page_files(directory: Path, broken: list[Missing]) -> Iterator[PageFile]:
    try:
        yield from itertools.islice(iterate_page_files(str(directory)), PAGES_MAX)
    except OSError as error:
        broken.append(Missing("trainer pages", _escape_text(str(error))))


def _read_page_views(files: Iterable[PageFile], broken: list[Missing]) -> Iterator[tuple[PageFile, BeaconView]]:
    patience = RetryBudget()
    for file in files:
        name = _escape_text(f"page {Path(file.path).name}")
        try:
            view = patience.read(file)
        except FileNotFoundError:
            continue
        except (BeaconError, OSError) as error:
            broken.append(Missing(name, _escape_text(str(error))))
            continue
        if view.problem:
            broken.append(Missing(name, _escape_text(view.problem)))
        if "state" not in view.damaged:
            yield file, view


def _make_rank_evidence(view: BeaconView, from_at: float) -> RankEvidence:
    steps = view.steps()
    kept = max(STEPS_MIN, sum(step.started_at >= from_at for step in steps))
    return RankEvidence(
        job=view.identity.job,
        attempt=view.identity.attempt,
        rank=view.identity.rank,
        world=view.identity.world,
        phase=view.state.phase.name.lower(),
        step=view.state.step,
        since=view.state.since,
        at=view.state.at,
        alive=view.alive,
        steps=tuple(convert_step(step) for step in steps[-kept:]),
        section=view.section_name,
        gpu=view.identity.gpu_uuid,
    )


def _collect_versions(status: Status) -> dict[str, str]:
    known = {"gpu-healthd": VERSION}
    if status.inventory is not None:
        known |= {"driver": status.inventory.driver, "nvml": status.inventory.nvml, "cuda": status.inventory.cuda}
    sample = _find_sample(status, "versions")
    if isinstance(sample, VersionsSample):
        known |= sample._asdict()
    for state in status.states:
        known[f"vbios of GPU {state.gpu.index}"] = state.constants.vbios
    return {name: text for name, text in known.items() if text}


def _collect_topology(status: Status) -> Iterator[TopologyFact]:
    """Return where each GPU and port sits, and where its links lead."""
    pcie, fabric = _find_sample(status, "pcie"), _find_sample(status, "infiniband")
    if isinstance(pcie, PcieSample):
        yield from (TopologyFact(f"pcie:{path[-1]}", "PCIe path", " > ".join(path)) for path in pcie.paths if path)
    if isinstance(fabric, InfinibandSample):
        for port in fabric.ports:
            words = f"{port.pci} {port.link_layer} {port.state} {port.board} firmware {port.firmware}"
            yield TopologyFact(f"nic_port:{port.device}/{port.port}", "fabric port", words)
    for state in status.states:
        yield from _describe_links(state)


def _describe_links(state: GpuState) -> Iterator[TopologyFact]:
    for link in state.latest.links or ():
        counts = {"CRC errors": link.crc_errors, "replays": link.replay_errors, "recoveries": link.recovery_errors}
        words = [{True: "active", False: "inactive", None: "state unknown"}[link.active]]
        words += [f"to {link.remote}"] if link.remote else []
        words += [f"{count} {name}" for name, count in counts.items() if count]
        yield TopologyFact(f"gpu:{state.gpu.uuid or state.gpu.pci}", f"NVLink {link.link}", ", ".join(words))


def _find_sample(status: Status, source: str) -> object:
    reading = status.sources.get(source)
    return reading.sample if reading else None


def _escape_text(text: str) -> str:
    """Replace what cannot be encoded: file names may hold any bytes."""
    return text.encode(errors="replace").decode()[:WHY_CHARS_MAX]
