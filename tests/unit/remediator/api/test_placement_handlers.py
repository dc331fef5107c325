"""Advice on where to place a job, over HTTP."""

from __future__ import annotations

from pathlib import Path

from tests.unit.remediator.api.in_process_controller import Inside
from tests.unit.remediator.api.test_access_control import finding, report


def test_free_nodes_are_taken_by_how_seldom_they_fail(tmp_path: Path) -> None:
    centre = Inside(tmp_path)
    try:
        assert centre.call("POST", "/v1/nodes/n1/report", "n1", report(findings=(finding("n1"),))).status == 200
        sick = centre.call("GET", "/v1/placement?nodes=1", "vic")
        assert (sick.status, sick.json()["chosen"]) == (200, ["n1"])
        assert sick.json()["per_s"] > 0
        refused = centre.call("GET", "/v1/placement?nodes=3", "vic")
        assert (refused.status, refused.json()["error"]) == (409, "1 node is free, 3 requested")
        assert centre.call("GET", "/v1/placement?nodes=none", "vic").status == 400
        assert centre.call("GET", "/v1/placement?nodes=1", "n1").status == 403
    finally:
        centre.close()
