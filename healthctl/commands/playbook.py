"""`healthctl playbook`: read, test and compare policies, and say why one decided as it did. All but `explain` work offline."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from healthctl.completing import incident_ids
from healthctl.exits import Exit, Failure, extra
from healthctl.output import Block, Column, Facts, Line, Rows, moment
from healthctl.policies import REMEDIATOR_CONFIG, configured, loaded, settings_of
from healthctl.screen import Screen, output_options
from healthctl.server import Server, server_options
from vocabulary.counts import counted

if TYPE_CHECKING:
    from remediator.model.records import Considered
    from remediator.model.views import IncidentView
    from vocabulary.catalogue import Catalogue

FILE = click.argument("file", type=click.Path(dir_okay=False, path_type=Path), required=False)


@click.group(
    epilog="Examples: healthctl playbook lint site.yaml --strict; healthctl playbook diff old.yaml new.yaml; "
    "healthctl playbook explain inc-93bc7e61d2"
)
def playbook() -> None:
    """Read, test and compare policies, and say why one decided as it did. Only 'explain' asks the remediator."""


@playbook.command(epilog="Example: healthctl playbook lint site.yaml --strict")
@FILE
@click.option("--strict", is_flag=True, help="Warnings count as errors.")
@output_options
def lint(screen: Screen, file: Path | None, strict: bool) -> None:  # noqa: FBT001 - a flag
    """Look for mistakes in FILE. It is read with everything that it includes (default: the shipped policy).

    Ends with 1 if there is a mistake: a rule that is never reached, a code that no rule names, a node that could not come back.
    """
    from healthctl.known_kinds import known_kinds
    from remediator.playbook.lint import Level
    from remediator.playbook.lint import lint as problems_of

    policy = loaded([file])
    problems = problems_of(policy, known_kinds(_catalogue()))
    bad = any(strict or problem.level is Level.ERROR for problem in problems)
    screen.code = Exit.PROBLEM if bad else Exit.OK
    told = f"{policy.source}: {counted(len(policy.rules), 'rule')}, {counted(len(problems), 'problem')}, policy {policy.digest}"
    document = {"policy": policy.digest, "rules": len(policy.rules), "problems": problems}
    screen.show(document, lambda: [*(Line(str(problem)) for problem in problems), Line(told)])


@playbook.command(epilog="Example: healthctl playbook test site.yaml --shipped")
@FILE
@click.option("--shipped", is_flag=True, help="Run the shipped scenarios under FILE too.")
@output_options
def test(screen: Screen, file: Path | None, shipped: bool) -> None:  # noqa: FBT001 - a flag
    """Run the scenarios beside FILE. And beside what it includes (default: the shipped policy).

    Scenarios of X.yaml are in X.scenarios.yaml. Ends with 1 if one fails, or if there is none.
    """
    from remediator.playbook.errors import PolicyError
    from remediator.playbook.load import SHIPPED, SHIPPED_FOLDER, files_of
    from remediator.playbook.trial import run_file, scenarios_beside

    policy, catalogue = loaded([file]), _catalogue()
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
    screen.code = Exit.PROBLEM if failed or not results else Exit.OK
    lines = [
        line for r in failed for line in (Line(f"{r.place}: {r.name}"), *(Line(each, indent=4) for each in r.problems))
    ]
    if untried:
        lines.append(Line(f"no scenario reaches: {', '.join(untried)}"))
    lines.append(Line(f"{counted(len(results), 'scenario')}, {len(failed)} failed, policy {policy.digest}"))
    screen.show({"policy": policy.digest, "results": results, "untried": untried}, lambda: lines)


@playbook.command(epilog="Example: healthctl playbook explain 93bc")
@click.argument("incident_id", metavar="INCIDENT", shell_complete=incident_ids)
@output_options
@server_options
def explain(server: Server, screen: Screen, incident_id: str) -> None:
    """Say of INCIDENT which rule decided, and why. The others that were considered are named too."""
    from healthctl.naming import incident_path
    from remediator.model.views import IncidentView

    incident = server.get(incident_path(server, incident_id)[1], IncidentView)
    screen.show(incident.decisions, lambda: _explanation(incident))


@playbook.command(epilog="Example: healthctl playbook diff old.yaml new.yaml")
@click.argument("a", type=click.Path(dir_okay=False, path_type=Path))
@click.argument("b", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--config", type=click.Path(path_type=Path), default=REMEDIATOR_CONFIG, show_default=True,
              help="The remediator's configuration: its database holds the record, its budget bounds both.")  # fmt: skip
@output_options
def diff(screen: Screen, a: Path, b: Path, config: Path) -> None:
    """Try playbooks A and B on this cluster's record. It holds everything that was ever reported; show what would have been decided otherwise.

    What nodes reported and people did is taken from the record; what each policy would have caused is imagined to succeed.
    """
    with extra("remediator"):
        from healthctl.record.compare import tried_page
        from healthctl.record.source import opened
    from remediator.replay import differences, what_if

    policies = (loaded([a]), loaded([b]))
    own = configured(config, needed=True)
    with opened(own.database) as record:
        first, second = (what_if(record.inputs(), settings_of(own, each)) for each in policies)
    different = differences(first, second)
    screen.show({"a": first, "b": second, "differences": different}, lambda: tried_page(first, second, different))


@playbook.command(epilog="Example: healthctl playbook schema > playbook.schema.json")
@click.argument("what", type=click.Choice(["playbook", "scenarios"]), default="playbook")
def schema(what: str) -> None:
    """Print the JSON Schema of a playbook or of scenarios. Editors complete with it."""
    from remediator.playbook.schema import schema_of

    click.echo(schema_of(what), nl=False)


def _catalogue() -> Catalogue:
    from vocabulary.catalogue_file import CatalogueError, load_catalogue

    try:
        return load_catalogue()
    except CatalogueError as error:
        raise Failure(str(error)) from None


def _explanation(incident: IncidentView) -> Iterator[Block]:
    if not incident.decisions:
        yield Line(f"{incident.id}: nothing was decided; no rule of the policy answers its findings")
        return
    yield Line(f"{incident.id} on {incident.node}: {incident.title}")
    for decision in incident.decisions:
        yield Facts(
            [
                ("decision", f"{decision.id} at {moment(decision.at)}, policy {decision.policy}"),
                ("rule", f"{decision.rule} → {decision.answer}"),
                ("why", decision.reason),
                *(("guard", guard) for guard in decision.guards),
            ]
        )
        yield Rows(decision.considered, _CONSIDERED)


_CONSIDERED: tuple[Column[Considered], ...] = (
    Column("CONSIDERED TOO", lambda c: c.rule),
    Column("FOR", lambda c: c.finding),
    Column("NOT, BECAUSE", lambda c: c.why, prose=True),
)
