"""What stands on top of every page: what blocks automation, and what people set by hand; nothing that is not so."""

from __future__ import annotations

from pathlib import Path

import pytest

from remediator.model.override_records import MODE, AlertSilence, ModeOverride
from remediator.model.plan_steps import Mode
from remediator.model.scheduler_hold import HoldOwner, NodeHold
from remediator.web.automation_blockers import ManualSettings, fold_blockers, other_blockers, summarize_manual_settings
from tests.unit.remediator.api.in_process_controller import Inside
from tests.unit.remediator.web.node_reports import report
from tests.unit.remediator.web.simulated_browser import Browser
from tests.unit.remediator.web.test_work_pages import text_of, until
from vocabulary.health import Health


def test_cordons_and_silences_of_people_are_counted_and_no_others() -> None:
    holds = [
        NodeHold("ours", schedulable=False, owner=HoldOwner.US),
        NodeHold("theirs", schedulable=False, owner=HoldOwner.OPERATOR),
        NodeHold("unasked", schedulable=None, owner=HoldOwner.OPERATOR),
        NodeHold("free", schedulable=True),
    ]
    standing = {
        MODE: ModeOverride(Mode.ACT, "ann", 1.0),
        "now": AlertSilence("now", "*", "*", 1.0, 20.0, "ann", "why"),
        "over": AlertSilence("over", "*", "*", 1.0, 9.0, "ann", "why"),
    }
    assert summarize_manual_settings(holds, standing, 10.0) == ManualSettings(cordons=1, silences=1)


def test_a_sentence_about_one_incident_is_told_from_one_about_all() -> None:
    blocks = fold_blockers(
        ["mode is observe", *(f"inc-{n} on n{n} waits for x" for n in range(4)), "inc-9 on n9 is held back"]
    )
    assert [(b.text, b.single) for b in blocks] == [
        ("mode is observe", False),
        ("4 incidents wait for x", True),
        ("inc-9 on n9 is held back", True),
    ]


def test_what_the_headline_says_is_not_said_again() -> None:
    said = (
        "mode is observe (set by ann): decisions are shown",
        "the breaker is open since 12:00: much",
        "mode is observed",
    )
    assert [block.text for block in other_blockers(fold_blockers((*said, "inc-9 on n9 is held back")), "observe")] == [
        "mode is observed",
        "inc-9 on n9 is held back",
    ]


def test_a_new_centre_without_nodes_is_not_blocked(tmp_path: Path) -> None:
    centre = Inside(tmp_path, Mode.ACT)
    try:
        text = text_of(Browser(centre).log_in("vic"), "/")
        assert "Nothing blocks automation" in text
        assert "No node has reported yet" in text
    finally:
        centre.close()


@pytest.mark.parametrize("path", ["/", "/incidents"])
def test_a_node_of_unknown_health_that_reports_is_not_called_silent(tmp_path: Path, path: str) -> None:
    centre = Inside(tmp_path, Mode.ACT)
    try:
        report(centre, "n1", health=Health.UNKNOWN)
        until(lambda: "n1" in centre.service.engine.snapshot.nodes, "the node is known")
        text = text_of(Browser(centre).log_in("vic"), path)
        assert "1 node of unknown health" in text
        assert "silent" not in text
        until_s = centre.service.clock.wall() + 3600
        said = centre.call("POST", "/v1/alerts/silences", "ann", {"until": until_s, "text": "the rack is moved"})
        assert said.status == 200, said.body
        text = text_of(Browser(centre).log_in("vic"), path)
        assert "1 silence: people are not told" in text
    finally:
        centre.close()
