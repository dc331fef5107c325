"""`healthctl mode`: shows and sets the automation mode."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, TypeAlias

import click
import msgspec

from healthctl.api_client.remediator_client import RemediatorClient, server_options
from healthctl.cli.approval import AWAITING
from healthctl.cli.consent import Consent, consent_options
from healthctl.cli.screen import Screen, output_options
from healthctl.rendering.blocks import Block, Cell, Column, Facts, Line, Rows, Tone, format_timestamp
from remediator.decisions.mode_stop import StopEffect
from remediator.model.plan_steps import NON_DISRUPTIVE
from remediator.model.views import ActionView, IncidentList, IncidentView, StatusView
from remediator.model.views_actions import ActionList, AwaitingList, ModeRequest
from vocabulary.text.plurals import format_count

# From the least to the most automation.
MODES = {
    "observe": "decisions are recorded; no actions, notifications or approvals",
    "recommend": "operators are notified of recommended actions; nothing is executed",
    "approve": "each plan waits for approval",
    "act": "plans are executed, within the budget",
}
OPEN_SHOWN = 20
STOPS = ("observe", "recommend")
Wanted: TypeAlias = Literal["observe", "recommend", "approve", "act", "config"]


class ModeOutput(msgspec.Struct, frozen=True):
    """JSON output: the mode, who set it (empty: the configuration), as of when (UTC s), and the actions it does not stop."""

    mode: str
    mode_by: str
    at: float
    not_stopped: tuple[ActionView, ...] = ()


@click.command(
    epilog="Examples: healthctl mode; healthctl mode observe 'the network is being worked on'; healthctl mode config. "
    "Lowering the mode takes effect at once; raising it asks for confirmation."
)
@click.argument("mode", required=False, type=click.Choice([*MODES, "config"]))
@click.argument("why", required=False, default="")
@consent_options
@output_options
@server_options
def mode(server: RemediatorClient, screen: Screen, consent: Consent, mode: Wanted | None, why: str) -> None:
    """Show the automation mode, or set it to MODE with the reason WHY.

    \b
    observe    show decisions, do nothing, notify no one
    recommend  notify people of the recommended actions, do nothing
    approve    ask for approval of each plan, then act
    act        act within the budget
    config     use the mode from the configuration

    The mode survives restarts, failovers and configuration changes until somebody sets 'config'.
    """  # noqa: D301 - click wants that very character
    status = server.get("/v1/status", StatusView)
    if mode is not None:
        asks = _raises_mode(status.mode, mode) or consent.is_dry_run
        if asks and not consent.confirm(
            f"mode {mode}, after {status.mode}", lambda: list(_preview_mode_change(server, status, mode))
        ):
            return
        server.post("/v1/mode", ModeRequest("" if mode == "config" else mode, why))
        status = server.get("/v1/status", StatusView)
    going_on: list[ActionView] = []
    if status.mode in STOPS and status.mode_by:  # the configured mode stops no running plan
        planned = server.get("/v1/actions", ActionList, state="open").actions
        going_on = [a for a in planned if a.verb not in NON_DISRUPTIVE and a.on_stop != StopEffect.WAITS.value]
    shown = ModeOutput(status.mode, status.mode_by, status.at, tuple(going_on))
    screen.show(shown, lambda: [_mode_facts(status), *_render_running_actions(going_on)])


def _render_running_actions(actions: Sequence[ActionView]) -> Iterator[Block]:
    if actions:
        yield Line("not stopped by the mode:")
        yield Rows(actions[:OPEN_SHOWN], _GOING_ON)
    if len(actions) > OPEN_SHOWN:
        yield Line(f"and {len(actions) - OPEN_SHOWN} more: healthctl actions list")


def _raises_mode(now: str, wanted: str) -> bool:
    """Whether automation may do more in the new mode. True for `config`, since the configured mode is unknown here."""
    order = list(MODES)
    if wanted == "config":
        return now != order[-1]
    return now not in order or order.index(wanted) > order.index(now)


def _mode_facts(status: StatusView) -> Block:
    tone = Tone.GOOD if status.mode == "act" else Tone.WARN
    return Facts(
        [
            ("mode", Cell(status.mode, tone)),
            ("that is", MODES.get(status.mode, "")),
            ("set by", status.mode_by or "the configuration"),
            ("as of", format_timestamp(status.at)),
            ("leader", status.leader),
        ]
    )


def _preview_mode_change(server: RemediatorClient, status: StatusView, wanted: str) -> Iterator[Block]:
    """What may start in the new mode: open incidents, pending approvals, running actions, the remaining budget."""
    incidents = [i for i in server.get("/v1/incidents", IncidentList).incidents if i.state != "closed"]
    waiting = server.get("/v1/awaiting", AwaitingList).awaiting
    actions = server.get("/v1/actions", ActionList, state="open").actions
    meaning = MODES.get(wanted, "the mode from the configuration; unknown to healthctl, so assume 'act'")
    left = max(0, status.isolated_max - status.isolated)
    yield Facts(
        [
            ("mode", f"{wanted}: {meaning}"),
            ("now", status.mode),
            ("may be decided again", format_count(len(incidents), "open incident")),
            (
                "budget",
                f"{status.isolated} of at most {format_count(status.isolated_max, 'node')} isolated, so {left} more may be isolated",
            ),
        ]
    )
    yield Rows(incidents[:OPEN_SHOWN], _INCIDENTS)
    if len(incidents) > OPEN_SHOWN:
        yield Line(f"and {len(incidents) - OPEN_SHOWN} more: healthctl incidents list")
    yield Rows(waiting, AWAITING)
    yield Rows(actions, _ACTIONS)


_INCIDENTS: tuple[Column[IncidentView], ...] = (
    Column("INCIDENT", lambda i: i.id),
    Column("NODE", lambda i: i.node),
    Column("STATE", lambda i: i.state),
    Column("OPENED", lambda i: format_timestamp(i.opened_at)),
    Column("WHAT", lambda i: i.title, prose=True),
)
_GOING_ON: tuple[Column[ActionView], ...] = (
    Column("ACTION", lambda a: a.verb),
    Column("NODE", lambda a: a.node),
    Column("ON A STOP", lambda a: a.on_stop, prose=True),
)
_ACTIONS: tuple[Column[ActionView], ...] = (
    Column("UNDER WAY", lambda a: a.verb),
    Column("NODE", lambda a: a.node),
    Column("PLANNED", lambda a: format_timestamp(a.planned_at)),
    Column("STATE", lambda a: a.state),
)
