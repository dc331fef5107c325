"""Reads the pages of the trainer ranks on this node, once a second."""

from __future__ import annotations

from pathlib import Path

from healthd.samples.beacons import Beacons
from healthd.trainer.page import BeaconError
from healthd.trainer.pages import SUFFIX, BeaconView, read
from healthd.trainer.ring import durations
from vocabulary.wire import RankStatus

DEAD_SHOWN_S = 600.0  # how long a dead rank is still reported
PAGES_MAX = 1024
STEPS_SUMMARISED = 64

_File = tuple[str, int, int]  # name, inode, time of change in ns


class BeaconCollector:
    """Remembers dead pages, which cannot change any more, so that old jobs cost nothing."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._dead: dict[_File, RankStatus] = {}

    def read(self, now: float) -> Beacons:
        """All ranks as they stand; never raises for what is wrong with a page."""
        ranks: list[RankStatus] = []
        broken: dict[str, str] = {}
        dead: dict[_File, RankStatus] = {}
        for path in self._paths():
            try:
                status = path.stat()
                file = (path.name, status.st_ino, status.st_mtime_ns)
                rank = self._dead.get(file) or _rank(read(str(path)))
            except FileNotFoundError:
                continue
            except (BeaconError, OSError) as error:
                broken[path.name] = str(error)
                continue
            if not rank.alive:
                dead[file] = rank
            if rank.alive or now - rank.at < DEAD_SHOWN_S:
                ranks.append(rank)
        self._dead = dead
        return Beacons(now, tuple(ranks), broken)

    def _paths(self) -> list[Path]:
        try:
            return sorted(self._directory.glob(f"*{SUFFIX}"))[:PAGES_MAX]
        except OSError:
            return []


def _rank(view: BeaconView) -> RankStatus:
    identity, took = view.identity, durations(view.steps(STEPS_SUMMARISED))
    return RankStatus(
        job=identity.job,
        attempt=identity.attempt,
        rank=identity.rank,
        world=identity.world,
        pid=identity.pid,
        step=view.state.step,
        phase=view.state.phase.name.lower(),
        at=view.state.at,
        step_seconds=took.last,
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
