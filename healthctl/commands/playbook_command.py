"""`healthctl playbook`: lints, tests and compares policies, and explains decisions. Only `explain_decision` needs a server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from healthctl.api_client.remediator_client import RemediatorClient, server_options
from healthctl.cli.screen import Screen, output_options
from healthctl.cli.shell_completion import incident_ids
from healthctl.exit_codes import Exit, Failure, require_extra
from healthctl.policy_replay.policy_files import (
    REMEDIATOR_CONFIG,
    build_settings,
    load_policy_files,
    load_remediator_config,
)
from healthctl.rendering.blocks import Block, Column, Facts, Line, Rows, format_timestamp
from vocabulary.text.plurals import format_count

if TYPE_CHECKING:
    from remediator.model.journal_records import Considered
    from remediator.model.views import IncidentView
    from vocabulary.fault_catalogue.catalogue import Catalogue

FILE = click.argument("file", type=click.Path(dir_okay=False, path_type=Path), required=False)


@click.group(
    epilog="Examples: healthctl playbook lint site.yaml --strict; healthctl playbook diff old.yaml new.yaml; "
    "healthctl playbook explain inc-93bc7e61d2"
)
def playbook() -> None:
    """Lint, test and compare policies, and explain decisions. Only 'explain' queries the remediator."""


@playbook.command("lint", epilog="Example: healthctl playbook lint site.yaml --strict")
@FILE
@click.option("--strict", is_flag=True, help="Treat warnings as errors.")
@output_options
def lint_playbook(screen: Screen, file: Path | None, strict: bool) -> None:  # noqa: FBT001 - a flag
    """Check FILE for mistakes. Also checks included files; default: the shipped policy.

    Exits with 1 if there is a mistake, such as an unreachable rule, a code without a rule, or a node that could not return.
    """
    from healthctl.finding_kinds import known_kinds
    from remediator.playbook.policy_linter import ProblemLevel
    from remediator.playbook.policy_linter import lint_policy as problems_of

    policy = load_policy_files([file])
    problems = problems_of(policy, known_kinds(_load_shipped_catalogue()))
    bad = any(strict or problem.level is ProblemLevel.ERROR for problem in problems)
    screen.code = Exit.PROBLEM if bad else Exit.OK
    told = f"{policy.source}: {format_count(len(policy.rules), 'rule')}, {format_count(len(problems), 'problem')}, policy {policy.digest}"
    document = {"policy": policy.digest, "rules": len(policy.rules), "problems": problems}
    screen.show(document, lambda: [*(Line(str(problem)) for problem in problems), Line(told)])


@playbook.command("test", epilog="Example: healthctl playbook test site.yaml --shipped")
@FILE
@click.option("--shipped", is_flag=True, help="Also run the shipped scenarios with FILE.")
@output_options
def test_playbook_scenarios(screen: Screen, file: Path | None, shipped: bool) -> None:  # noqa: FBT001 - a flag
    """Run the scenarios of FILE. Also runs those of included files; default: the shipped policy.

    Scenarios of X.yaml are in X.scenarios.yaml. Exits with 1 if one fails, or if there is none.
    """
    from remediator.playbook.playbook_errors import PolicyError
    from remediator.playbook.playbook_loader import SHIPPED, SHIPPED_FOLDER, playbook_files
    from remediator.playbook.scenario_runner import run_scenario_file, scenario_path

    policy, catalogue = load_policy_files([file]), _load_shipped_catalogue()
    top = file or SHIPPED
    own = [
        p
        for p in playbook_files(top)
        if shipped or not p.is_relative_to(SHIPPED_FOLDER) or top == SHIPPED or p == top.resolve()
    ]
    try:
        results = [
            r for p in own if scenario_path(p).exists() for r in run_scenario_file(scenario_path(p), policy, catalogue)
        ]
    except PolicyError as error:
        raise Failure(str(error), Exit.USAGE) from None
    failed = [result for result in results if result.problems]
    reached = {rule for result in results for rule in result.rules}
    owned = {str(p) for p in own}
    untried = [
        r.name for r in policy.rules if r.stages and r.name not in reached and r.place.rsplit(":", 2)[0] in owned
    ]
    screen.code = Exit.PROBLEM if failed or not results else Exit.OK
    lines = [
        line for r in failed for line in (Line(f"{r.place}: {r.name}"), *(Line(each, indent=4) for each in r.problems))
    ]
    if untried:
        lines.append(Line(f"no scenario reaches: {', '.join(untried)}"))
    lines.append(Line(f"{format_count(len(results), 'scenario')}, {len(failed)} failed, policy {policy.digest}"))
    screen.show({"policy": policy.digest, "results": results, "untried": untried}, lambda: lines)


@playbook.command("explain", epilog="Example: healthctl playbook explain 93bc")
@click.argument("incident_id", metavar="INCIDENT", shell_complete=incident_ids)
@output_options
@server_options
def explain_decision(server: RemediatorClient, screen: Screen, incident_id: str) -> None:
    """Explain the decision of INCIDENT. Names the rule, its reason, and the other rules considered."""
    from healthctl.api_client.resource_names import incident_path
    from remediator.model.views import IncidentView

    incident = server.get(incident_path(server, incident_id)[1], IncidentView)
    screen.show(incident.decisions, lambda: _render_decisions(incident))


@playbook.command("diff", epilog="Example: healthctl playbook diff old.yaml new.yaml")
@click.argument("a", type=click.Path(dir_okay=False, path_type=Path))
@click.argument("b", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--config", type=click.Path(path_type=Path), default=REMEDIATOR_CONFIG, show_default=True,
              help="Configuration file of the controller: provides the recorded history and the budget.")  # fmt: skip
@output_options
def compare_playbooks(screen: Screen, a: Path, b: Path, config: Path) -> None:
    """Compare playbooks A and B on recorded history.

    Reports of nodes and operator input come from the record; actions that a policy would have caused are assumed to succeed.
    """
    with require_extra("remediator"):
        from healthctl.policy_replay.decision_comparison import render_policy_comparison
        from healthctl.policy_replay.recorded_history import open_recorded_history
    from remediator.replay.journal_replay import compare_policies, try_policy

    policies = (load_policy_files([a]), load_policy_files([b]))
    own = load_remediator_config(config, needed=True)
    with open_recorded_history(own.database) as record:
        first, second = (try_policy(record.inputs(), build_settings(own, each)) for each in policies)
    different = compare_policies(first, second)
    screen.show(
        {"a": first, "b": second, "differences": different}, lambda: render_policy_comparison(first, second, different)
    )


@playbook.command("schema", epilog="Example: healthctl playbook schema > playbook.schema.json")
@click.argument("what", type=click.Choice(["playbook", "scenarios"]), default="playbook")
def print_schema(what: str) -> None:
    """Print the JSON Schema of playbooks or scenarios, for editors."""
    from remediator.playbook.json_schemas import json_schema_text

    click.echo(json_schema_text(what), nl=False)


def _load_shipped_catalogue() -> Catalogue:
    from vocabulary.fault_catalogue.catalogue_file import CatalogueError, load_catalogue

    try:
        return load_catalogue()
    except CatalogueError as error:
        raise Failure(str(error)) from None


def _render_decisions(incident: IncidentView) -> Iterator[Block]:
    if not incident.decisions:
        yield Line(f"{incident.id}: no decision: no rule of the policy matches its findings")
        return
    yield Line(f"{incident.id} on {incident.node}: {incident.title}")
    for decision in incident.decisions:
        yield Facts(
            [
                ("decision", f"{decision.id} at {format_timestamp(decision.at)}, policy {decision.policy}"),
                ("rule", f"{decision.rule} → {decision.answer}"),
                ("why", decision.reason),
                *(("guard", guard) for guard in decision.guards),
            ]
        )
        yield Rows(decision.considered, _CONSIDERED)


_CONSIDERED: tuple[Column[Considered], ...] = (
    Column("ALSO CONSIDERED", lambda c: c.rule),
    Column("FOR", lambda c: c.finding),
    Column("REJECTED BECAUSE", lambda c: c.why, prose=True),
)
