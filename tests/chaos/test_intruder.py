"""An intruder's report must be refused for who sent it, so it has to be one that can be read."""

from __future__ import annotations

import json

from tests.chaos.checker import credentials_held
from tests.chaos.world.intruder import MARK, false_report
from vocabulary.messages.wire import Report, decode_message


def test_the_false_report_is_a_good_one_and_marked() -> None:
    report = decode_message(json.dumps(false_report("n2")).encode(), Report)
    assert report.node == "n2"
    assert report.changes[0].finding.id == MARK == credentials_held.MARK
