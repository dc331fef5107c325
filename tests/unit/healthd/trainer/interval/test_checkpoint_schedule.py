from __future__ import annotations

import itertools
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from healthd.trainer.agreement import LocalStore
from healthd.trainer.interval import CheckpointInterval
from healthd.trainer.interval.checkpoint_schedule import Bounds, RankIdentity
from healthd.trainer.interval.cost_estimates import compute_slowdown
from healthd.trainer.interval.hazard_file import PublishedHazard, hazard_path, parse_hazard, read_hazard, write_hazard
from vocabulary.clock import ManualClock

NODE_MTBF_S = 1e6
NODES = 100


def interval(
    clock: ManualClock, directory: str = "", rank: int = 0, store: LocalStore | None = None, first_steps: int = 40
) -> CheckpointInterval:
    return CheckpointInterval(
        nodes=NODES,
        node_mtbf_s=NODE_MTBF_S,
        seat=RankIdentity("train", 0, rank, directory),
        store=store,
        bounds=Bounds(least_s=1, first_steps=first_steps),
        clock=clock,
    )


def train(each: CheckpointInterval, clock: ManualClock, steps: range, stall_s: float = 8.0) -> list[int]:
    saved = []
    for step in steps:
        if each.due(step):
            with each.saving(step):
                clock.advance(stall_s)
            saved.append(step)
        clock.advance(2.0)
    return saved


def test_it_settles_at_the_optimum_of_what_it_measured() -> None:
    clock = ManualClock()
    each = interval(clock)
    saved = train(each, clock, range(3000))
    gaps_s = [2.0 * (b - a) for a, b in itertools.pairwise(saved[5:])]
    assert gaps_s
    assert gaps_s == pytest.approx([400] * len(gaps_s), rel=0.35)  # sqrt(2 * 8 * 10000), longer as the job lives on


def test_a_sick_node_shortens_the_interval_that_runs(tmp_path: Path) -> None:
    clock = ManualClock()
    each = interval(clock, str(tmp_path))
    train(each, clock, range(1000))
    before = each.interval_steps
    write_hazard(str(tmp_path), "train", PublishedHazard(100 * NODES / NODE_MTBF_S, NODES, clock.wall() + 1e6))
    saved = train(each, clock, range(1000, 2000))
    assert each.interval_steps < before / 5
    assert saved[0] - 1000 < before
    hazard_path(str(tmp_path), "train").unlink()
    train(each, clock, range(2000, 3000))
    assert each.interval_steps > before / 2


@settings(deadline=None)  # it waits for threads
@given(st.lists(st.floats(0.5, 8), min_size=4, max_size=4), st.integers(0, 10_000))
def test_all_ranks_save_in_the_same_steps_however_their_clocks_run(paces: list[float], first: int) -> None:
    store = LocalStore()
    clocks = [ManualClock() for _ in paces]
    ranks = [interval(clock, rank=rank, store=store) for rank, clock in enumerate(clocks)]
    for step in range(first, first + 400):
        said = set()
        for each, clock, pace in zip(ranks, clocks, paces, strict=True):
            clock.advance(pace)
            due = each.due(step)
            said.add(due)
            if due:
                with each.saving(step):
                    clock.advance(pace)
        assert len(said) == 1


def test_an_interval_is_never_shorter_than_a_write_nor_outside_its_bounds() -> None:
    clock = ManualClock()
    each = interval(clock)
    each.written(5000)
    assert each.interval_s == 5000
    each.written(1e9)
    each.written(1e9)
    assert each.interval_s == Bounds().most_s


def test_a_save_that_fails_counts_not() -> None:
    clock = ManualClock()
    each = interval(clock, first_steps=4)
    assert [each.due(step) for step in range(4)] == [False, False, False, True]
    with pytest.raises(OSError, match="full"), each.saving(3):
        raise OSError("full")
    assert each.due(4)


def test_what_others_could_have_written_is_not_believed(tmp_path: Path) -> None:
    directory = str(tmp_path)
    hazard = PublishedHazard(0.001, 4, 2000.0)
    path = write_hazard(directory, "a/b", hazard)
    assert read_hazard(directory, "a/b", 1000) == hazard
    assert path.stat().st_mode & 0o777 == 0o644
    assert read_hazard(directory, "a/b", 2001) is None
    assert read_hazard(directory, "a_b", 1000) is None
    path.chmod(0o666)
    assert read_hazard(directory, "a/b", 1000) is None
    path.chmod(0o644)
    if os.geteuid() == 0:
        os.chown(path, 12345, 12345)
        assert read_hazard(directory, "a/b", 1000) is None
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    assert read_hazard(directory, "a/b", 1000) is None


@given(st.binary(max_size=300))
def test_any_bytes_are_no_hazard(content: bytes) -> None:
    assert parse_hazard(content, "train", 0.0) is None


@pytest.mark.parametrize(
    "per_s", ["0", "1e-310", "1e-13", "-1", "NaN", "Infinity", "1e9", '"x"', "null", "[]", "1" + "0" * 400]
)
def test_no_number_that_cannot_be_is_taken(per_s: str) -> None:
    content = f'{{"version":1,"job":"train","per_s":{per_s},"nodes":4,"valid_until":1e12}}'
    assert parse_hazard(content.encode(), "train", 0.0) is None


