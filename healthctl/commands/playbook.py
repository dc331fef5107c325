"""`healthctl playbook`: read, test and compare policies, and say why one decided as it did. All but `explain` work offline."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import click

from healthctl.exits import Exit, Failure
from healthctl.output import clean, facts, json_text, moment, output_option, table
from healthctl.server import Server, server_options

if TYPE_CHECKING:
    from remediator.decide.policy import Policy
    from remediator.model.views import DecisionView, IncidentView
    from vocabulary.catalogue import Catalogue

FILE = click.argument("file", type=click.Path(dir_okay=False, path_type=Path), required=False)


@click.group()
def playbook() -> None:
    """Read, test and compare policies."""


@playbook.command()
@FILE
@click.option("--strict", is_flag=True, help="Warnings count as errors.")
@output_option
def lint(file: Path | None, strict: bool, output: str) -> None:  # noqa: FBT001 - a flag
    """Look for mistakes in FILE with everything it includes (default: the shipped policy).

    Ends with 1 if there is one: a rule that is never reached, a code that no rule names, a node that could not come back.
    """
    from healthctl.known_kinds import known_kinds
    from remediator.playbook.lint import Level
    from remediator.playbook.lint import lint as problems_of

    policy = _load(file)
    problems = problems_of(policy, known_kinds(_catalogue()))
    if output == "json":
        click.echo(json_text({"policy": policy.digest, "rules": len(policy.rules), "problems": problems}))
    else:
        for problem in problems:
            click.echo(clean(str(problem)))
        click.echo(f"{policy.source}: {len(policy.rules)} rules, {len(problems)} problems, policy {policy.digest}")
    bad = any(strict or problem.level is Level.ERROR for problem in problems)
    sys.exit(Exit.PROBLEM if bad else Exit.OK)


@playbook.command()
@FILE
@click.option("--shipped", is_flag=True, help="Run the shipped scenarios under FILE too.")
@output_option
def test(file: Path | None, shipped: bool, output: str) -> None:  # noqa: FBT001 - a flag
    """Run the scenarios beside FILE and beside what it includes (default: the shipped policy).

    Scenarios of X.yaml are in X.scenarios.yaml. Ends with 1 if one fails, or if there is none.
    """
    from remediator.playbook.errors import PolicyError
    from remediator.playbook.load import SHIPPED, SHIPPED_FOLDER, files_of
    from remediator.playbook.trial import run_file, scenarios_beside

    policy, catalogue = _load(file), _catalogue()
    top = file or SHIPPED
    own = [
        p
        for p in files_of(top)
        if shipped or not p.is_relative_to(SHIPPED_FOLDER) or top == SHIPPED or p == top.resolve()
    ]
    try:
        results = [
            r for p in own if scenarios_beside(p).exists() for r in run_file(scenarios_beside(p), policy, catalogue)
        ]
    except PolicyError as error:
        raise Failure(str(error), Exit.USAGE) from None
    failed = [result for result in results if result.problems]
    reached = {rule for result in results for rule in result.rules}
    owned = {str(p) for p in own}
    untried = [
        r.name for r in policy.rules if r.stages and r.name not in reached and r.place.rsplit(":", 2)[0] in owned
    ]
    if output == "json":
        click.echo(json_text({"policy": policy.digest, "results": results, "untried": untried}))
    else:
        for result in failed:
            click.echo(clean(f"{result.place}: {result.name}"))
            for problem in result.problems:
                click.echo(clean(f"    {problem}"))
        if untried:
            click.echo(clean(f"no scenario reaches: {', '.join(untried)}"))
        click.echo(f"{len(results)} scenarios, {len(failed)} failed, policy {policy.digest}")
    sys.exit(Exit.PROBLEM if failed or not results else Exit.OK)


@playbook.command()
@click.argument("incident_id", metavar="INCIDENT")
@output_option
@server_options
def explain(server: Server, incident_id: str, output: str) -> None:
    """Say of INCIDENT which rule decided, why, and which others were considered."""
    from remediator.model.views import IncidentView

    incident = server.get(f"/v1/incidents/{quote(incident_id, safe='')}", IncidentView)
    if output == "json":
        click.echo(json_text(incident.decisions))
        return
    click.echo(_explanation(incident))


@playbook.command()
@click.argument("a", type=click.Path(dir_okay=False, path_type=Path))
@click.argument("b", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--config", type=click.Path(path_type=Path), default="/etc/gpu-healthd/remediator.yaml", show_default=True,
              help="The remediator's configuration: its database holds the record, its budget bounds both.")  # fmt: skip
@output_option
def diff(a: Path, b: Path, config: Path, output: str) -> None:
    """Try playbooks A and B on everything this cluster ever reported, and show what would have been decided otherwise.

    What nodes reported and people did is taken from the record; what each policy would have caused is imagined to succeed.
    """
    from remediator.config import ConfigError, load_config
    from remediator.decide.settings import Settings
    from remediator.model.plan import Mode
    from remediator.replay import differences, what_if
    from remediator.store.journal import Journal, StoreError

    policies = [_load(a), _load(b)]
    try:
        found = load_config(config)
        journal = Journal(found.database, create=False)
    except (ConfigError, StoreError) as error:
        raise Failure(str(error), Exit.USAGE) from None
    settings = [Settings(policy=p, mode=Mode.ACT, budget=found.budget, probation_s=found.probation_s) for p in policies]
    tried = [what_if(journal.inputs(), each) for each in settings]
    journal.close()
    different = differences(*tried)
    if output == "json":
        click.echo(json_text({"a": tried[0], "b": tried[1], "differences": different}))
        return
    header = ("", "POLICY", "INCIDENTS", "DECISIONS", "ISOLATIONS", "NODE-HOURS ISOLATED")
    rows = [
        (name, w.policy, str(len(w.incidents)), str(w.decisions), str(w.isolations), f"{w.isolated_hours:g}")
        for name, w in zip("AB", tried, strict=True)
    ]
    click.echo(table(header, rows))
    shown = [(d, d.a or d.b) for d in different]
    lines = [
        (moment(told.opened_at), told.incident, told.node, _answers(d.a), _answers(d.b), told.title)
        for d, told in shown
        if told is not None
    ]
    click.echo("\n" + (table(("OPENED", "INCIDENT", "NODE", "A", "B", "TITLE"), lines) if lines else "no difference"))


@playbook.command()
@click.argument("what", type=click.Choice(["playbook", "scenarios"]), default="playbook")
def schema(what: str) -> None:
    """Print the JSON Schema of a playbook, or of scenarios, for an editor to complete with."""
    from remediator.playbook.schema import schema_of

    click.echo(schema_of(what), nl=False)


def _answers(told: object) -> str:
    pairs = getattr(told, "answers", ())
    return ", ".join(f"{rule} ({answer})" for rule, answer in pairs) or "-"


def _load(file: Path | None) -> Policy:
    from remediator.playbook.errors import PolicyError
    from remediator.playbook.load import SHIPPED, load_policy

    try:
        return load_policy([file or SHIPPED])
    except PolicyError as error:
        raise Failure(str(error), Exit.USAGE) from None


def _catalogue() -> Catalogue:
    from vocabulary.catalogue_file import CatalogueError, load_catalogue

    try:
        return load_catalogue()
    except CatalogueError as error:
        raise Failure(str(error)) from None


def _explanation(incident: IncidentView) -> str:
    if not incident.decisions:
        return f"{incident.id}: nothing was decided; no rule of the policy answers its findings"
    parts = [f"{incident.id} on {incident.node}: {clean(incident.title)}"]
    return "\n\n".join([*parts, *(_decision(d) for d in incident.decisions)])


def _decision(decision: DecisionView) -> str:
    said = facts(
        [
            ("decision", f"{decision.id} at {moment(decision.at)}, policy {decision.policy}"),
            ("rule", f"{decision.rule} → {decision.answer}"),
            ("why", decision.reason),
            *(("guard", guard) for guard in decision.guards),
        ]
    )
    if not decision.considered:
        return said
    rows = [(c.rule, c.finding, c.why) for c in decision.considered]
    return f"{said}\n\n{table(('CONSIDERED TOO', 'FOR', 'NOT, BECAUSE'), rows)}"
