from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from remediator.simulation.run_summary import estimate_mean

Run = Callable[..., Result]
SMALL = ("simulate", "--nodes", "64", "--days", "2")


def test_programs_get_every_run_and_the_parameters(healthctl: Run, tmp_path: Path) -> None:
    config = tmp_path / "fleet.yaml"
    config.write_text("failures_per_1000_node_days: 100\nnodes: 9999\nbudget: {isolated_max: 5}\n")
    done = healthctl(*SMALL, "--policy", "none,checkpoint-eject", "--runs", "2", "--config", str(config), "-o", "json")
    assert done.exit_code == 0
    found = json.loads(done.stdout)
    assert found["parameters"]["failures_per_1000_node_days"] == 100
    assert (found["parameters"]["nodes"], found["parameters"]["budget"]["isolated_max"]) == (64, 5)
    assert [(run["policy"], run["seed"]) for run in found["runs"]] == [
        ("none", 1), ("checkpoint-eject", 1), ("none", 2), ("checkpoint-eject", 2),
    ]  # fmt: skip
    values = [run["effective_time"] for run in found["runs"][::2]]
    assert found["policies"][0]["effective_time"]["mean"] == pytest.approx(sum(values) / 2)
    assert "seed 2: none" in done.stderr


def test_people_get_a_table_of_all_policies(healthctl: Run) -> None:
    done = healthctl(*SMALL)
    assert done.exit_code == 0
    lines = done.stdout.splitlines()
    assert lines[0].startswith("POLICY")
    assert [line.split()[0] for line in lines[1:8]] == [
        "none", "reboot-return", "eject", "checkpoint-eject", "lemons", "retest", "oracle",
    ]  # fmt: skip
    assert lines[-1] == "64 nodes, 2 days, one seed"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("lemmon_share: 0.1", "lemmon_share"),
        ("lemon_share: much", "lemon_share"),
        ("- 1", "not a mapping"),
        ("a: [", "fleet.yaml"),
        ("job_nodes: [100]", "take 100 nodes, but the fleet has 64"),
    ],
)
def test_a_wrong_file_is_told_in_one_line(healthctl: Run, tmp_path: Path, text: str, said: str) -> None:
    config = tmp_path / "fleet.yaml"
    config.write_text(text)
    done = healthctl(*SMALL, "--config", str(config))
    assert done.exit_code == 2
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_wrong_policy_a_missing_file_and_a_missing_playbook_are_told(healthctl: Run, tmp_path: Path) -> None:
    for more, said in (
        (("--policy", "hope"), "no policy 'hope'; known: none,"),
        (("--config", str(tmp_path / "none.yaml")), "No such file"),
        (("--playbook", str(tmp_path / "none.yaml")), "none.yaml"),
    ):
        done = healthctl(*SMALL, *more)
        assert done.exit_code == 2
        assert said in done.stderr


def test_an_interval_needs_two_values() -> None:
    assert estimate_mean([1.0]).half_width is None
    half = estimate_mean([1.0, 2.0, 3.0]).half_width
    assert half == pytest.approx(4.303 / 3**0.5)
