"""The playbook that the document on watchdogs shows is one."""

from __future__ import annotations

import re
from pathlib import Path

from healthctl.finding_kinds import known_kinds
from healthd.checks.training_checks import CODES, SPIKES
from remediator.decisions.trainer_orders import NAMES_A_STEP
from remediator.playbook.playbook_loader import load_policy
from remediator.playbook.policy_linter import lint_policy
from vocabulary.fault_catalogue.catalogue_file import load_catalogue

DOCUMENT = (Path(__file__).parents[3] / "docs" / "reference" / "watchdogs.md").read_text()


def test_the_playbook_in_the_document_has_no_mistake(tmp_path: Path) -> None:
    blocks = re.findall(r"```yaml\n(playbook:.*?)```", DOCUMENT, re.DOTALL)
    assert len(blocks) == 1
    path = tmp_path / "site.yaml"
    path.write_text(blocks[0])
    assert [str(problem) for problem in lint_policy(load_policy([path]), known_kinds(load_catalogue()))] == []


def test_the_findings_that_a_job_may_go_back_from_are_those_that_name_a_step() -> None:
    assert (
        set(NAMES_A_STEP)
        == {f"training/{code}" for code in ("loss_not_finite", *SPIKES)}
        <= {f"training/{code}" for code in CODES}
    )


def test_every_watchdog_is_documented() -> None:
    assert [code for code in CODES if f"`training/{code}`" not in DOCUMENT] == []
