"""The ledger: what passed at this commit is not run again, and the table names each failure."""

from __future__ import annotations

from pathlib import Path

from tests.chaos import ledger
from tests.chaos.campaign import Result


def result(seed: int, commit: str = "c1", wrong: str = "") -> Result:
    verdicts = {"1 findings kept": [wrong] if wrong else [], "audit chain": []}
    return Result(
        seed=seed,
        commit=commit,
        plan="p",
        passed=not wrong,
        verdicts=verdicts,
        disasters=["kill", "kill"],
        seconds=30.0,
        cpu_s=8.0,
        swaps={"swapped": seed},
    )


def test_what_passed_at_this_commit_is_known_and_nothing_else(tmp_path: Path) -> None:
    file = tmp_path / "ledger.jsonl"
    assert ledger.read(file) == []
    written = [result(1), result(2, wrong="one is lost"), result(3, commit="c0")]
    for each in written:
        ledger.add(file, each)
    assert ledger.read(file) == written
    assert ledger.passed(written, "c1") == {1}
    assert ledger.passed([result(1, commit="c1+")], "c1+") == set(), "the tree differs from it, and may differ again"


def test_the_table_counts_a_seed_by_its_last_run_and_names_what_is_wrong() -> None:
    table = ledger.summary([result(1, wrong="old"), result(1), result(2, wrong="one is lost")])
    assert "2 seeds, 1 failed." in table
    assert "| kill | 4 |" in table
    assert "| swapped | 3 |" in table
    assert "| 2 | c1 | p | 1 findings kept | one is lost |" in table
    assert "old" not in table
    assert ledger.summary([]) == "No runs.\n"
