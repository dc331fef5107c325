"""The configuration files of a run's daemons, as JSON, which is YAML."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.chaos.world.environment import BEACONS, CENTRE_PORT, Surroundings


def configure_centre(here: Surroundings, number: int, database: str, scheduler: dict[str, object], hook: str) -> Path:
    """One of the centres; returns its file."""
    world = here.plan.world
    config = {
        "listen": f"127.0.0.1:{CENTRE_PORT + number}",
        "database": database,
        "mode": "act",
        "budget": {
            "isolated_max": world.isolated_max,
            "isolations_per_hour_max": world.per_hour,
            "isolated_fraction_per_hour_max": 1.0,
            "isolation_gap_s": world.gap_s,
        },
        "scheduler": {**scheduler, "poll_s": 1.0, "poll_busy_s": 0.2},
        "alerts": {"webhooks": [hook], "timeout_s": 3},
    }
    return _write(here.place / f"centre-{number}.yaml", config)


def configure_node(here: Surroundings, node: str) -> Path:
    """A node's daemon, whose preflight and reset are `deed.py`; returns its file."""
    place = here.node(node)
    verdict = "fail" if node in here.plan.world.failing_preflight else "pass"
    script = Path(__file__).with_name("deed.py")

    def deed(what: str, said: str, detail: str) -> list[str]:
        return [sys.executable, "-S", "-E", str(script), str(here.journal.place), node, what, said, detail]

    config = {
        "node": node,
        "state_dir": str(place / "state"),
        "run_dir": str(place / "run"),
        "beacon_dir": str(BEACONS / node),
        "listen": "127.0.0.1:0",
        "kernel_log": {"path": str(place / "kern.log"), "source": "file", "trust_file": True},
        "nvml": {"library": str(here.library), "interval_s": 1},
        "remediator": {"url": here.url, "token_file": str(here.token(node)), "report_interval_s": 1},
        "orders": {
            "preflight_command": deed("preflight", verdict, "{level}"),
            "reset_gpu_command": deed("reset_gpu", "done", "{gpu}"),
            "reboot_command": ["false"],
        },
    }
    return _write(place / "healthd.yaml", config)


def _write(file: Path, config: dict[str, object]) -> Path:
    file.write_text(json.dumps(config, indent=1))
    return file
