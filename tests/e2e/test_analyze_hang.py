"""Three real ranks, of which one does not come to a collective; their own flight recorders are read."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

RANK = """
import datetime, os, sys, threading, time
from pathlib import Path
import torch, torch.distributed as dist
import torch._C._distributed_c10d as c10d
place, rank = Path(sys.argv[1]), int(os.environ["RANK"])
def recorded():
    return c10d._dump_fr_trace_json().replace(b" ", b"")
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=100))
for _ in range(3):
    dist.all_reduce(torch.ones(4))
if rank != 2:
    threading.Thread(target=lambda: dist.all_reduce(torch.ones(8)), daemon=True).start()
    while b'"collective_seq_id":4' not in recorded():
        time.sleep(0.02)
while recorded().count(b'"retired":true') < 3:  # gloo writes that down a moment after the call has returned
    time.sleep(0.02)
(place / f"nccl_trace_rank_{rank}").write_bytes(c10d._dump_fr_trace())
(place / f"done{rank}.txt").touch()
while len(list(place.glob("done*.txt"))) < 3:
    time.sleep(0.02)
os._exit(0)
"""


@pytest.mark.torch
def test_the_rank_that_stayed_away_is_named_from_real_dumps(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    base = os.environ | {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "WORLD_SIZE": "3",
        "OMP_NUM_THREADS": "1",
    }
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", RANK, str(tmp_path)], env=base | {"RANK": str(r), "TORCH_FR_BUFFER_SIZE": "2000"}
        )
        for r in range(3)
    ]
    try:
        assert [rank.wait(100) for rank in ranks] == [0, 0, 0]
    finally:
        for rank in ranks:
            rank.kill()
    asked = [sys.executable, "-m", "healthctl", "analyze", "hang", str(tmp_path), "-o", "json"]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    found = json.loads(done.stdout)
    assert (found["kind"], found["culprits"], found["victims"]) == ("stuck_compute", [2], [0, 1]), found
    assert found["collective"] == "all_reduce"
    assert "4" in " ".join(found["reasons"])
