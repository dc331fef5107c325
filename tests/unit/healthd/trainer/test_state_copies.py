from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from healthd.trainer.beacons.rank_placement import read_rack
from healthd.trainer.checkpoint_storage.checkpoint_files import CheckpointError, measure_file
from healthd.trainer.checkpoint_storage.checksums import Checksum
from healthd.trainer.checkpoint_storage.state_copies import (
    STALE_SECONDS,
    CopySource,
    StateCopies,
    StateCopy,
    choose_copy_distance,
    delete_stale_copies,
    find_complete_step,
    find_newest_step,
    prepare_private_directory,
)


def copy(step: int, rank: int, world: int = 3, save: str = "00000001") -> StateCopy:
    return StateCopy(step, world, rank, save, Checksum("sha256", "0" * 64))


def test_the_newest_step_that_is_whole_is_taken_each_rank_from_home_where_it_can() -> None:
    held = [
        [copy(8, 0), copy(8, 2), copy(9, 0), copy(9, 2)],
        [],  # this node was lost
        [copy(8, 2), copy(8, 1), copy(9, 2)],
    ]
    assert [(source.holder, source.copy.step) for source in find_complete_step(held, 3)] == [(0, 8), (2, 8), (2, 8)]
    assert find_complete_step(held, 2) == []
    assert find_complete_step([[], [], []], 3) == []


def test_a_folder_that_another_user_made_first_is_refused(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    prepare_private_directory(mine)
    prepare_private_directory(mine)
    assert mine.stat().st_mode & 0o777 == 0o700
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o775)
    (tmp_path / "link").symlink_to(mine)
    (tmp_path / "file").touch(mode=0o600)
    others = tmp_path / "others"
    others.mkdir(mode=0o700)
    os.chown(others, 65534, 65534)
    for path in (tmp_path / "open", tmp_path / "link", tmp_path / "file", others):
        with pytest.raises(CheckpointError, match="not private to this user"):
            prepare_private_directory(path)


@given(st.lists(st.sampled_from(["", "a", "b", "c"]), min_size=2, max_size=16), st.integers(1, 4))
def test_copies_go_to_another_node_and_to_another_rack_where_that_is_possible(nodes: list[str], per_node: int) -> None:
    racks = [rack for rack in nodes for _ in range(per_node)]
    world = len(racks)

    def at_risk(distance: int) -> int:
        return sum(racks[rank] == racks[(rank + distance) % world] != "" for rank in range(world))

    found = choose_copy_distance(racks, per_node)
    assert found % per_node == 0
    assert 0 < found < world
    assert all((at_risk(other), other) >= (at_risk(found), found) for other in range(per_node, world, per_node))


def test_copies_of_two_racks_cross_over_and_those_of_unknown_racks_go_next_door() -> None:
    assert choose_copy_distance(["a"] * 8 + ["b"] * 8, 4) == 8
    assert choose_copy_distance(["a"] * 8 + ["b"] * 4 + ["a"] * 4, 4) == 4
    assert choose_copy_distance([""] * 16, 4) == 4


@pytest.mark.parametrize(
    ("environ", "rack"),
    [
        ({}, ""),
        ({"HEALTHD_RACK": "r7", "SLURM_TOPOLOGY_ADDR": "s1.n1"}, "r7"),
        (
            {"SLURM_TOPOLOGY_ADDR": "spine.leaf3.n17", "SLURM_TOPOLOGY_ADDR_PATTERN": "switch.switch.node"},
            "spine.leaf3",
        ),
        ({"SLURM_TOPOLOGY_ADDR": "n17.site.org", "SLURM_TOPOLOGY_ADDR_PATTERN": "node"}, ""),
        ({"SLURM_TOPOLOGY_ADDR": "n17"}, ""),
    ],
)
def test_the_rack_is_named_by_the_site_or_by_slurms_topology(environ: dict[str, str], rack: str) -> None:
    assert read_rack(environ) == rack


def test_copies_of_runs_that_nobody_resumed_are_deleted(tmp_path: Path) -> None:
    now, outside = 1e9, tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").touch()
    own = tmp_path / "copies"
    stale, alone, current, recent = own / "a" / "old", own / "b" / "old", own / "a" / "current", own / "a" / "recent"
    for run in (stale, alone, current, recent):
        (run / "n0").mkdir(parents=True)
        (run / "n0" / "state").touch()
        for path in (run / "n0" / "state", run / "n0", run):
            os.utime(path, (now - STALE_SECONDS - 1,) * 2)
    os.utime(recent / "n0" / "state", (now - STALE_SECONDS + 1,) * 2)
    (stale / "n1").symlink_to(outside)
    os.utime(stale / "n1", (0, 0), follow_symlinks=False)
    os.utime(stale, (0, 0))
    assert sorted(delete_stale_copies(own, but=current, now=now)) == [stale, alone]
    assert sorted(own.glob("*/*")) == [current, recent]
    assert not alone.parent.exists()
    assert (outside / "kept").exists()
    assert delete_stale_copies(tmp_path / "none", but=current, now=now) == []


