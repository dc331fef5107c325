from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vocabulary.driver_log.injected_line import InjectedLine, mark_injected_line, parse_injected_line
from vocabulary.driver_log.xid_line import parse_live_record

node_names = st.from_regex(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,40}[A-Za-z0-9])?", fullmatch=True)


@given(node_names, st.text(st.characters(min_codepoint=32, max_codepoint=126)))
def test_what_is_marked_is_recognised(node: str, text: str) -> None:
    assert parse_injected_line(mark_injected_line(node, text)) == InjectedLine(node, text)


def test_a_marked_line_is_still_a_driver_message() -> None:
    marked = parse_injected_line(
        mark_injected_line("n1", "NVRM: Xid (PCI:0000:07:00): 79, GPU has fallen off the bus.")
    )
    event = parse_live_record(marked.text) if marked else None
    assert event is not None
    assert event.code == 79


@pytest.mark.parametrize("node", ["", "two words", "n1:", "-n", "n" * 300])
def test_a_bad_node_name_is_refused(node: str) -> None:
    with pytest.raises(ValueError, match="node name"):
        mark_injected_line(node, "x")


def test_a_line_break_would_end_the_record_early() -> None:
    with pytest.raises(ValueError, match="line break"):
        mark_injected_line("n1", "one\ntwo")


def test_an_unmarked_line_is_none() -> None:
    assert parse_injected_line("NVRM: Xid (PCI:0000:07:00): 79, GPU has fallen off the bus.") is None
