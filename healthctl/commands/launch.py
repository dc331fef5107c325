"""`healthctl launch`: run a training job on the fit nodes of an allocation, and bring it back after a fault."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from healthd.launcher.backend import Backend, BackendError
from healthd.launcher.gate import DEFAULT_SOCKET
from healthd.launcher.journal import Journal
from healthd.launcher.local import LocalBackend
from healthd.launcher.loop import Job, Launcher
from healthd.launcher.plan import Gate, Limits
from healthd.launcher.slurm import SlurmBackend
from vocabulary.clock import SystemClock


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("--nodes", type=click.IntRange(min=1), help="Nodes to train on; default: all but the spares.")
@click.option("--spares", type=click.IntRange(min=0), default=0, show_default=True, help="Nodes kept as hot spares.")
@click.option("--ranks-per-node", type=click.IntRange(min=1), default=1, show_default=True, help="Usually one per GPU.")
@click.option(
    "--gate",
    type=click.Choice([gate.value for gate in Gate]),
    default="prefer",
    show_default=True,
    help="Ask each node's healthd first: take fit ones first, fit ones only, or do not ask.",
)
@click.option("--max-restarts", type=click.IntRange(min=0), default=20, show_default=True, help="Relaunches in all.")
@click.option(
    "--max-crashes",
    type=click.IntRange(min=1),
    default=3,
    show_default=True,
    help="Crashes in a row (exits that nobody ordered) after which to stop.",
)
@click.option(
    "--leave-seconds",
    type=click.FloatRange(min=0.1),
    default=30.0,
    show_default=True,
    help="How long a rank may stay after its first peer has left; then it is killed.",
)
@click.option(
    "--events", type=click.Path(path_type=Path, dir_okay=False), help="Append one JSON line per event to this file."
)
@click.option(
    "--backend",
    type=click.Choice(["auto", "slurm", "local"]),
    default="auto",
    show_default=True,
    help="Where the ranks run; auto: Slurm inside an allocation, else this machine.",
)
@click.option("--node-names", default="", help="Local backend: pretend names of nodes, separated by commas.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def launch(  # noqa: PLR0913 - a command's options
    *,
    nodes: int | None,
    spares: int,
    ranks_per_node: int,
    gate: str,
    max_restarts: int,
    max_crashes: int,
    leave_seconds: float,
    events: Path | None,
    backend: str,
    node_names: str,
    command: tuple[str, ...],
) -> None:
    """Run COMMAND once per rank; on an eject or abort start it again at once, without the condemned nodes.

    Exit codes: 0 done; 75 too few fit nodes are left, queue the job again (inside Slurm it already is); 93 the job says
    never again; 128 + N stopped by signal N; otherwise the code of the rank that failed.
    """
    try:
        chosen = _backend(backend, node_names)
        available = len(chosen.nodes())
        wanted = nodes if nodes is not None else available - spares
        if wanted < 1 or wanted + (spares if nodes is not None else 0) > available:
            raise click.UsageError(
                f"{available} nodes at hand ({', '.join(chosen.nodes())}) are too few for --nodes/--spares"
            )
        job = Job(command, wanted, ranks_per_node, Gate(gate), Limits(max_restarts, max_crashes), leave_seconds)
        clock = SystemClock()
        sys.exit(Launcher(job, chosen, Journal(events, chosen.job(), clock), clock).run())
    except BackendError as error:
        raise click.ClickException(str(error)) from error


def _backend(name: str, node_names: str) -> Backend:
    template = os.environ.get("HEALTHD_SOCKET") or DEFAULT_SOCKET
    if name == "slurm" or (name == "auto" and "SLURM_JOB_ID" in os.environ):
        return SlurmBackend(os.environ, template)
    return LocalBackend([part.strip() for part in node_names.split(",") if part.strip()], template)
