"""`healthctl simulate`: policies side by side on a fleet in imagination. Asks nobody, changes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from healthctl.exits import Exit, Failure
from healthctl.output import Block, Column, Line, Rows
from healthctl.policies import loaded
from healthctl.screen import Screen, output_options
from vocabulary.counts import counted

if TYPE_CHECKING:
    from remediator.simulate.parameters import Parameters
    from remediator.simulate.summary import Summary

RUNS_MAX = 1000


@click.command(epilog="Example: healthctl simulate --nodes 1000 --days 30 --policy eject,checkpoint-eject --runs 5")
@click.option("--nodes", type=click.IntRange(1, 100_000), help="Of the fleet.  [default: 1000]")
@click.option("--days", type=click.FloatRange(0, 3650, min_open=True), help="How long.  [default: 30]")
@click.option("--policy", "policies", default="all", show_default=True, help="One or more, separated by commas.")
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True, help="Of the first run.")
@click.option("--runs", type=click.IntRange(1, RUNS_MAX), default=1, show_default=True,
              help="Seeds one after the other; from two on with 95 % intervals.")  # fmt: skip
@click.option("--config", type=click.Path(dir_okay=False, path_type=Path), help="YAML: the fleet's figures.")
@click.option("--playbook", type=click.Path(dir_okay=False, path_type=Path), help="In place of the shipped one.")
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
    """Compare policies: what each costs and wins on a simulated fleet of published failure rates.

    Decisions are those of the real pipeline, playbook, budgets and lemon detector. Policies: none, reboot-return, eject,
    checkpoint-eject, lemons, retest, oracle (docs/internals/simulator.md).
    """
    import numpy as np

    from remediator.simulate.engine import simulate as run
    from remediator.simulate.summary import summarised

    names = _names(policies)
    parameters = _parameters(config, {"nodes": nodes, "days": days})
    policy = loaded([playbook])
    measured = []
    for number in range(seed, seed + runs):
        for name in names:
            click.echo(f"seed {number}: {name} …", err=True)
            measured.append(run(name, parameters, policy, number, np.random.default_rng(number)))
    found = summarised(measured)
    document = {"parameters": parameters, "policies": found, "runs": measured}
    screen.show(document, lambda: _page(found, parameters, runs))


def _names(text: str) -> list[str]:
    from remediator.simulate.policies import POLICIES

    names = list(POLICIES) if text == "all" else list(dict.fromkeys(part.strip() for part in text.split(",")))
    unknown = [name for name in names if name not in POLICIES]
    if unknown:
        raise Failure(f"--policy: no policy '{unknown[0]}'; known: {', '.join(POLICIES)}, all", Exit.USAGE)
    return names


def _parameters(path: Path | None, given: dict[str, float | None]) -> Parameters:
    from remediator.config_hints import explained
    from remediator.simulate.parameters import Parameters
    from vocabulary.yaml_text import YamlTextError, read_yaml

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
        raise Failure(f"{place}: holds no mapping; write lines like 'lemon_share: 0.012'", Exit.USAGE)
    wanted = {**document, **{name: value for name, value in given.items() if value is not None}}
    try:
        return msgspec.convert(wanted, Parameters)
    except msgspec.ValidationError as error:
        raise Failure(f"{place}: {explained(error, wanted, Parameters)}", Exit.USAGE) from None


def _page(found: Sequence[Summary], parameters: Parameters, runs: int) -> list[Block]:
    """For people."""
    seeds = "one seed" if runs == 1 else f"{runs} seeds, 95 % intervals"
    return [Rows(found, _COLUMNS), Line(f"{counted(parameters.nodes, 'node')}, {parameters.days:g} days, {seeds}")]


_COLUMNS: tuple[Column[Summary], ...] = (
    Column("POLICY", lambda s: s.policy),
    Column("GOODPUT", lambda s: s.goodput.text(100, " %", 2)),
    Column("EFFECTIVE TIME", lambda s: s.effective_time.text(100, " %", 2)),
    Column("RESTARTS A DAY", lambda s: s.restarts_per_day.text()),
    Column("HEALTHY NODE-DAYS LOST", lambda s: s.healthy_node_days_lost.text()),
    Column("WRONG ACTIONS", lambda s: s.wrong_actions.text()),
    Column("NODES TAKEN OUT", lambda s: s.isolations.text()),
    Column("BY PEOPLE", lambda s: s.by_people.text()),
)
