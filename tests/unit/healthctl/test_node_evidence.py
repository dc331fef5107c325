"""What `healthctl node evidence` shows and writes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from healthctl.exit_codes import Failure
from healthctl.node_check.evidence_client import escape_evidence_json, write_private_file


@given(st.text())
def test_a_terminal_sees_nothing_it_could_act_upon(text: str) -> None:
    shown = escape_evidence_json(json.dumps({"text": text}, ensure_ascii=False).encode(errors="replace"))
    assert shown.isascii()
    assert shown.isprintable()
    assert json.loads(shown)["text"] == text.encode(errors="replace").decode()


def test_what_is_no_json_is_named_as_such() -> None:
    with pytest.raises(Failure, match="is not JSON"):
        escape_evidence_json(b"<html>")


def test_a_file_is_for_its_owner_alone_also_where_one_was_before(tmp_path: Path) -> None:
    out = tmp_path / "bundle.json"
    out.write_text("before")
    out.chmod(0o644)
    write_private_file(out, b"{}")
    assert (out.read_bytes(), out.stat().st_mode & 0o777) == (b"{}", 0o600)
