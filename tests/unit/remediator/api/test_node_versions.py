"""What nodes say is installed on them: seen by people, and a cause that they may share."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from remediator.model.credentials import Role
from remediator.model.pipeline_inputs import InventoryChanged
from remediator.model.plan_steps import Mode
from tests.unit.remediator.api.in_process_controller import Inside
from tests.unit.remediator.api.test_access_control import finding, report
from vocabulary.finding import Severity, finding_id
from vocabulary.messages.wire import VERSION_CHARS_MAX, VERSIONS_MAX, Versions


@pytest.fixture
def centre(tmp_path: Path) -> Iterator[Inside]:
    centre = Inside(tmp_path, Mode.ACT)
    for number in range(1, 6):
        centre.token[f"n{number}"] = centre.tokens.issue(Role.NODE, f"n{number}", time.time())
    yield centre
    centre.close()


def told(centre: Inside, node: str, seq: int, body: bytes) -> None:
    assert centre.call("POST", f"/v1/nodes/{node}/report", node, body).status == 200


def test_nodes_that_fail_under_one_driver_share_it(centre: Inside) -> None:
    """Nobody wrote a topology file."""
    now = time.time()
    for number in range(1, 6):
        node, driver = f"n{number}", "555.1" if number < 4 else "550.9"
        told(centre, node, 1, report(node, versions=Versions(driver=driver)))
    for number in range(1, 4):
        node = f"n{number}"
        lost = replace(
            finding(node),
            id=finding_id(node, "xid", "79", finding(node).component, "o"),
            check="xid",
            code="79",
            severity=Severity.FATAL,
            first_seen=now,
            last_seen=now,
        )
        told(centre, node, 2, report(node, seq=2, findings=(lost,), versions=Versions(driver="555.1")))
    found = {i["node"]: i for i in centre.call("GET", "/v1/incidents", "ann").json()["incidents"]}
    assert "driver:555.1" in found


def test_what_is_installed_is_seen_and_only_news_is_written(centre: Inside) -> None:
    says = Versions(healthd="0.1", driver="555.1", image="gpu 7", vbios=("96.00",))
    for seq in (1, 2, 3):
        told(centre, "n1", seq, report(seq=seq, versions=says))
    told(centre, "n1", 4, report(seq=4, versions=replace(says, kernel="6.9")))  # decisions do not ask for that
    told(centre, "n1", 5, report(seq=5, versions=replace(says, driver="560.2")))
    shown = centre.call("GET", "/v1/nodes", "vic").json()["nodes"][0]["versions"]
    assert shown == {"healthd": "0.1", "driver": "560.2", "image": "gpu 7", "vbios": ["96.00"]}
    deadline = time.monotonic() + 60
    while len(news := [i for i in centre.journal.inputs() if isinstance(i, InventoryChanged)]) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert [(item.driver, item.image) for item in news] == [("555.1", "gpu 7"), ("560.2", "gpu 7")]


def test_what_a_board_says_of_itself_is_shown_in_printable_characters(centre: Inside) -> None:
    """healthd does the same before it tells; a text that is longer than a report may hold is refused (test_bounds)."""
    odd = Versions(driver="\x01" * 200, image="x" * 255, bios="\x1b[2J", vbios=tuple(str(n) for n in range(99)))
    told(centre, "n1", 1, report(versions=odd))
    shown = centre.call("GET", "/v1/nodes/n1", "vic").json()["versions"]
    assert shown["driver"] == "?" * VERSION_CHARS_MAX
    assert len(shown["image"]) == VERSION_CHARS_MAX
    assert shown["bios"] == "?[2J"
    assert len(shown["vbios"]) == VERSIONS_MAX
