"""Parts of what is asked most: the audit log since a time, every open incident."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, insert

from remediator.store import table_schema
from remediator.store.history_queries import HistoryQueries
from tests.unit.remediator.api.in_process_controller import Inside
from tests.unit.remediator.api.test_access_control import finding, report


def seqs(centre: Inside, query: str) -> list[int]:
    return [event["seq"] for event in centre.call("GET", f"/v1/events{query}", "ann").json()["events"]]


def test_the_lines_since_a_time(tmp_path: Path) -> None:
    centre = Inside(tmp_path)
    try:
        assert centre.call("POST", "/v1/nodes/n1/report", "n1", report(findings=(finding("n1"),))).status == 200
        listed: list[dict[str, Any]] = centre.call("GET", "/v1/events", "ann").json()["events"]
        everything = [event["seq"] for event in listed]
        assert len(everything) > 2
        middle = listed[len(listed) // 2]["at"]
        assert seqs(centre, f"?since={middle}") == [event["seq"] for event in listed if event["at"] >= middle]
        assert seqs(centre, f"?since={listed[-1]['at'] + 1}") == []
        assert centre.call("GET", "/v1/events?since=soon", "ann").status == 400
    finally:
        centre.close()


def test_every_open_incident_and_no_closed_one(tmp_path: Path) -> None:
    centre = Inside(tmp_path)
    try:
        assert centre.call("POST", "/v1/nodes/n1/report", "n1", report(findings=(finding("n1"),))).status == 200
        newest = centre.call("GET", "/v1/incidents", "ann").json()["incidents"]
        assert centre.call("GET", "/v1/incidents?state=open", "ann").json()["incidents"] == newest != []
        assert (
            centre.call("POST", f"/v1/incidents/{newest[0]['id']}/resolve", "ann", {"text": "it was the test"}).status
            == 204
        )
        assert centre.call("GET", "/v1/incidents?state=open", "ann").json()["incidents"] == []
        assert centre.call("GET", "/v1/incidents?state=all", "ann").json()["incidents"] != []
        assert centre.call("GET", "/v1/incidents?state=closed", "ann").status == 400
    finally:
        centre.close()


@pytest.mark.parametrize("kept", [range(1, 30), range(7, 8), range(5, 30, 3), range(0)])
def test_a_time_is_found_in_any_log_also_one_with_gaps(kept: range) -> None:
    engine = create_engine("sqlite://")
    table_schema.metadata.create_all(engine)
    rows = [
        {
            "seq": n,
            "epoch": 1,
            "at": float(n),
            "node": "",
            "incident": "",
            "body": b"{}",
            "kind": "k",
            "actor": "a",
            "hash": "",
        }
        for n in kept
    ]
    if rows:
        with engine.begin() as db:
            db.execute(insert(table_schema.audit), rows)
    for at in range(32):
        found = HistoryQueries(engine).last_event_before(at)
        assert [n for n in kept if n > found] == [n for n in kept if n >= at]
    engine.dispose()
