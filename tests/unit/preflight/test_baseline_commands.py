"""`healthctl preflight baseline`: whom it learns from, whom it takes out, what it says of that."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import click.testing
import msgspec
import pytest

from healthctl.main import cli
from preflight.results import Document, Verdict
from tests.unit.preflight.expect.runs import document, rate

Ask = Callable[..., click.testing.Result]


@pytest.fixture
def ask(tmp_path: Path) -> Ask:
    """`ask("learn", documents, options...)`, with a baseline of its own."""

    def invoke(command: str, documents: Sequence[Document] = (), *words: str) -> click.testing.Result:
        files = []
        for each in documents:
            path = tmp_path / f"{each.node}-{each.started_at:.0f}.json"
            path.write_bytes(msgspec.json.encode(each))
            files.append(str(path))
        at = ("--baseline", str(tmp_path / "kept"))
        return click.testing.CliRunner().invoke(cli, ["preflight", "baseline", command, *files, *words, *at])

    return invoke


def nodes(ask: Ask) -> set[int]:
    return {row["nodes"] for row in json.loads(ask("show", (), "-o", "json").stdout)}


GOOD = [document(f"n{i}", [100.0] * 8) for i in range(4)]


def test_who_failed_since_is_taken_out_and_teaches_no_more(ask: Ask, tmp_path: Path) -> None:
    monday, tuesday = document("bad", [50.0] * 8, 1e9), document("bad", [50.0] * 8, 1.1e9, verdict=Verdict.FAIL)
    both = ask("learn", [monday, tuesday])
    assert both.exit_code == 3
    assert "bad-1000000000.json was not learned: bad: it failed in a later run" in both.stderr
    assert ask("forget", (), "bad").exit_code == 0
    assert ask("learn", [*GOOD, monday]).exit_code == 0
    assert nodes(ask) == {5}
    found = ask("learn", [tuesday])
    assert found.exit_code == 3
    assert "bad was removed" in found.stderr
    assert "is now without the failed nodes" in found.stderr
    assert nodes(ask) == {4}
    again = ask("learn", [monday])
    assert again.exit_code == 3
    assert "it failed in a later run" in again.stderr
    assert "is unchanged" in again.stderr


def test_a_node_is_forgotten_by_its_name(ask: Ask) -> None:
    ask("learn", GOOD)
    done = ask("forget", (), "n1", "nobody")
    assert done.exit_code == 3
    assert "forgot n1; 3 nodes remain" in done.stdout
    assert "no data of node nobody" in done.stderr
    assert ask("forget", (), "n2").exit_code == 0
    assert nodes(ask) == {2}
    assert ask("forget", (), "n2").exit_code == 3


def test_only_what_is_given_is_accepted_and_each_level_that_moved_is_said(ask: Ask) -> None:
    other = rate(1.0, setting="fp8 8192")
    ask("learn", [*GOOD, *(document(f"m{i}", [100.0] * 8, figure=other) for i in range(4))])
    slow = [document(f"n{i}", [80.0] * 8, 2.0) for i in range(4)]
    ask("learn", [*slow, *(document(f"m{i}", [80.0] * 8, 2.0, figure=other) for i in range(4))])
    done = ask("learn", slow, "--accept")
    assert done.exit_code == 0
    said = [line for line in done.stdout.splitlines() if "accepted" in line]
    assert said == ["accepted: NVIDIA H200: matmul_repeat product_rate (bf16 8192): from 98 to 80 TFLOP/s"]
    assert "held back: NVIDIA H200: matmul_repeat product_rate (fp8 8192)" in done.stdout


def test_a_document_from_the_future_is_named(ask: Ask, tmp_path: Path) -> None:
    done = ask("learn", [document("n1", [1.0], 9e9)])
    assert done.exit_code == 3
    assert "ahead of this clock" in done.stderr
    assert not (tmp_path / "kept").exists()


def test_a_node_under_a_second_name_is_told_of(ask: Ask) -> None:
    ask("learn", GOOD)
    done = ask("learn", [document("n1.cluster", [100.0] * 8, 2.0, machine="n1")])
    assert done.exit_code == 0
    assert "n1 was removed: it failed since, or has another name now" in done.stderr
    assert nodes(ask) == {4}
