#!/usr/bin/env python3
"""Write Prometheus' targets of job healthd: every node that has reported to the controller and is not retired.

    HEALTHCTL_SERVER=https://... HEALTHCTL_TOKEN_FILE=viewer.token targets.py --cluster main FILE

The controller does not know the address of an agent's page. So the node's name is its address, with one port for all;
it does not know racks either. FILE is replaced whole, or left as it was when the controller does not answer or has no node:
an empty file would end every alert about nodes.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any


def targets_of(answer: dict[str, Any], cluster: str, port: int) -> list[dict[str, Any]]:
    """One entry a node, of `healthctl nodes list -o json`."""
    return [
        {"targets": [f"{node['node']}:{port}"], "labels": {"cluster": cluster, "node": node["node"]}}
        for node in answer["nodes"]
        if node["state"] != "retired"
    ]


def main() -> None:
    """See above. Ends with 1 and leaves FILE alone when there is nothing to write."""
    asked = argparse.ArgumentParser(description="Write Prometheus' targets of job healthd.")
    asked.add_argument("--cluster", required=True, help="label of every target")
    asked.add_argument("--port", type=int, default=15190, help="of every agent's page [15190]")
    asked.add_argument("--healthctl", default="healthctl", help="the program [healthctl]")
    asked.add_argument("file", type=Path, help="e.g. /etc/prometheus/targets/healthd.yaml")
    given = asked.parse_args()
    done = subprocess.run([given.healthctl, "nodes", "list", "-o", "json"], stdout=subprocess.PIPE, check=False)
    if done.returncode != 0:
        sys.exit(f"{given.file} is unchanged: the controller did not answer (healthctl ended with {done.returncode})")
    targets = targets_of(json.loads(done.stdout), given.cluster, given.port)
    if not targets:
        sys.exit(f"{given.file} is unchanged: the controller has no node")
    new = given.file.with_name(f".{given.file.name}.new")
    new.write_text(json.dumps(targets, indent=1) + "\n")
    new.replace(given.file)


if __name__ == "__main__":
    main()
