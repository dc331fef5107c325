"""`healthctl replay`: the centre's record once more: as it was, or under another policy. Asks nobody, changes nothing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from healthctl.exits import Exit, Failure, extra
from healthctl.policies import REMEDIATOR_CONFIG, configured, loaded, settings_of
from healthctl.screen import Screen, output_options

if TYPE_CHECKING:
    from healthctl.record.source import Record
    from remediator.decide.policy import Policy
    from remediator.decide.settings import Settings


@click.command(
    epilog="Examples: healthctl replay; healthctl replay july.jsonl --playbook new.yaml. "
    "Exit codes: 0 the same, 1 something differs, 2 wrong usage, 3 there is nothing to replay."
)
@click.argument("record", required=False, metavar="[FILE.jsonl|URL]", type=click.Path(allow_dash=True, readable=False))
@click.option("--playbook", type=click.Path(dir_okay=False, path_type=Path),
              help="What would be decided otherwise under this policy.")  # fmt: skip
@click.option("--config", type=click.Path(dir_okay=False, path_type=Path), default=REMEDIATOR_CONFIG, show_default=True,
              help="The remediator's: its policy and budget decide, its database holds the record if none is named.")  # fmt: skip
@output_options
def replay(screen: Screen, record: str | None, playbook: Path | None, config: Path) -> None:
    """Decide everything in the record once more, and say what comes out otherwise.

    The record is a file of 'remediator export', a database URL, or the database of --config. Without --playbook each
    decision is held against the recorded one: the same record and policy give the same decisions. With it, what nodes
    reported and people did is taken from the record, and what either policy would have caused is imagined to succeed.
    """
    with extra("remediator"):
        from healthctl.record.source import opened
    own = configured(config, needed=record is None)
    settings = settings_of(own, loaded(own.playbook_paths))
    with opened(record or own.database) as found:
        if next(found.inputs(), None) is None:
            raise Failure(f"{found.name}: holds no input, so there is nothing to replay; has a remediator run with it?")
        if playbook is None:
            _as_it_was(screen, found, settings)
        else:
            _under(screen, found, settings, loaded([playbook]))


def _as_it_was(screen: Screen, record: Record, settings: Settings) -> None:
    from healthctl.record.compare import Reigns, compared, replayed_page
    from remediator.replay import replayed

    reigns = Reigns()
    again = replayed(reigns.watched(record.inputs()), settings)
    answer = compared(record.decisions(), again, settings.policy.digest, reigns, begins_late=record.begins_late())
    screen.code = Exit.PROBLEM if answer.deviations else Exit.OK
    screen.show(answer, lambda: replayed_page(answer))


def _under(screen: Screen, record: Record, settings: Settings, policy: Policy) -> None:
    from healthctl.record.compare import tried_page
    from remediator.replay import differences, what_if

    a, b = (what_if(record.inputs(), each) for each in (settings, msgspec.structs.replace(settings, policy=policy)))
    different = differences(a, b)
    screen.code = Exit.PROBLEM if different else Exit.OK
    screen.show({"a": a, "b": b, "differences": different}, lambda: tried_page(a, b, different))
