"""`healthctl simulate`: policies side by side on a fleet in imagination. Asks nobody, changes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from healthctl.exits import Exit, Failure
from healthctl.output import json_text, output_option, table

if TYPE_CHECKING:
    from remediator.decide.policy import Policy
    from remediator.simulate.parameters import Parameters
    from remediator.simulate.summary import Summary

RUNS_MAX = 1000


@click.command()
@click.option("--nodes", type=click.IntRange(1, 100_000), help="Of the fleet.  [default: 1000]")
@click.option("--days", type=click.FloatRange(0, 3650, min_open=True), help="How long.  [default: 30]")
@click.option("--policy", "policies", default="all", show_default=True, help="One or more, separated by commas.")
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True, help="Of the first run.")
@click.option("--runs", type=click.IntRange(1, RUNS_MAX), default=1, show_default=True,
              help="Seeds one after the other; from two on with 95 % intervals.")  # fmt: skip
@click.option("--config", type=click.Path(dir_okay=False, path_type=Path), help="YAML: the fleet's figures.")
@click.option("--playbook", type=click.Path(dir_okay=False, path_type=Path), help="In place of the shipped one.")
@output_option
def simulate(  # noqa: PLR0913, PLR0917 - one argument for each option
    nodes: int | None,
    days: float | None,
    policies: str,
    seed: int,
    runs: int,
    config: Path | None,
    playbook: Path | None,
    output: str,
) -> None:
    """Compare policies: what each costs and wins on a simulated fleet of published failure rates.

    Decisions are those of the real pipeline, playbook, budgets and lemon detector. Policies: none, reboot-return, eject,
    checkpoint-eject, lemons, retest, oracle (docs/explanation/simulator.md).
    """
    import numpy as np

    from remediator.simulate.engine import simulate as run
    from remediator.simulate.summary import summarised

    names = _names(policies)
    parameters = _parameters(config, {"nodes": nodes, "days": days})
    policy = _policy(playbook)
    measured = []
    for number in range(seed, seed + runs):
        for name in names:
            click.echo(f"seed {number}: {name} …", err=True)
            measured.append(run(name, parameters, policy, number, np.random.default_rng(number)))
    found = summarised(measured)
    if output == "json":
        click.echo(json_text({"parameters": parameters, "policies": found, "runs": measured}))
    else:
        click.echo(_page(found, parameters, runs))


def _names(text: str) -> list[str]:
    from remediator.simulate.policies import POLICIES

    names = list(POLICIES) if text == "all" else list(dict.fromkeys(part.strip() for part in text.split(",")))
    unknown = [name for name in names if name not in POLICIES]
    if unknown:
        raise Failure(f"--policy: no policy '{unknown[0]}'; known: {', '.join(POLICIES)}, all", Exit.USAGE)
    return names


def _parameters(path: Path | None, given: dict[str, float | None]) -> Parameters:
    import yaml

    from remediator.simulate.parameters import Parameters

    place = str(path) if path is not None else "simulate"
    try:
        document = {} if path is None else yaml.safe_load(path.read_bytes())
    except OSError as error:
        raise Failure(f"{place}: {error.strerror}", Exit.USAGE) from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise Failure(f"{place}: {' '.join(str(error).split())}", Exit.USAGE) from None
    if document is None:
        document = {}
    if not isinstance(document, dict):
        raise Failure(f"{place}: holds no mapping; write lines like 'lemon_share: 0.012'", Exit.USAGE)
    try:
        chosen = {name: value for name, value in given.items() if value is not None}
        return msgspec.convert({**document, **chosen}, Parameters)
    except msgspec.ValidationError as error:
        raise Failure(f"{place}: {error}", Exit.USAGE) from None


def _policy(path: Path | None) -> Policy:
    from remediator.playbook.errors import PolicyError
    from remediator.playbook.load import SHIPPED, load_policy

    try:
        return load_policy([path or SHIPPED])
    except PolicyError as error:
        raise Failure(str(error), Exit.USAGE) from None


def _page(found: Sequence[Summary], parameters: Parameters, runs: int) -> str:
    """For people."""
    header = ("POLICY", "GOODPUT", "EFFECTIVE TIME", "RESTARTS A DAY", "HEALTHY NODE-DAYS LOST", "WRONG ACTIONS",
              "NODES TAKEN OUT", "BY PEOPLE")  # fmt: skip
    rows = [
        (
            s.policy,
            s.goodput.text(100, " %", 2),
            s.effective_time.text(100, " %", 2),
            s.restarts_per_day.text(),
            s.healthy_node_days_lost.text(),
            s.wrong_actions.text(),
            s.isolations.text(),
            s.by_people.text(),
        )
        for s in found
    ]
    seeds = "one seed" if runs == 1 else f"{runs} seeds, 95 % intervals"
    return f"{table(header, rows)}\n\n{parameters.nodes} nodes, {parameters.days:g} days, {seeds}"
