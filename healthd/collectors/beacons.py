"""Reads the pages of the trainer ranks on this node, once a second."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from healthd.samples.beacons import Beacons
from healthd.samples.rank_steps import RankSteps
from healthd.trainer.owners import Claim, Owner, claim_of, owners_of
from healthd.trainer.page import BeaconError
from healthd.trainer.pages import SUFFIX, BeaconView, read
from healthd.trainer.ring import Durations, durations
from healthd.training.reading import StepReader
from vocabulary.wire import RankStatus

DEAD_SHOWN_S = 600.0  # how long a dead rank is still reported
PAGES_MAX = 1024
STEPS_SUMMARISED = 64
SUMMARY_S = 5.0  # how old a summary of a rank's steps may be: parsing 64 of them costs more than reading the page

_File = tuple[str, int, int]  # name, inode, time of change in ns
_Page = tuple[str, int]  # name, inode


class _Read(NamedTuple):
    rank: RankStatus
    steps: RankSteps
    claim: Claim


class BeaconCollector:
    """Remembers dead pages, which cannot change any more, so that old jobs cost nothing."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._dead: dict[_File, _Read] = {}
        self._reader = StepReader()
        self._took: dict[_Page, tuple[float, Durations]] = {}

    def read(self, now: float) -> Beacons:
        """All ranks as they stand; never raises for what is wrong with a page."""
        found: list[_Read] = []
        broken: dict[str, str] = {}
        dead: dict[_File, _Read] = {}
        took: dict[_Page, tuple[float, Durations]] = {}
        for path in self._paths():
            try:
                status = path.stat()
                file = (path.name, status.st_ino, status.st_mtime_ns)
                each = self._dead.get(file)
                if each is None:
                    view = read(str(path))
                    took[file[:2]] = summary = self._summary(file[:2], view, now)
                    steps = self._reader.take(view.identity, view.state, view.ring, alive=view.alive)
                    each = _Read(_rank(view, summary[1]), steps, claim_of(view))
            except FileNotFoundError:
                continue
            except (BeaconError, OSError) as error:
                broken[path.name] = str(error)
                continue
            found.append(each)
            if not each.rank.alive:
                dead[file] = each._replace(steps=each.steps._replace(new=()))
        self._dead, self._took = dead, took
        self._reader.end_look()
        owners = owners_of(each.claim for each in found)
        shown = [each for each in found if _counts(each, owners, now)]
        return Beacons(
            now,
            tuple(each.rank for each in shown),
            broken,
            tuple(each.steps for each in shown),
            {job: claimed.told for job, claimed in owners.items() if claimed.others},
        )

    def _summary(self, page: _Page, view: BeaconView, now: float) -> tuple[float, Durations]:
        known = self._took.get(page)
        if known is not None and view.alive and 0 <= now - known[0] < SUMMARY_S:
            return known
        return now, durations(view.steps(STEPS_SUMMARISED))

    def _paths(self) -> list[Path]:
        try:
            return sorted(self._directory.glob(f"*{SUFFIX}"))[:PAGES_MAX]
        except OSError:
            return []


def _counts(read: _Read, owners: Mapping[str, Owner], now: float) -> bool:
    """Whether a page is its job's owner's, and no old one: what another user claims must neither stop nor hide the job."""
    owner = owners.get(read.claim.job)
    return (owner is None or read.claim.uid == owner.uid) and (read.rank.alive or now - read.rank.at < DEAD_SHOWN_S)


def _rank(view: BeaconView, took: Durations) -> RankStatus:
    identity, last = view.identity, view.steps(1)
    return RankStatus(
        job=identity.job,
        attempt=identity.attempt,
        rank=identity.rank,
        world=identity.world,
        pid=identity.pid,
        step=view.state.step,
        phase=view.state.phase.name.lower(),
        at=view.state.at,
        step_seconds=last[-1].seconds if last else 0.0,
        alive=view.alive,
        section=view.section_name,
        step_median=took.median,
        sections=took.sections,
        sections_median=took.sections_median,
        role=identity.role,
        pipeline_stage=identity.pipeline_stage,
        tensor_group=identity.tensor_group,
        data_group=identity.data_group,
        expert_group=identity.expert_group,
        gpu=identity.gpu_uuid,
    )
