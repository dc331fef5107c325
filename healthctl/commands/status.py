"""`healthctl status`."""

from __future__ import annotations

import click

from healthctl.output import facts, json_text, moment, output_option
from healthctl.server import Server, server_options
from remediator.model.views import StatusView


@click.command()
@output_option
@server_options
def status(server: Server, output: str) -> None:
    """Show the cluster in one look."""
    view = server.get("/v1/status", StatusView)
    click.echo(json_text(view) if output == "json" else _page(view))


def _page(view: StatusView) -> str:
    return facts(
        [
            ("cluster", f"{view.cluster} at {moment(view.at)}"),
            ("remediator", f"{view.version}, mode {view.mode}, epoch {view.epoch}, policy {view.policy}"),
            ("nodes", f"{view.nodes_total}{_counts(view.nodes_by_state)}"),
            ("health", _counts(view.nodes_by_health).removeprefix(": ")),
            ("isolated", f"{view.isolated} of at most {view.isolated_max}"),
            ("open", f"{_many(view.incidents_open, 'incident')}, {_many(view.actions_open, 'action')}"),
            ("scheduler", view.scheduler),
            *(("blocked", reason) for reason in view.blocked),
        ]
    )


def _many(count: int, word: str) -> str:
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def _counts(by_name: dict[str, int]) -> str:
    return ": " + ", ".join(f"{count} {name}" for name, count in sorted(by_name.items()) if count) if by_name else ""
