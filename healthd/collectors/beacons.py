"""Reads the pages of the trainer ranks on this node, once a second."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from healthd.collectors.process_cpu_time import read_tree_cpu_seconds
from healthd.collectors.rank_stacks import LocalRank
from healthd.collectors.stack_sockets import RankProcess
from healthd.collectors.stack_watcher import STILL_S, StackWatcher, StillRank
from healthd.samples.rank_steps import Beacons, RankSteps
from healthd.trainer.beacons.beacon_directory import BeaconDirectory, DirectorySweep, PageFile, remove_page_file
from healthd.trainer.beacons.beacon_page import BeaconError
from healthd.trainer.beacons.job_owners import JobClaim, JobClaimants, find_job_claimants, read_job_claim
from healthd.trainer.beacons.page_reader import SHORTAGES, BeaconView, RetryBudget, process_alive
from healthd.trainer.beacons.stack_socket import parse_socket_name
from healthd.trainer.beacons.step_ring import StepDurations, summarize_durations
from healthd.training.step_reader import StepReader
from healthd.training.step_windows import StepWindows
from vocabulary.messages.evidence_bundle import RankStack
from vocabulary.messages.wire import ProductDigests, RankStatus, StepWindow
from vocabulary.text.surrogate_escapes import escape_surrogates

DEAD_SHOWN_S = 600.0  # how long a dead rank is still reported
KEPT_S = 24 * 3600.0  # how long a dead page is kept
NEVER, AT_ONCE = float("inf"), 0.0
BROKEN_AGAIN_S = 60.0  # when an unreadable page is retried, though its file looks unchanged
SHOWN_PER_USER, BROKEN_PER_USER = 256, 16
LATE_LOOKS = 60  # passes within which dead pages of a busy day are read; what is late then stays late
STEPS_SUMMARISED = 64
WINDOW_S = 4.0  # as `report_window_s` of the thresholds
CPU_STILL_S, CPU_EVERY_S, CPU_READ_MAX = 5.0, 5.0, 8  # seconds without progress, between readings; ranks per pass
SUMMARY_S = 5.0  # maximum age of a rank's step summary: parsing 64 steps costs more than reading the page


class _PageRead(NamedTuple):
    rank: RankStatus
    steps: RankSteps
    claim: JobClaim


class _CachedPage(NamedTuple):
    """The result of the last read of a file: a rank, a problem, or both. `again_at`: when to read it again."""

    file: PageFile
    read: _PageRead | None
    problem: str = ""
    again_at: float = AT_ONCE
    took: tuple[float, StepDurations] = (0.0, StepDurations())


class _CachedPages:
    """The files that need no reading in this pass."""

    def __init__(self, known: Mapping[str, _CachedPage], now: float) -> None:
        self._known = known
        self._now = now

    def __contains__(self, file: object) -> bool:
        known = self._known.get(file.path) if isinstance(file, PageFile) else None
        if known is None or known.file != file:
            return False
        return known.again_at == NEVER or 0 <= known.again_at - self._now <= BROKEN_AGAIN_S  # the clock may be set back


class BeaconCollector:
    """Remembers pages that can no longer change, so that old jobs and invalid files cost next to nothing."""

    def __init__(self, directory: Path, window_s: float = WINDOW_S) -> None:
        """Args: `directory`: of the pages; `window_s`: minimum seconds of a reported window of steps."""
        self._directory = BeaconDirectory(str(directory))
        self._known: dict[str, _CachedPage] = {}
        self._reader = StepReader()
        self._windows = StepWindows(window_s)
        self._late: dict[int, int] = {}  # passes by user
        self._cpu_read_at: dict[int, float] = {}  # by pid
        self._stacks = StackWatcher(str(directory))
        self.claimants: dict[str, JobClaimants] = {}  # of each job, as of the last pass; replaced whole, for any thread

    def read(self, now: float) -> Beacons:
        """Return all ranks as they are; never raises for a faulty page.

        What cannot be read for lack of descriptors or memory stays as last read, and is listed among the broken.
        """
        try:
            look = self._directory.look(_CachedPages(self._known, now))
        except OSError as error:
            if error.errno not in SHORTAGES:
                return Beacons(now, (), {"directory": str(error)})
            self._known = {path: _drop_reported_steps(known) for path, known in self._known.items()}
            return self._sample(now, {"directory": f"cannot be read now: {error.strerror}; ranks are as last read"})
        self._reader.begin_look(len({file.uid for file in look.due}))
        patience = RetryBudget()
        read = {file.path: known for file in look.due if (known := self._look_at(file, patience, now)) is not None}
        stay = {*look.names} - {file.path for file in look.due}
        kept = {path: _drop_reported_steps(known) for path, known in self._known.items() if path in stay}
        self._known = kept | read
        self._reader.end_look()
        self._windows.end_look()
        self._clean(look, now)
        return self._sample(now, self._broken(look))

    def _sample(self, now: float, broken: dict[str, str]) -> Beacons:
        found = [known.read for _, known in sorted(self._known.items()) if known.read is not None]
        self.claimants = claimants = find_job_claimants(each.claim for each in found)
        shown = _limit_pages_by_user([each for each in found if _is_relevant_page(each, claimants, now)])
        shown = self._with_stacks(shown, now)
        return Beacons(
            now,
            tuple(each.rank for each in shown),
            broken,
            self._with_cpu_time(shown, now),
            {job: claimed.told for job, claimed in claimants.items() if claimed.disputed},
        )

    @property
    def stacks(self) -> tuple[RankStack, ...]:
        """The newest stacks of ranks that stood still in the last minutes. Callable from any thread."""
        return self._stacks.stacks

    def _with_stacks(self, shown: list[_PageRead], now: float) -> list[_PageRead]:
        """Add what ranks that make no progress in a step wait for, once their stacks have been read."""
        still = {each.claim.path: _make_still_rank(each) for each in shown if _stands_still(each, now, STILL_S)}
        places = self._stacks.look(list(still.values()), now)
        return [
            each._replace(rank=replace(each.rank, stack=places[rank]))
            if (rank := still.get(each.claim.path)) in places
            else each
            for each in shown
        ]

    def _with_cpu_time(self, shown: list[_PageRead], now: float) -> tuple[RankSteps, ...]:
        """Read, now and then, the CPU time of ranks that make no progress in a step."""
        still = {each.rank.pid for each in shown if _stands_still(each, now, CPU_STILL_S)}
        due = [pid for pid in sorted(still) if not 0 <= now - self._cpu_read_at.get(pid, -CPU_EVERY_S) < CPU_EVERY_S]
        read = {pid: read_tree_cpu_seconds(pid) for pid in due[:CPU_READ_MAX]}
        self._cpu_read_at = {pid: now if pid in read else at for pid, at in self._cpu_read_at.items() if pid in still}
        self._cpu_read_at |= dict.fromkeys(read, now)
        return tuple(each.steps._replace(gpu=each.rank.gpu, cpu_s=read.get(each.rank.pid)) for each in shown)

    def _look_at(self, file: PageFile, patience: RetryBudget, now: float) -> _CachedPage | None:
        before = self._known.get(file.path)
        try:
            view = patience.read(file)
        except FileNotFoundError:
            return None
        except (BeaconError, OSError) as error:
            if before is not None and isinstance(error, OSError) and error.errno in SHORTAGES:
                problem = f"cannot be read now: {error.strerror}; the rank is as last read"
                return _drop_reported_steps(before)._replace(problem=problem, again_at=AT_ONCE)
            return _CachedPage(file, None, str(error), now + BROKEN_AGAIN_S)
        if "state" in view.damaged:
            last = before.read if before is not None else None
            same = last is not None and last.claim == read_job_claim(view)
            again_at = AT_ONCE if view.alive else now + BROKEN_AGAIN_S
            return _CachedPage(file, last if same else None, view.problem, again_at)
        took = self._summary(before, file, view, now)
        steps = self._reader.take(view.identity, view.state, view.ring, alive=view.alive, user=view.uid)
        read = _PageRead(_make_rank_status(view, took[1], self._windows.take(steps)), steps, read_job_claim(view))
        return _CachedPage(file, read, view.problem, AT_ONCE if view.alive else NEVER, took)

    def _summary(
        self, before: _CachedPage | None, file: PageFile, view: BeaconView, now: float
    ) -> tuple[float, StepDurations]:
        same = before is not None and before.read is not None and before.file.inode == file.inode
        if before is not None and same and view.alive and 0 <= now - before.took[0] < SUMMARY_S:
            return before.took
        return now, summarize_durations(view.steps(STEPS_SUMMARISED))

    def _broken(self, look: DirectorySweep) -> dict[str, str]:
        """Return broken pages by file name, alternating users; a user with too many files is listed by user id."""
        wrong = sorted((known.file.uid, path, known.problem) for path, known in self._known.items() if known.problem)
        broken: dict[str, str] = {}
        for _, of_user in groupby(wrong, key=lambda each: each[0]):
            first = list(of_user)[:BROKEN_PER_USER]
            broken |= {escape_surrogates(Path(path).name): escape_surrogates(problem) for _, path, problem in first}
        self._late = {uid: self._late.get(uid, 0) + 1 for uid in look.late}
        for uid, looks in self._late.items():
            if looks >= LATE_LOOKS:
                broken[f"user {uid}"] = f"{look.late[uid]} files of this user are not read: there are too many"
        return broken

    def _clean(self, look: DirectorySweep, now: float) -> None:
        """Delete what has been of no use for a day."""
        for file in look.asides:
            if _modification_time(file) < now - KEPT_S and not _is_socket_in_use(file.path):
                remove_page_file(file)
        for file in look.settled:
            known = self._known[file.path]
            last = known.read.rank.at if known.read is not None else _modification_time(file)
            if last < now - KEPT_S and not (known.read is not None and known.read.rank.alive):
                remove_page_file(file)


def _modification_time(file: PageFile) -> float:
    return file.changed_ns / 1e9


def _is_socket_in_use(path: str) -> bool:
    owner = parse_socket_name(Path(path).name)
    try:
        return owner is not None and process_alive(*owner)
    except OSError:  # not known now
        return True


def _stands_still(read: _PageRead, now: float, seconds: float) -> bool:
    """Return whether a living rank has made no progress in its step for so long."""
    rank = read.rank
    return rank.alive and rank.phase == "step" and now - rank.at >= seconds


def _make_still_rank(read: _PageRead) -> StillRank:
    rank, process = read.rank, RankProcess(read.claim.pid, read.claim.uid)
    return StillRank(LocalRank(rank.job, rank.attempt, rank.rank, process), (read.steps.completed, rank.section))


def _drop_reported_steps(known: _CachedPage) -> _CachedPage:
    """Drop steps that have been reported."""
    if known.read is None or not known.read.steps.new:
        return known
    return known._replace(read=known.read._replace(steps=known.read.steps._replace(new=())))


def _is_relevant_page(read: _PageRead, claimants: Mapping[str, JobClaimants], now: float) -> bool:
    """Return whether a page is current and does not claim another user's job, as far as the scheduler knows."""
    claimed = claimants.get(read.claim.job)
    if claimed is not None and claimed.strangers and read.claim.uid not in claimed.users:
        return False
    return read.rank.alive or now - read.rank.at < DEAD_SHOWN_S


def _limit_pages_by_user(found: list[_PageRead]) -> list[_PageRead]:
    """Keep the order; of a user beyond the limit, keep live pages, then the newest."""
    by_user: dict[int, list[_PageRead]] = {}
    for each in found:
        by_user.setdefault(each.claim.uid, []).append(each)
    if all(len(of_user) <= SHOWN_PER_USER for of_user in by_user.values()):
        return found
    kept = set[str]()
    for of_user in by_user.values():
        of_user.sort(key=lambda each: (not each.rank.alive, -each.rank.at))
        kept.update(each.claim.path for each in of_user[:SHOWN_PER_USER])
    return [each for each in found if each.claim.path in kept]


def _make_rank_status(view: BeaconView, took: StepDurations, windows: tuple[StepWindow, ...]) -> RankStatus:
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
        windows=windows,
        digests=None if view.digests is None else ProductDigests(*view.digests),
    )
