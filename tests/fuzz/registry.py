"""Every target, and its share of a campaign: what costs a microsecond gets many cases, what costs a millisecond few."""

from __future__ import annotations

from importlib import import_module

from tests.fuzz.target import Target

SHARES = {
    "kmsg_record": 8,
    "journal_entry": 8,
    "xid_line": 8,
    "kernel_record": 8,
    "kernel_log_file": 4,
    "report": 4,
    "heartbeat": 4,
    "orders": 4,
    "nats_message": 8,
    "telemetry_part": 4,
    "swap_message": 4,
    "beacon_page": 8,
    "published_hazard": 8,
    "hostlist": 0.2,
    "slurm_json": 4,
    "slurm_text": 4,
    "srun_message": 4,
    "dcgm": 4,
    "proc_files": 8,
    "nvhcd_message": 8,
    "http_head": 2,
    "node_http_head": 8,
    "evidence_bundle": 2,
    "nccl_dump": 2,
    "ras_answer": 4,
    "preflight_document": 2,
    "healthd_config": 0.2,
    "centre_config": 0.2,
    "topology_file": 0.2,
    "playbook": 0.2,
}


def target(name: str) -> Target:
    """The target of the file of this name."""
    found: Target = import_module(f"tests.fuzz.targets.{name}").TARGET
    return found