def test_the_environment_says_who_this_is(tmp_path: Path) -> None:
    write_hazard(str(tmp_path), "train", PublishedHazard(1e-3, 4, 4e9))
    environ = {"HEALTHD_JOB": "train", "RANK": "1", "WORLD_SIZE": "2", "HEALTHD_BEACON_DIR": str(tmp_path)}
    assert CheckpointInterval.from_env(environ=environ).mtbf_s == pytest.approx(1000)
    with pytest.raises(ValueError, match="RANK"):
        CheckpointInterval.from_env(environ={**environ, "RANK": "7"})


@pytest.mark.torch
def test_the_jobs_own_store_carries_the_plan(tmp_path: Path) -> None:
    distributed = pytest.importorskip("torch.distributed")
    path = str(tmp_path / "store")
    stores = [distributed.PrefixStore("train", distributed.FileStore(path, 2)) for _ in range(2)]
    clocks = [ManualClock(), ManualClock()]
    ranks = [interval(clock, rank=rank, store=stores[rank]) for rank, clock in enumerate(clocks)]
    saved: list[list[int]] = [[], []]
    for step in range(2000):
        for rank, each in enumerate(ranks):
            saved[rank] += train(each, clocks[rank], range(step, step + 1), stall_s=8.0 + 3 * rank)
    assert saved[0] == saved[1]
    assert len(saved[0]) > 3
    assert ranks[0].interval_steps != 40


def test_a_number_of_steps_overrules_what_is_measured() -> None:
    clock = ManualClock()
    each = interval(clock)
    each.fix(25)
    assert train(each, clock, range(10, 100)) == [34, 59, 84]

    asked = CheckpointInterval.from_env(environ={"HEALTHD_CHECKPOINT_STEPS": "3"})
    assert [step for step in range(30) if asked.due(step)][:1] == [2]
    assert asked.interval_steps == 3


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "often", str(1 << 60)])
def test_what_is_no_number_of_steps_is_refused_by_name(text: str) -> None:
    with pytest.raises(ValueError, match="HEALTHD_CHECKPOINT_STEPS="):
        CheckpointInterval.from_env(environ={"HEALTHD_CHECKPOINT_STEPS": text})


@pytest.mark.parametrize(("slowed", "lost_s"), [(1.0, 2.0), (1.5, 2.0 + 5 * 1.0)])
def test_saves_cost_no_more_than_their_share_with_the_steps_that_their_writes_slow_down(
    slowed: float, lost_s: float
) -> None:
    clock, bounds = ManualClock(), Bounds(least_s=1, most_s=30, first_steps=1, cost_share=0.01)
    each = CheckpointInterval(nodes=2, bounds=bounds, clock=clock)
    written_at, saves = 0.0, 0
    for step in range(2000):
        beside = clock.monotonic() < written_at
        clock.advance(2.0 * (slowed if beside else 1.0))
        if each.due(step):
            write_s = 15.0 if slowed > 1 else 10.0  # five steps
            with each.saving(step):
                clock.advance(2.0)
            if saves:
                each.written(write_s)
            saves, written_at = saves + 1, clock.monotonic() + write_s
    assert each.interval_s == pytest.approx(99 * lost_s)


def test_before_a_failure_copies_may_cost_more_than_their_share(tmp_path: Path) -> None:
    clock, bounds = ManualClock(), Bounds(least_s=1, most_s=30, first_steps=1, cost_share=0.01)
    seat = RankIdentity(job="j", directory=str(tmp_path))
    each = CheckpointInterval(nodes=2, seat=seat, bounds=bounds, clock=clock)
    train(each, clock, range(200), stall_s=2.0)
    assert each.interval_s == pytest.approx(99 * 2.0)
    write_hazard(str(tmp_path), "j", PublishedHazard(1 / 600, 2, clock.wall() + 1e6))  # once in ten minutes
    assert 40 < each.interval_s < 60  # sqrt(2 * 2 s * 600 s)
    train(each, clock, range(200, 400), stall_s=2.0)
    assert each.interval_steps < 30  # of 2 s each


def test_copies_that_cost_little_are_not_rarer_than_the_bounds_say() -> None:
    clock, bounds = ManualClock(), Bounds(least_s=1, most_s=30, first_steps=1, cost_share=0.01)
    each = CheckpointInterval(nodes=2, bounds=bounds, clock=clock)
    assert each.interval_s == 30  # nothing is measured yet
    saved = train(each, clock, range(200), stall_s=0.1)
    assert saved[:3] == [0, 2, 6]  # the first ones are measured, and training seldom waits for one of them
    assert each.interval_s == 30
    assert each.interval_steps == 15  # of 2 s each


def test_a_write_leaves_room_for_steps_that_show_what_it_costs() -> None:
    each = CheckpointInterval(nodes=2, bounds=Bounds(least_s=1, most_s=30, cost_share=0.01), clock=ManualClock())
    each.written(40.0)
    assert each.interval_s == 80


@pytest.mark.parametrize(
    ("ends_s", "write_s", "expected"),
    [
        ([3, 6, 8, 10], 5, 2),
        ([3, 6, 8, 10], 6, 2),
        ([2, 4, 6], 3, 0),
        ([2, 4, 7], 3, 0),
        ([3, 6], 5, None),
        ([], 5, None),
    ],
)
def test_a_slowdown_is_what_the_steps_beside_a_write_take_longer(
    ends_s: list[float], write_s: float, expected: float | None
) -> None:
    assert compute_slowdown(ends_s, write_s) == expected
