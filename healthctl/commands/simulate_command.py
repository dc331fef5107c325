"""`healthctl simulate`: compares policies on a simulated fleet. Sends no request, changes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from healthctl.cli.screen import Screen, output_options
from healthctl.exit_codes import Exit, Failure
from healthctl.policy_replay.policy_files import load_policy_files
from healthctl.rendering.blocks import Block, Column, Line, Rows
from vocabulary.text.plurals import format_count

if TYPE_CHECKING:
    from remediator.simulation.run_summary import PolicySummary
    from remediator.simulation.simulation_parameters import SimulationParameters

RUNS_MAX = 1000


@click.command(epilog="Example: healthctl simulate --nodes 1000 --days 30 --policy eject,checkpoint-eject --runs 5")
@click.option("--nodes", type=click.IntRange(1, 100_000), help="Fleet size.  [default: 1000]")
@click.option("--days", type=click.FloatRange(0, 3650, min_open=True), help="Simulated days.  [default: 30]")
@click.option(
    "--policy", "policies", default="all", show_default=True, help="Policies to compare, separated by commas."
)
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True, help="Seed of the first run.")
@click.option("--runs", type=click.IntRange(1, RUNS_MAX), default=1, show_default=True,
              help="Number of runs with consecutive seeds; two or more give 95 % intervals.")  # fmt: skip
@click.option(
    "--config", type=click.Path(dir_okay=False, path_type=Path), help="YAML file with the parameters of the fleet."
)
@click.option(
    "--playbook", type=click.Path(dir_okay=False, path_type=Path), help="Playbook to use instead of the shipped one."
)
@output_options
def simulate(  # noqa: PLR0913, PLR0917 - one argument for each option
    screen: Screen,
    nodes: int | None,
    days: float | None,
    policies: str,
    seed: int,
    runs: int,
    config: Path | None,
    playbook: Path | None,
) -> None:
    """Compare the cost and benefit of policies on a simulated fleet with published failure rates.

    Decisions come from the real pipeline, playbook, budgets and lemon detector. Policies: none, reboot-return, eject,
    checkpoint-eject, lemons, retest, oracle (docs/internals/simulator.md).
    """
    import numpy as np

    from remediator.simulation.run_summary import summarize_policies
    from remediator.simulation.simulation_run import run_simulation as run

    names = _parse_policy_names(policies)
    parameters = _load_parameters(config, {"nodes": nodes, "days": days})
    policy = load_policy_files([playbook])
    measured = []
    for number in range(seed, seed + runs):
        for name in names:
            click.echo(f"seed {number}: {name} …", err=True)
            measured.append(run(name, parameters, policy, number, np.random.default_rng(number)))
    found = summarize_policies(measured)
    document = {"parameters": parameters, "policies": found, "runs": measured}
    screen.show(document, lambda: _render_comparison(found, parameters, runs))


def _parse_policy_names(text: str) -> list[str]:
    from remediator.simulation.compared_policies import POLICIES

    names = list(POLICIES) if text == "all" else list(dict.fromkeys(part.strip() for part in text.split(",")))
    unknown = [name for name in names if name not in POLICIES]
    if unknown:
        raise Failure(f"--policy: no policy '{unknown[0]}'; known: {', '.join(POLICIES)}, all", Exit.USAGE)
    return names


def _load_parameters(path: Path | None, given: dict[str, float | None]) -> SimulationParameters:
    from remediator.config_suggestions import explain_config_error
    from remediator.simulation.simulation_parameters import SimulationParameters
    from vocabulary.text.yaml_text import YamlTextError, read_yaml

    place = str(path) if path is not None else "simulate"
    try:
        document = {} if path is None else read_yaml(path.read_bytes())
    except OSError as error:
        raise Failure(f"{place}: {error.strerror}", Exit.USAGE) from None
    except YamlTextError as error:
        raise Failure(f"{place}: {error}", Exit.USAGE) from None
    if document is None:
        document = {}
    if not isinstance(document, dict):
        raise Failure(f"{place}: not a mapping; write lines like 'lemon_share: 0.012'", Exit.USAGE)
    wanted = {**document, **{name: value for name, value in given.items() if value is not None}}
    try:
        return msgspec.convert(wanted, SimulationParameters)
    except msgspec.ValidationError as error:
        raise Failure(f"{place}: {explain_config_error(error, wanted, SimulationParameters)}", Exit.USAGE) from None


def _render_comparison(found: Sequence[PolicySummary], parameters: SimulationParameters, runs: int) -> list[Block]:
    """Format for people."""
    seeds = "one seed" if runs == 1 else f"{runs} seeds, 95 % intervals"
    return [Rows(found, _COLUMNS), Line(f"{format_count(parameters.nodes, 'node')}, {parameters.days:g} days, {seeds}")]


_COLUMNS: tuple[Column[PolicySummary], ...] = (
    Column("POLICY", lambda s: s.policy),
    Column("GOODPUT", lambda s: s.goodput.text(100, " %", 2)),
    Column("EFFECTIVE TIME", lambda s: s.effective_time.text(100, " %", 2)),
    Column("RESTARTS PER DAY", lambda s: s.restarts_per_day.text()),
    Column("HEALTHY NODE-DAYS LOST", lambda s: s.healthy_node_days_lost.text()),
    Column("WRONG ACTIONS", lambda s: s.wrong_actions.text()),
    Column("NODES ISOLATED", lambda s: s.isolations.text()),
    Column("BY OPERATORS", lambda s: s.by_people.text()),
)
