"""What a training process pays for importing us: the standard library, nothing else."""

from __future__ import annotations

import json
import subprocess
import sys

HEAVY = {"torch", "numpy", "sqlalchemy", "pynvml", "msgspec", "requests", "click", "yaml", "prometheus_client"}
MODULES = [
    "beacons.beacon",
    "checkpoint_storage.checkpoint_files",
    "checkpoint_storage.state_copies",
    "checkpoint_storage.background_task",
    "interval",
    "beacons.job_owners",
    "sampler",
    "segment_health",
    "training_step",
    "beacons.beacon_page",
    "beacons.page_reader",
    "guard",
    "agreement",
    "exit_codes",
    "beacons.rank_environment",
    "framework",
    "process_exit",
    "beacons.mailbox",
    "step_measurements",
    "beacons.rank_placement",
    "beacons.step_ring",
    "termination_notices",
    "checkpoint",
]


def imported(statement: str) -> set[str]:
    code = f"import sys, json; {statement}; print(json.dumps([m.partition('.')[0] for m in sys.modules]))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout))


def test_the_trainer_part_brings_in_the_standard_library_only() -> None:
    bare = imported("pass")
    ours = imported("import " + ", ".join(f"healthd.trainer.{name}" for name in MODULES))

    assert {"healthd", "vocabulary"} <= ours
    assert not ours & HEAVY
    assert ours - bare - sys.stdlib_module_names == {"healthd", "vocabulary"}


def test_the_gate_and_the_rank_shim_are_as_light() -> None:
    ours = imported("import healthd.launcher.gate, healthd.launcher.rank")

    assert not ours & HEAVY
