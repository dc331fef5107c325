"""What `nodes release` and `nodes unretire` say: a word of theirs lifts no hold in the scheduler, and they say so."""

from __future__ import annotations

import pytest

from healthctl.pages.node_page import format_node_state
from remediator.model.views import NodeView


@pytest.mark.parametrize(
    ("held_by", "said"),
    [
        ("", "probation"),
        ("us", "quarantined; still cordoned by automation; to lift: healthctl nodes uncordon"),
        ("operator", "quarantined; cordoned by an operator"),
        ("scheduler", "quarantined; cordoned by the scheduler"),
        ("?", "quarantined; the scheduler does not report whether the node is cordoned"),
    ],
)
def test_what_still_holds_a_node_is_said(held_by: str, said: str) -> None:
    state = "quarantined" if held_by else "probation"
    node = NodeView(node="n1", state=state, health="ok", since=0.0, why="", last_seen=None, held_by=held_by)
    assert format_node_state(node).startswith(said)


def test_words_of_a_server_cannot_steer_a_terminal() -> None:
    node = NodeView("n1", "odd\x1b[2J", "ok", 0.0, "", None, held_by="\u202ewho")
    assert format_node_state(node) == "odd\\x1b[2J; held by \\u202ewho"
