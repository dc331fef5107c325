"""DCGM's JSON, its table, and a dcgm-exporter's page of metrics."""

from __future__ import annotations

import contextlib

from healthd.collectors.dcgm import parse_dcgm_health, parse_dmon_table, parse_exporter_page
from tests.fuzz.target import Target, text


def judge(data: bytes) -> None:
    """What is no number is unknown; only JSON that is none may raise."""
    said = text(data)
    with contextlib.suppress(ValueError):
        parse_dcgm_health(said)
    for profile in (*parse_dmon_table(said), *parse_exporter_page(said)):
        if not all(value is None or 0 <= value < 1e15 for value in profile[1:]):
            raise AssertionError(f"no reading: {profile}")


TARGET = Target(
    judge,
    (
        b'{"body":{"GPU":{"children":{"0":{"children":{"Errors":{"children":{"PCIe":{"value":"Warning","overflow":["w"]}}}}}}}}}',
        b"#Entity   SMACT  TENSO\nID\nGPU 0     0.931  0.412  0.5  1024  N/A\n",
        b'DCGM_FI_PROF_SM_ACTIVE{gpu="0",UUID="GPU-1",job="}"} 0.93 1700000000\nDCGM_FI_PROF_DRAM_ACTIVE{gpu="0"} NaN\n',
        b"[" * 2000,
        b"GPU " + b"9" * 5000 + b" 1 1 1 1 1",
    ),
)
