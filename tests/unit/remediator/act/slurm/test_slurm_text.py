"""What Slurm's commands print, as recorded from a real 22.05, and whatever else may come."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remediator.model.node_location import NodeLocation
from remediator.model.scheduler_hold import HoldOwner, SchedulerNodeState
from remediator.schedulers.slurm.drain_ownership import describe_slurm_hold, is_partly_reserved, jobs_by_node
from remediator.schedulers.slurm.scontrol_text import (
    parse_scontrol_job,
    parse_scontrol_nodes,
    parse_scontrol_reservations,
    parse_scontrol_topology,
    parse_squeue_lines,
)
from remediator.schedulers.slurm.slurm_records import SlurmJob, count_gres_gpus
from vocabulary.text.slurm_hostlist import expand_hostlist

RECORDED = Path(__file__).parents[4] / "golden" / "slurm" / "22.05"


def record(state: str, reason: str = "") -> SchedulerNodeState:
    tail = f" Reason={reason} [root@2026-11-20T22:36:14]" if reason else ""
    (node,) = parse_scontrol_nodes(f"NodeName=n1 Arch=x86_64 OS=Linux 6.1 State={state} ThreadsPerCore=1{tail}\n")
    return describe_slurm_hold(node, ())


def test_what_slurm_22_05_prints_is_read() -> None:
    running = jobs_by_node(parse_squeue_lines((RECORDED / "squeue.txt").read_text()))
    nodes = {node.name: node for node in parse_scontrol_nodes((RECORDED / "scontrol_nodes.txt").read_text())}
    holds = {name: describe_slurm_hold(node, running.get(name, ())) for name, node in nodes.items()}
    assert list(holds) == ["node1", "node2", "node3", "node4", "node5"]
    assert holds["node1"] == SchedulerNodeState(
        "node1",
        schedulable=False,
        owner=HoldOwner.US,
        reason="gpu-healthd: inc-1 XID 79 State=IDLE Reason=x",
        jobs=("5",),
    )
    assert holds["node2"] == SchedulerNodeState("node2", schedulable=True, jobs=("5",))
    assert holds["node3"] == SchedulerNodeState("node3", schedulable=True, jobs=("6_1",))
    assert holds["node4"] == SchedulerNodeState(
        "node4", schedulable=False, drained=True, owner=HoldOwner.OPERATOR, reason="fan replacement"
    )
    assert holds["node5"].reason == "first line NodeName=node1 State=IDLE Größe"
    assert nodes["node1"].reason_at == 1795329670  # the stamp that Slurm wrote, not the one within the reason
    assert (nodes["node3"].gpus, nodes["node3"].gpus_used, nodes["node3"].partitions) == (8, 4, ("train",))


def test_what_22_05_says_of_reservations_and_topology_is_read() -> None:
    (reserved,) = parse_scontrol_reservations((RECORDED / "reservations.txt").read_text())
    assert (reserved.name, reserved.nodes) == ("gpu-healthd-pair", ("node3", "node4"))
    assert reserved.flags == {"MAINT", "IGNORE_JOBS", "SPEC_NODES"}
    assert reserved.ends_at == 1795330270
    leaf1, leaf2 = NodeLocation(switch="leaf1"), NodeLocation(switch="leaf2")
    assert parse_scontrol_topology((RECORDED / "topology.txt").read_text()) == {
        "node1": leaf1,
        "node2": leaf1,
        "node3": leaf2,
        "node4": leaf2,
        "node5": leaf2,
    }


def test_a_block_of_a_block_topology_is_a_rack() -> None:
    shown = "BlockName=b1 BlockIndex=0 Nodes=n[1-2] BlockSize=18\nBlockName=b2 BlockIndex=1 Nodes=n3\n"
    assert parse_scontrol_topology(shown) == {
        "n1": NodeLocation(rack="b1"),
        "n2": NodeLocation(rack="b1"),
        "n3": NodeLocation(rack="b2"),
    }


@pytest.mark.parametrize(
    ("state", "reason", "expected"),
    [
        ("IDLE", "", (True, False, HoldOwner.NOBODY)),
        ("MIXED+PLANNED", "", (True, False, HoldOwner.NOBODY)),
        ("ALLOCATED+COMPLETING", "", (True, False, HoldOwner.NOBODY)),
        ("IDLE+DRAIN", "gpu-healthd: inc-1", (False, True, HoldOwner.US)),
        ("MIXED+DRAIN", "gpu-healthd: inc-1", (False, False, HoldOwner.US)),
        ("IDLE+COMPLETING+DRAIN", "gpu-healthd: inc-1", (False, False, HoldOwner.US)),
        ("DOWN+DRAIN+NOT_RESPONDING", "gpu-healthd: inc-1", (False, True, HoldOwner.US)),
        ("IDLE+DRAIN", "gpu-healthd: inc-1, ask Kim", (False, True, HoldOwner.US)),
        ("IDLE+DRAIN", "ask Kim", (False, True, HoldOwner.OPERATOR)),
        ("IDLE+DRAIN", "not gpu-healthd: inc-1", (False, True, HoldOwner.OPERATOR)),
        ("IDLE+DRAIN", "NHC: check_hw_gpu failed", (False, True, HoldOwner.OPERATOR)),
        ("IDLE+FAIL", "ask Kim", (False, True, HoldOwner.OPERATOR)),
        ("DOWN*", "Not responding", (False, True, HoldOwner.SCHEDULER)),
        ("DOWN+NOT_RESPONDING", "", (False, True, HoldOwner.SCHEDULER)),
        ("IDLE+DRAIN", "Kill task failed", (False, True, HoldOwner.SCHEDULER)),
        ("IDLE+NOT_RESPONDING", "", (False, False, HoldOwner.SCHEDULER)),
        ("IDLE*", "", (False, False, HoldOwner.SCHEDULER)),
        ("IDLE~", "", (False, False, HoldOwner.SCHEDULER)),
        ("IDLE+POWERED_DOWN", "", (False, False, HoldOwner.SCHEDULER)),
        ("IDLE+BLOCKED", "", (False, False, HoldOwner.SCHEDULER)),
        ("UNKNOWN", "", (None, False, HoldOwner.NOBODY)),
        ("UNKNOWN+DRAIN", "gpu-healthd: inc-1", (None, False, HoldOwner.NOBODY)),
        ("TELEPORTING", "", (None, False, HoldOwner.NOBODY)),
        ("IDLE+TELEPORTING", "", (None, False, HoldOwner.NOBODY)),
        ("IDLE?", "", (None, False, HoldOwner.NOBODY)),
        ("IDLE+TELEPORTING+DRAIN", "gpu-healthd: inc-1", (False, False, HoldOwner.US)),
    ],
)
def test_every_state_has_one_reading(state: str, reason: str, expected: tuple[bool | None, bool, HoldOwner]) -> None:
    hold = record(state, reason)
    assert (hold.schedulable, hold.drained, hold.owner) == expected
    assert hold.reason == reason or hold.schedulable is None


def test_a_record_without_a_state_cannot_be_judged() -> None:
    (node,) = parse_scontrol_nodes("NodeName=n1 Arch=x86_64\n")
    assert describe_slurm_hold(node, ()).schedulable is None


@pytest.mark.parametrize(
    ("reason", "owner"),
    [
        ("Reboot needed for BIOS 2.4, ann", HoldOwner.OPERATOR),
        ("Low airflow in rack, do not use", HoldOwner.OPERATOR),
        ("Low CPUs, ask Kim", HoldOwner.OPERATOR),
        ("Not responding to IPMI, the vendor is coming", HoldOwner.OPERATOR),
        ("Kill task failed again, bob looks", HoldOwner.OPERATOR),
        ("gres/gpu 3 is to be swapped", HoldOwner.OPERATOR),
        ("BIOS 2.4 : reboot issued", HoldOwner.OPERATOR),  # Slurm carries out what a person asked for
        ("kill task failed", HoldOwner.OPERATOR),
        ("Low CPUs, Low RealMemory (reported:7681 < 100.00% of configured:8000)", HoldOwner.SCHEDULER),
        ("Low socket*core*thread count, Low CPUs", HoldOwner.SCHEDULER),
        ("gres/gpu count reported lower than configured (7 < 8)", HoldOwner.SCHEDULER),
        ("gres/gpu:h100 count too low (7 < 8), Low TmpDisk", HoldOwner.SCHEDULER),
        ("Reboot ASAP : reboot issued", HoldOwner.SCHEDULER),
        ("Node unexpectedly rebooted", HoldOwner.SCHEDULER),
    ],
)
def test_only_a_whole_text_of_slurms_is_slurms(reason: str, owner: HoldOwner) -> None:
    assert record("IDLE+DRAIN", reason).owner is owner


def test_a_comment_behind_the_reason_is_no_part_of_it() -> None:
    line = "NodeName=n1 State=IDLE+DRAIN Reason=fan [kim@2026-11-20T22:36:14] Comment=rack 7 Reason=gpu-healthd: x\n"
    (node,) = parse_scontrol_nodes(line)
    assert (node.reason, describe_slurm_hold(node, ()).owner) == ("fan", HoldOwner.OPERATOR)


def test_a_field_within_the_reason_is_no_field() -> None:
    (node,) = parse_scontrol_nodes("NodeName=n1 State=IDLE+DRAIN Reason=fan ReservationName=x Gres=gpu:8\n")
    assert (node.reservation, node.gpus) == ("", 0)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ("State=IDLE Gres=gpu:h100:8 GresUsed=gpu:h100:0(IDX:N/A) GresDrain=N/A", False),
        ("State=IDLE Gres=gpu:h100:8", False),
        ("State=IDLE Gres=gpu:h100:8 GresUsed=gpu:h100:2(IDX:0-1)", True),
        ("State=IDLE Gres=gpu:h100:8 GresDrain=gpu:h100:1", True),
        ("State=IDLE+RESERVED Gres=gpu:h100:8", True),
        ("State=IDLE Gres=gpu:h100:8 ReservationName=maint", True),
    ],
)
def test_a_free_node_may_be_set_aside(fields: str, *, expected: bool) -> None:
    (node,) = parse_scontrol_nodes(f"NodeName=n1 {fields}\n")
    assert describe_slurm_hold(node, ()).schedulable is True
    assert is_partly_reserved(node) is expected


@given(st.text())
def test_any_text_is_read_without_a_crash(text: str) -> None:
    parse_scontrol_nodes(text)
    parse_scontrol_nodes(f"NodeName=n1 State=IDLE+DRAIN Reason={text}")
    parse_squeue_lines(text)
    parse_scontrol_job(f"JobId=1 {text}")
    parse_scontrol_reservations(f"ReservationName={text}")
    parse_scontrol_topology(f"SwitchName=a Level=0 Nodes={text}")
    count_gres_gpus(text)


@given(st.text(alphabet="ABCDEFGHIJKLMNOPQRSTUVWXYZ_+*$~#!%@^-?", max_size=20))
def test_a_state_with_a_word_that_we_do_not_know_is_never_free(text: str) -> None:
    assert record(f"IDLE+NEW_{text}_WORD").schedulable is not True


@given(st.text(alphabet=st.characters(min_codepoint=32, max_codepoint=0x2FFF, exclude_characters="[]")))
def test_our_reason_is_ours_whatever_follows(text: str) -> None:
    assert record("IDLE+DRAIN", f"gpu-healthd: {text}").owner is HoldOwner.US


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", []),
        ("node7", ["node7"]),
        ("a,b", ["a", "b"]),
        ("gpu[08-10]", ["gpu08", "gpu09", "gpu10"]),
        ("r[1-2]n[1,3]", ["r1n1", "r1n3", "r2n1", "r2n3"]),
        ("n[1-2]-ib", ["n1-ib", "n2-ib"]),
        ("a[1-2],b[3],c", ["a1", "a2", "b3", "c"]),
        ("(null)", ["(null)"]),
        ("n[x-y]", ["nx-y"]),
    ],
)
def test_host_lists(text: str, names: list[str]) -> None:
    assert list(expand_hostlist(text)) == names


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["n", "gpu-a", ""]),
            st.integers(0, 90),
            st.integers(0, 9),
            st.integers(1, 4),
            st.sampled_from(["", "-ib"]),
        ),
        max_size=5,
    )
)
def test_a_host_list_names_every_node_in_order(parts: list[tuple[str, int, int, int, str]]) -> None:
    texts, names = [], []
    for head, first, more, width, tail in parts:
        span = [f"{head}{str(number).zfill(width)}{tail}" for number in range(first, first + more + 1)]
        texts.append(f"{head}[{str(first).zfill(width)}-{str(first + more).zfill(width)}]{tail}")
        names += span
    assert list(expand_hostlist(",".join(texts))) == names


def test_a_host_list_is_bounded() -> None:
    assert sum(1 for _ in expand_hostlist("n[1-999999999]")) == 100_000


@pytest.mark.parametrize("text", ["[,]" * 32, "[1-9]" * 30 + "[,]" * 2, "a[1-9]" * 30 + "[9-1]"])
def test_a_host_list_of_empty_names_or_backward_ranges_ends(text: str) -> None:
    assert sum(1 for name in expand_hostlist(text) if name) <= 100_000


def test_plain_names_fill_the_bound_whole() -> None:
    assert sum(1 for _ in expand_hostlist(",".join(f"n{n}" for n in range(100_000)))) == 100_000


@pytest.mark.parametrize(
    "text", ["n[" + "9" * 5000 + "-" + "9" * 5000 + "]", "n[1-" + "9" * 5000 + "]", "n" + "[1]" * 3000]
)
def test_a_host_list_that_nobody_wrote_is_one_name(text: str) -> None:
    assert len(list(expand_hostlist(text))) == 1


def test_a_count_that_nobody_has_is_none() -> None:
    assert count_gres_gpus("gpu:" + "9" * 5000) == 0


def test_a_job_array_keeps_its_name() -> None:
    jobs = parse_squeue_lines(
        "12_3 RUNNING n[1-2]\n13 COMPLETING n2\n14 RUNNING \n15 PENDING\n16 STRANGE n1\n17 FAILED n1\n"
    )
    assert jobs_by_node(jobs) == {"n1": ("12_3", "16"), "n2": ("12_3", "13")}


def test_a_job_is_read_with_what_it_excludes() -> None:
    line = "JobId=7 JobName=a JobState=PENDING Reason=None NodeList=(null) ExcNodeList=node[1,3] Command=(null)"
    assert parse_scontrol_job(line) == SlurmJob("7", frozenset({"PENDING"}), (), ("node1", "node3"))
    assert parse_scontrol_job("slurm_load_jobs error") is None
