"""`remediator slurm`: reserves nodes in service for a multi-node test, and releases them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from remediator.commands.shared_options import CONFIG

if TYPE_CHECKING:
    from remediator.model.scheduler_hold import ActionOutcome
    from remediator.schedulers.slurm.slurm_scheduler import SlurmScheduler

NOT_DONE = 3


@click.group("slurm")
def slurm_group() -> None:
    """Reservations of ours in Slurm: nodes in service kept free for a test."""


@slurm_group.command("set-aside")
@CONFIG
@click.argument("name")
@click.argument("nodes", nargs=-1, required=True, metavar="NODE...")
@click.option(
    "--minutes",
    type=click.IntRange(1, 1440),
    default=30,
    show_default=True,
    help="Duration; the reservation ends afterwards.",
)
@click.option("--user", default="root", show_default=True, help="Users whose jobs may run there.")
def set_aside_command(config_path: Path, name: str, nodes: tuple[str, ...], minutes: int, user: str) -> None:
    """Reserve NODEs from now on as gpu-healthd-NAME. Jobs that run there may end; no other begins. Repeating it changes nothing.

    \b
        remediator slurm set-aside pairs gpu-1 gpu-2 gpu-3
        srun --reservation=gpu-healthd-pairs -N3 --ntasks-per-node=1 python -m preflight group
        remediator slurm give-back pairs
    """  # noqa: D301 - \b is click's mark for lines that stay as they are
    _print_reservation_outcome(lambda scheduler: scheduler.set_aside(name, nodes, minutes, user), config_path)


@slurm_group.command("give-back")
@CONFIG
@click.argument("name")
def give_back_command(config_path: Path, name: str) -> None:
    """End the reservation gpu-healthd-NAME before its time."""
    _print_reservation_outcome(lambda scheduler: scheduler.give_back(name), config_path)


def _print_reservation_outcome(ask: Callable[[SlurmScheduler], ActionOutcome], config_path: Path) -> None:
    from remediator.config import ConfigError, load_config  # noqa: PLC0415 - the same
    from remediator.model.scheduler_hold import ActionResult  # noqa: PLC0415 - the same
    from remediator.schedulers.slurm.slurm_scheduler import SlurmScheduler  # noqa: PLC0415 - only these commands need it
    from vocabulary.clock import SystemClock  # noqa: PLC0415 - the same

    try:
        chosen = load_config(config_path).scheduler
        if chosen.kind != "slurm":
            raise click.UsageError(f"{config_path}: scheduler.kind is {chosen.kind}, not slurm")
        outcome = ask(SlurmScheduler(chosen.slurm, SystemClock()))
    except (ConfigError, ValueError) as error:
        raise click.ClickException(str(error)) from error
    click.echo(outcome.detail)
    if outcome.result not in (ActionResult.DONE, ActionResult.ALREADY):
        raise SystemExit(NOT_DONE)
