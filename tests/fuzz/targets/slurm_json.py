"""Slurm's JSON, of any version."""

from __future__ import annotations

from pathlib import Path

from remediator.schedulers.slurm.json_documents import (
    DocumentError,
    parse_jobs_json,
    parse_nodes_json,
    parse_reservations_json,
)
from tests.fuzz.target import Target

GOLDEN = Path(__file__).parents[2] / "golden" / "slurm"


def judge(data: bytes) -> None:
    """Records, each with a name, or the declared error."""
    for parse in (parse_nodes_json, parse_jobs_json, parse_reservations_json):
        try:
            found = parse(data)
        except DocumentError:
            continue
        if not all(record.name for record in found):
            raise AssertionError("a record without a name")


TARGET = Target(
    judge,
    (
        (
            b'{"nodes":[{"name":"n1","state":["IDLE","DRAIN"],"reason":"x","reason_changed_at":{"set":true,"infinite":false,'
            b'"number":7},"partitions":["p"],"gres":"gpu:h100:8(S:0-1)","gres_used":"gpu:h100:2(IDX:0,3)"}]}'
        ),
        (
            b'{"jobs":[{"job_id":7,"job_state":"RUNNING","nodes":"n[1-3]","array_job_id":{"set":true,"number":5},"array_task_id":1,'
            b'"het_job_id":0,"job_resources":{"nodes":{"list":["n1"]}},"excluded_nodes":""}]}'
        ),
        b'{"reservations":[{"name":"r","node_list":"n[1-2]","flags":["MAINT"],"end_time":1}],"errors":[{"description":"d"}]}',
        *((GOLDEN / "22.05" / name).read_bytes()[:4000] for name in ("nodes.json", "jobs.json", "reservations.json")),
    ),
    bytes_max=4096,
)
