"""`healthctl replay`: replays recorded history under the same or another policy. Sends no request, changes nothing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from healthctl.cli.screen import Screen, output_options
from healthctl.exit_codes import Exit, Failure, require_extra
from healthctl.policy_replay.policy_files import (
    REMEDIATOR_CONFIG,
    build_settings,
    load_policy_files,
    load_remediator_config,
)

if TYPE_CHECKING:
    from healthctl.policy_replay.recorded_history import RecordedHistory
    from remediator.decisions.decision_settings import DecisionSettings
    from remediator.decisions.policy import Policy


@click.command(
    epilog="Examples: healthctl replay; healthctl replay july.jsonl --playbook new.yaml. "
    "Exit codes: 0 the same, 1 something differs, 2 wrong usage, 3 there is nothing to replay."
)
@click.argument("record", required=False, metavar="[FILE.jsonl|URL]", type=click.Path(allow_dash=True, readable=False))
@click.option("--playbook", type=click.Path(dir_okay=False, path_type=Path),
              help="Compare with the decisions under this policy.")  # fmt: skip
@click.option("--config", type=click.Path(dir_okay=False, path_type=Path), default=REMEDIATOR_CONFIG, show_default=True,
              help="Configuration file of the controller: provides policy, budget and, by default, the record.")  # fmt: skip
@output_options
def replay(screen: Screen, record: str | None, playbook: Path | None, config: Path) -> None:
    """Replay recorded history and show which decisions differ.

    The record is a file from 'remediator export', a database URL, or the database of --config. Without --playbook, each
    decision is compared with the recorded one: the same record and policy give the same decisions. With --playbook, node
    reports and operator input come from the record; actions that a policy would have caused are assumed to succeed.
    """
    with require_extra("remediator"):
        from healthctl.policy_replay.recorded_history import open_recorded_history
    own = load_remediator_config(config, needed=record is None)
    settings = build_settings(own, load_policy_files(own.playbook_paths))
    with open_recorded_history(record or own.database) as found:
        if next(found.inputs(), None) is None:
            raise Failure(f"{found.name}: contains no input to replay; check that a controller has used it")
        if playbook is None:
            _replay_as_recorded(screen, found, settings)
        else:
            _replay_under_policy(screen, found, settings, load_policy_files([playbook]))


def _replay_as_recorded(screen: Screen, record: RecordedHistory, settings: DecisionSettings) -> None:
    from healthctl.policy_replay.decision_comparison import PolicyTimeline, compare_decisions, render_replay_comparison
    from remediator.replay.journal_replay import replay_decisions

    reigns = PolicyTimeline()
    again = replay_decisions(reigns.watched(record.inputs()), settings)
    answer = compare_decisions(
        record.decisions(), again, settings.policy.digest, reigns, begins_late=record.begins_late()
    )
    screen.code = Exit.PROBLEM if answer.deviations else Exit.OK
    screen.show(answer, lambda: render_replay_comparison(answer))


def _replay_under_policy(screen: Screen, record: RecordedHistory, settings: DecisionSettings, policy: Policy) -> None:
    from healthctl.policy_replay.decision_comparison import render_policy_comparison
    from remediator.replay.journal_replay import compare_policies, try_policy

    a, b = (try_policy(record.inputs(), each) for each in (settings, msgspec.structs.replace(settings, policy=policy)))
    different = compare_policies(a, b)
    screen.code = Exit.PROBLEM if different else Exit.OK
    screen.show({"a": a, "b": b, "differences": different}, lambda: render_policy_comparison(a, b, different))
