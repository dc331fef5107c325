"""Which playbooks a term begins with, and what SIGHUP does to one who leads and to one who stands by."""

from __future__ import annotations

from pathlib import Path

import pytest

from remediator.api.handler_context import LongPollWakeups
from remediator.config import Config, SchedulerConfig
from remediator.engine.policy_reload import PolicyReloader
from remediator.model.pipeline_inputs import PolicyChanged
from remediator.playbook.playbook_errors import PolicyError
from remediator.serving.leader_term import LeaderTerm
from remediator.store.journal import Journal

PLAYBOOK = """\
playbook: 1
rules:
  - name: {name}
    why: x
    match: {{findings: ["*/*"]}}
    steps: [alert: {name}]
"""


class Site:
    """A playbook file that changes, and a process that may come to lead."""

    def __init__(self, place: Path) -> None:
        self._file = place / "site.yaml"
        self.says("first")
        self.config = Config(
            database=f"sqlite:///{place}/r.db",
            playbooks=(str(self._file),),
            scheduler=SchedulerConfig(state_file=f"{place}/holds.json"),
        )

    def says(self, name: str) -> None:
        self._file.write_text(PLAYBOOK.format(name=name))

    def is_broken(self) -> None:
        self._file.write_text("playbook: 1\nrules: 7\n")


def rules_of_a_term(site: Site, reload: PolicyReloader) -> tuple[list[str], list[str]]:
    """The names of the rules that decided, in their order, and at the end."""
    journal = Journal(site.config.database)
    term = LeaderTerm(site.config, reload, journal, LongPollWakeups(), lambda _why: None)
    term.start()
    term.stop()
    changes = [item.digest for item in journal.inputs() if isinstance(item, PolicyChanged)]
    names = list(term.service.engine.settings.policy.by_name)
    journal.close()
    return changes, names


def test_a_term_begins_with_the_playbooks_as_they_are_then(tmp_path: Path) -> None:
    site = Site(tmp_path)
    reload = PolicyReloader(site.config)  # it begins to stand by
    site.says("second")
    changes, names = rules_of_a_term(site, reload)
    assert names == ["second"]
    assert len(changes) == 1, "the old one never decided anything"


def test_what_was_good_at_a_sighup_while_standing_by_counts_when_the_files_are_broken_later(tmp_path: Path) -> None:
    site = Site(tmp_path)
    reload = PolicyReloader(site.config)
    site.says("second")
    reload.run()
    site.is_broken()
    _, names = rules_of_a_term(site, reload)
    assert names == ["second"]
    assert "site.yaml" in reload.problem, "and people see that the files are not in force"


def test_a_sighup_between_the_start_and_the_lead_is_not_lost(tmp_path: Path) -> None:
    site = Site(tmp_path)
    reload = PolicyReloader(site.config)
    journal = Journal(site.config.database)
    term = LeaderTerm(site.config, reload, journal, LongPollWakeups(), lambda _why: None)
    site.says("third")
    reload.run()
    term.start()
    term.stop()
    assert list(term.service.engine.settings.policy.by_name) == ["third"]
    journal.close()


def test_nothing_begins_with_playbooks_that_cannot_be_used(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.is_broken()
    with pytest.raises(PolicyError, match=r"site\.yaml"):
        PolicyReloader(site.config)
