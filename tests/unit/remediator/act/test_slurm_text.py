from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remediator.act.slurm import expand_hostlist, parse_nodes, parse_queue
from remediator.model.hold import NodeHold, Owner

RECORDED = Path(__file__).parent


def record(state: str, reason: str = "") -> NodeHold:
    tail = f" Reason={reason} [root@2026-11-20T22:36:14]" if reason else ""
    return parse_nodes(f"NodeName=n1 Arch=x86_64 OS=Linux 6.1 State={state} ThreadsPerCore=1{tail}\n", {})["n1"]


def test_what_slurm_22_05_prints_is_read() -> None:
    jobs = parse_queue((RECORDED / "squeue_22_05.txt").read_text())
    holds = parse_nodes((RECORDED / "scontrol_22_05.txt").read_text(), jobs)
    assert list(holds) == ["node1", "node2", "node3", "node4", "node5"]
    assert holds["node1"] == NodeHold(
        "node1",
        schedulable=False,
        owner=Owner.US,
        reason="gpu-healthd: inc-1 XID 79 State=IDLE Reason=x",
        jobs=("1",),
    )
    assert holds["node2"] == NodeHold("node2", schedulable=True, jobs=("1",))
    assert holds["node4"] == NodeHold(
        "node4", schedulable=False, drained=True, owner=Owner.OPERATOR, reason="fan replacement"
    )
    assert holds["node5"].reason == "first line NodeName=node1 State=IDLE Größe"


@pytest.mark.parametrize(
    ("state", "reason", "expected"),
    [
        ("IDLE", "", (True, False, Owner.NOBODY)),
        ("MIXED+PLANNED", "", (True, False, Owner.NOBODY)),
        ("ALLOCATED+COMPLETING", "", (True, False, Owner.NOBODY)),
        ("IDLE+DRAIN", "gpu-healthd: inc-1", (False, True, Owner.US)),
        ("MIXED+DRAIN", "gpu-healthd: inc-1", (False, False, Owner.US)),
        ("IDLE+COMPLETING+DRAIN", "gpu-healthd: inc-1", (False, False, Owner.US)),
        ("DOWN+DRAIN+NOT_RESPONDING", "gpu-healthd: inc-1", (False, True, Owner.US)),
        ("IDLE+DRAIN", "ask Kim", (False, True, Owner.OPERATOR)),
        ("IDLE+DRAIN", "not gpu-healthd: inc-1", (False, True, Owner.OPERATOR)),
        ("IDLE+DRAIN", "NHC: check_hw_gpu failed", (False, True, Owner.OPERATOR)),
        ("IDLE+FAIL", "ask Kim", (False, True, Owner.OPERATOR)),
        ("DOWN*", "Not responding", (False, True, Owner.SCHEDULER)),
        ("DOWN+NOT_RESPONDING", "", (False, True, Owner.SCHEDULER)),
        ("IDLE+DRAIN", "Kill task failed", (False, True, Owner.SCHEDULER)),
        ("IDLE+NOT_RESPONDING", "", (False, False, Owner.SCHEDULER)),
        ("IDLE+POWERED_DOWN", "", (False, False, Owner.SCHEDULER)),
        ("UNKNOWN", "", (None, False, Owner.NOBODY)),
        ("UNKNOWN+DRAIN", "gpu-healthd: inc-1", (None, False, Owner.NOBODY)),
        ("TELEPORTING", "", (None, False, Owner.NOBODY)),
    ],
)
def test_every_state_has_one_reading(state: str, reason: str, expected: tuple[bool | None, bool, Owner]) -> None:
    hold = record(state, reason)
    assert (hold.schedulable, hold.drained, hold.owner) == expected
    assert hold.reason == reason or hold.schedulable is None


def test_a_record_without_a_state_cannot_be_judged() -> None:
    assert parse_nodes("NodeName=n1 Arch=x86_64\n", {})["n1"].schedulable is None


@given(st.text())
def test_any_text_is_read_without_a_crash(text: str) -> None:
    parse_nodes(text, {})
    parse_nodes(f"NodeName=n1 State=IDLE+DRAIN Reason={text}", {})
    parse_queue(text)


@given(st.text(alphabet=st.characters(min_codepoint=32, max_codepoint=0x2FFF, exclude_characters="[]")))
def test_our_reason_is_ours_whatever_follows(text: str) -> None:
    assert record("IDLE+DRAIN", f"gpu-healthd: {text}").owner is Owner.US


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


def test_a_host_list_is_bounded() -> None:
    assert sum(1 for _ in expand_hostlist("n[1-999999999]")) == 100_000


def test_a_job_array_keeps_its_name() -> None:
    assert parse_queue("12_3 n[1-2]\n13 n2\n14 \n") == {"n1": ("12_3",), "n2": ("12_3", "13")}
