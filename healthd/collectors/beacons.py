"""Reads the pages of the trainer ranks on this node, once a second."""

from __future__ import annotations

from pathlib import Path

from healthd.samples.beacons import Beacons
from healthd.samples.rank_steps import RankSteps
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


class BeaconCollector:
    """Remembers dead pages, which cannot change any more, so that old jobs cost nothing."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._dead: dict[_File, tuple[RankStatus, RankSteps]] = {}
        self._reader = StepReader()
        self._took: dict[_Page, tuple[float, Durations]] = {}

    def read(self, now: float) -> Beacons:
        """All ranks as they stand; never raises for what is wrong with a page."""
        ranks: list[tuple[RankStatus, RankSteps]] = []
        broken: dict[str, str] = {}
        dead: dict[_File, tuple[RankStatus, RankSteps]] = {}
        took: dict[_Page, tuple[float, Durations]] = {}
        for path in self._paths():
            try:
                status = path.stat()
                file = (path.name, status.st_ino, status.st_mtime_ns)
                both = self._dead.get(file)
                if both is None:
                    view = read(str(path))
                    took[file[:2]] = summary = self._summary(file[:2], view, now)
                    steps = self._reader.take(view.identity, view.state, view.ring, alive=view.alive)
                    both = _rank(view, summary[1]), steps
            except FileNotFoundError:
                continue
            except (BeaconError, OSError) as error:
                broken[path.name] = str(error)
                continue
            rank, steps = both
            if not rank.alive:
                dead[file] = rank, steps._replace(new=())
            if rank.alive or now - rank.at < DEAD_SHOWN_S:
                ranks.append(both)
        self._dead, self._took = dead, took
        self._reader.end_look()
        return Beacons(now, tuple(rank for rank, _ in ranks), broken, tuple(steps for _, steps in ranks))

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