def test_copies_of_a_step_that_was_trained_twice_are_never_mixed() -> None:
    first, second = [copy(9, rank, save="ffffffff") for rank in range(3)], [copy(9, rank) for rank in range(3)]
    assert find_complete_step([[first[0]], [second[1]], [second[2]]], 3) == []
    older = [copy(8, rank) for rank in range(3)]
    assert {source.copy.step for source in find_complete_step([[first[0], *older], [second[1]], [second[2]]], 3)} == {8}
    whole = find_complete_step([[first[0], second[0]], [second[1]], [second[2]]], 3)
    assert [source.copy.save for source in whole] == ["00000001"] * 3


@given(
    st.integers(1, 5).flatmap(
        lambda world: st.tuples(
            st.just(world),
            st.lists(
                st.sets(st.builds(copy, st.integers(0, 3), st.integers(0, world - 1), st.integers(world, world + 1))),
                min_size=world, max_size=world,
            ),
        )
    )
)  # fmt: skip
def test_no_newer_whole_step_is_missed(case: tuple[int, list[set[StateCopy]]]) -> None:
    world, held = case
    found = find_complete_step(held, world)
    whole = [
        step
        for step in range(4)
        if all(any(copy(step, rank, world) in copies for copies in held) for rank in range(world))
    ]
    assert {source.copy.step for source in found} == ({max(whole)} if whole else set())
    for rank, source in enumerate(found):
        assert source.copy.rank == rank
        assert source.copy in held[source.holder]
        assert source.holder == rank or source.copy not in held[rank]


def test_copies_are_known_by_their_names_and_trusted_by_their_content(tmp_path: Path) -> None:
    copies = StateCopies(tmp_path / "memory")
    assert copies.held() == []
    aside = copies.aside("own", 1)
    aside.write_bytes(b"state")
    whole = StateCopy(42, 3, 1, "1f09ac3e", measure_file(aside, "blake3").checksum)
    assert copies.held() == []

    copies.finish(aside, whole)

    assert copies.held() == [whole]
    assert copies.check(whole).bytes == 5
    assert (tmp_path / "memory").stat().st_mode & 0o077 == 0
    copies.path(whole).write_bytes(b"stAte")
    with pytest.raises(CheckpointError, match="does not match its name"):
        copies.check(whole)
    copies.forget(but=43)
    assert copies.held() == []
    with pytest.raises(CheckpointError, match="No such file"):
        copies.check(whole)


def test_a_directory_that_others_may_write_to_is_not_trusted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    copies = StateCopies(tmp_path / "m")
    held = copy(3, 0, 1)
    aside = copies.aside("own", 0)
    aside.write_bytes(b"")
    copies.finish(aside, held)
    assert copies.held() == [held]
    assert (tmp_path / "m").stat().st_mode & 0o777 == 0o700

    (tmp_path / "m").chmod(0o777)
    assert copies.held() == []
    assert "others may write to it" in caplog.text
    with pytest.raises(CheckpointError, match="others may write to it"):
        copies.aside("own", 0)

    (tmp_path / "m").chmod(0o700)
    (tmp_path / "l").symlink_to(tmp_path / "m")
    assert StateCopies(tmp_path / "l").held() == []


def replica(step: int, rank: int, world: int = 3, save: str = "00000001") -> StateCopy:
    return copy(step, rank, world, save)._replace(replica=True)


def test_one_replica_is_enough_for_a_job_of_any_size_and_is_taken_from_home_where_it_can() -> None:
    held = [[replica(8, 1), replica(8, 0)], [replica(7, 2)], [replica(8, 2)], []]
    assert find_newest_step(held, 4) == [
        CopySource(0, replica(8, 0)),
        CopySource(0, replica(8, 1)),
        CopySource(2, replica(8, 2)),
        CopySource(0, replica(8, 0)),
    ]
    assert find_newest_step([[copy(8, 1)], []], 2) == []


def test_a_newer_replica_goes_before_a_whole_step_and_an_older_one_does_not() -> None:
    whole = [[replica(8, rank, world=2)] for rank in range(2)]
    assert [source.copy.world for source in find_newest_step([[*whole[0], replica(8, 0)], whole[1]], 2)] == [2, 2]
    assert [source.copy.step for source in find_newest_step([[*whole[0], replica(9, 0)], whole[1]], 2)] == [9, 9]
    moved = [[replica(8, rank, world=2) for rank in range(2)], [replica(8, 0, world=2)]]
    assert [source.copy.rank for source in find_newest_step(moved, 2)] == [0, 1], (
        "each rank has its own generators back"
    )


def test_replicas_of_a_step_that_was_trained_twice_are_never_mixed() -> None:
    held = [[replica(8, 0, save="0000000a")], [replica(8, 1, save="0000000b")]]
    assert {source.copy.save for source in find_newest_step(held, 2)} == {"0000000b"}


def test_a_replica_is_known_by_its_name(tmp_path: Path) -> None:
    copies = StateCopies(tmp_path)
    aside = copies.aside("own", 1)
    aside.write_bytes(b"state")
    copies.finish(aside, replica(8, 1))
    assert copies.held() == [replica(8, 1)]
