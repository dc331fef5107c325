"""JSON of every version that we claim to read: 22.05 recorded from the real programs, the others composed from published schemas."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remediator.model.scheduler_hold import HoldOwner, SchedulerNodeState
from remediator.schedulers.slurm import json_documents, scontrol_text
from remediator.schedulers.slurm.drain_ownership import describe_slurm_hold, is_partly_reserved, jobs_by_node
from remediator.schedulers.slurm.json_documents import DocumentError
from remediator.schedulers.slurm.slurm_records import Reservation, SlurmNode

GOLDEN = Path(__file__).parents[4] / "golden" / "slurm"
RECORDED = GOLDEN / "22.05"
COMPOSED = sorted((GOLDEN / "composed").glob("*.json"))


def test_json_and_text_of_one_moment_say_the_same() -> None:
    nodes = json_documents.parse_nodes_json((RECORDED / "nodes.json").read_bytes())
    assert {node.name: node for node in nodes} == {
        node.name: as_in_json(node)
        for node in scontrol_text.parse_scontrol_nodes((RECORDED / "scontrol_nodes.txt").read_text())
    }
    jobs = json_documents.parse_jobs_json((RECORDED / "jobs.json").read_bytes())
    assert jobs_by_node(jobs) == jobs_by_node(scontrol_text.parse_squeue_lines((RECORDED / "squeue.txt").read_text()))
    assert json_documents.parse_reservations_json(
        (RECORDED / "reservations.json").read_bytes()
    ) == scontrol_text.parse_scontrol_reservations((RECORDED / "reservations.txt").read_text())


def as_in_json(node: SlurmNode) -> SlurmNode:
    """A reason reaches JSON whole; the text's stamps within it cannot be told from Slurm's own."""
    if "XID 79" not in node.reason:
        return node
    return msgspec.structs.replace(
        node, reason="gpu-healthd: inc-1 XID 79 [root@2025-01-01T00:00:00] State=IDLE Reason=x"
    )


@pytest.mark.parametrize("path", COMPOSED, ids=lambda path: path.stem)
def test_every_version_reads_the_same(path: Path) -> None:
    raw = path.read_bytes()
    running = jobs_by_node(json_documents.parse_jobs_json(raw))
    assert running == {"node1": ("5",), "node2": ("5", "7_1", "9+0")}
    nodes = {node.name: node for node in json_documents.parse_nodes_json(raw)}
    holds = {name: describe_slurm_hold(node, running.get(name, ())) for name, node in nodes.items()}
    away = SchedulerNodeState(
        "node4", schedulable=False, drained=True, owner=HoldOwner.SCHEDULER, reason="Not responding"
    )
    theirs = SchedulerNodeState(
        "node6", schedulable=False, drained=True, owner=HoldOwner.OPERATOR, reason="fan replacement"
    )
    ours = "gpu-healthd: inc-1 XID 79"
    assert [holds[f"node{number}"] for number in (1, 2, 3, 4, 5, 6)] == [
        SchedulerNodeState("node1", schedulable=False, owner=HoldOwner.US, reason=ours, jobs=("5",)),
        SchedulerNodeState("node2", schedulable=True, jobs=("5", "7_1", "9+0")),
        SchedulerNodeState("node3", schedulable=True),
        away,
        SchedulerNodeState("node5", schedulable=True),
        theirs,
    ]
    assert holds["node7"].schedulable is None
    assert [name for name, node in nodes.items() if is_partly_reserved(node)] == ["node1", "node2", "node5", "node8"]
    assert nodes["node1"].reason_at == 1795329670
    assert [job.excluded for job in json_documents.parse_jobs_json(raw)][-1] == ("node1", "node3")
    flags = frozenset({"MAINT", "IGNORE_JOBS", "SPEC_NODES"})
    assert json_documents.parse_reservations_json(raw) == [
        Reservation("gpu-healthd-pair", ("node5",), flags, 1795330270)
    ]


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"", "not JSON"),
        (b"[]", "not a JSON object"),
        (b"{}", "it has no list nodes"),
        (b'{"nodes": {}}', "it has no list nodes"),
        (b'{"errors": [{"error": "Invalid node name specified", "errno": 2018}], "nodes": []}', "Invalid node name"),
        (b'{"errors": [{"description": "Failure to query node n1", "source": "_dump_nodes"}], "nodes": []}', "query"),
        (b'{"errors": ["odd"], "nodes": []}', "odd"),
        (b'{"errors": [{}], "nodes": []}', "an error without a description"),
        (b"[" * 100_000, "not JSON"),
        (b'{"nodes": "\xff"}', "not JSON"),
    ],
)
def test_what_is_no_answer_says_why(raw: bytes, why: str) -> None:
    with pytest.raises(DocumentError, match=why):
        json_documents.parse_nodes_json(raw)


@pytest.mark.parametrize("nodes", ['"n[1-2]"', '{"count": 2, "list": "n[1-2]"}'])
def test_nodes_that_stand_only_in_the_resources_of_a_job_are_found(nodes: str) -> None:
    raw = f'{{"jobs": [{{"job_id": 7, "job_state": ["RUNNING"], "job_resources": {{"nodes": {nodes}}}}}]}}'
    assert json_documents.parse_jobs_json(raw)[0].nodes == ("n1", "n2")


@pytest.mark.parametrize(
    "number", ["1" + "0" * 400, "true", '"7"', '{"set": true, "infinite": true, "number": 7}', "1e300"]
)
def test_a_job_without_a_number_is_no_job(number: str) -> None:
    assert json_documents.parse_jobs_json(f'{{"jobs": [{{"job_id": {number}, "job_state": "RUNNING"}}]}}') == []


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
NODE = (
    "name",
    "state",
    "state_flags",
    "reason",
    "reason_changed_at",
    "partitions",
    "gres",
    "gres_used",
    "gres_drained",
)
JOB = ("job_id", "job_state", "nodes", "job_resources", "array_job_id", "array_task_id", "het_job_id", "excluded_nodes")


@settings(max_examples=40, deadline=None)
@given(st.dictionaries(st.sampled_from((*NODE, *JOB, "end_time", "flags", "node_list", "reservation")), JUNK))
def test_junk_is_read_without_a_crash_and_is_never_free(item: dict[str, Any]) -> None:
    raw = msgspec.json.encode({key: [item, item | {"name": "n1"}] for key in ("nodes", "jobs", "reservations")})
    json_documents.parse_jobs_json(raw)
    json_documents.parse_reservations_json(raw)
    for node in json_documents.parse_nodes_json(raw):
        assert describe_slurm_hold(node, ()).schedulable is not True


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(COMPOSED), st.sampled_from(("state", "name", "reason", "gres_used")), JUNK)
def test_one_field_of_another_shape_makes_no_held_node_free(path: Path, field: str, junk: Any) -> None:
    found = msgspec.json.decode(path.read_bytes())
    item = next(node for node in found["nodes"] if node["name"] == "node6")
    read = json_documents.parse_nodes_json(msgspec.json.encode({"nodes": [item | {field: junk}]}))
    assert all(describe_slurm_hold(node, ()).schedulable is not True for node in read)
