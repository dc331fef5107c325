"""`healthctl launch`: run a training job on the fit nodes of an allocation, and bring it back after a fault."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from healthctl.exits import Exit, Failure
from healthd.launcher.backend import Backend, BackendError
from healthd.launcher.job import Job
from healthd.launcher.journal import Journal
from healthd.launcher.local import LocalBackend
from healthd.launcher.loop import Launcher
from healthd.launcher.plan import Gate, Limits
from healthd.launcher.pod import PodBackend
from healthd.launcher.preflight import LEVELS, command_for
from healthd.launcher.slurm import SlurmBackend
from vocabulary.clock import SystemClock
from vocabulary.counts import counted
from vocabulary.daemon_socket import SOCKET


@click.command(
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    epilog="Example: healthctl launch --nodes 4 --spares 1 --ranks-per-node 8 python train.py",
)
@click.option("--nodes", type=click.IntRange(min=1), help="Nodes to train on; default: all but the spares.")
@click.option(
    "--spares", type=click.IntRange(min=0), default=0, show_default=True, help="Hot spares; with --nodes a wish."
)
@click.option(
    "--swap",
    is_flag=True,
    help="Let a process wait on each spare node, and replace lost ranks by it while the others go on. COMMAND must use run_guarded_job.",
)
@click.option(
    "--min-nodes",
    type=click.IntRange(min=1),
    help="Go on with as few as these when --nodes are not there (elastic); with --swap also in place: the job shrinks"
    " when a node is lost and no spare is left, and grows when the node is back.",
)
@click.option(
    "--return-seconds",
    type=click.FloatRange(min=0),
    default=15.0,
    show_default=True,
    help="With --swap and --min-nodes: how long after its loss a node that is fit takes ranks again; twice as long after each further loss. 0: never.",
)
@click.option("--ranks-per-node", type=click.IntRange(min=1), default=1, show_default=True, help="Usually one per GPU.")
@click.option(
    "--per-node", is_flag=True, help="Run COMMAND once per node; it makes the ranks itself, as torchrun does."
)
@click.option(
    "--gate",
    type=click.Choice([gate.value for gate in Gate]),
    default="prefer",
    show_default=True,
    help="Ask each node's healthd first: take fit ones first, fit ones only, or do not ask.",
)
@click.option(
    "--preflight",
    type=click.Choice(["off", *LEVELS]),
    default="off",
    show_default=True,
    help="Test every node at this level before ranks start on it; who fails is left out.",
)
@click.option(
    "--preflight-command", default="", help="What to run instead: prints a document and ends as the preflight does."
)
@click.option(
    "--preflight-seconds",
    type=click.FloatRange(min=0.1),
    default=600.0,
    show_default=True,
    help="How long a node may take for it; later is as good as no answer.",
)
@click.option("--max-restarts", type=click.IntRange(min=0), default=20, show_default=True, help="Relaunches in all.")
@click.option(
    "--max-crashes",
    type=click.IntRange(min=1),
    default=3,
    show_default=True,
    help="Crashes in a row (exits that nobody ordered), none of which came further, after which to stop.",
)
@click.option(
    "--progress-file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="A file that the job changes when it comes further, where the ranks have no guard to tell.",
)
@click.option(
    "--user-error-seconds",
    type=click.FloatRange(min=0),
    default=60.0,
    show_default=True,
    help="Ranks that all exit alike, this early and on nodes without fault, are the command's own mistake; 0: never.",
)
@click.option(
    "--backoff-seconds",
    type=click.FloatRange(min=0, max=3600),
    default=1.0,
    show_default=True,
    help="Pause after a crash without progress; doubles each time, up to a minute.",
)
@click.option(
    "--leave-seconds",
    type=click.FloatRange(min=0.1),
    default=30.0,
    show_default=True,
    help="How long a rank may stay after its first peer has left; then it is killed.",
)
@click.option(
    "--done-seconds",
    type=click.FloatRange(min=0),
    default=3600.0,
    show_default=True,
    help="How long a rank may go on after its first peer has ended with 0; then it is killed. 0: for ever.",
)
@click.option(
    "--stop-seconds",
    type=click.FloatRange(min=0.1),
    default=30.0,
    show_default=True,
    help="How long the ranks may take to save and leave when the launcher is told to stop.",
)
@click.option(
    "--look-again-seconds",
    type=click.FloatRange(min=0),
    default=15.0,
    show_default=True,
    help="Ask the nodes again so long after a start, and go elsewhere if one is unfit and nothing is trained yet; 0: do not.",
)
@click.option(
    "--notice-file",
    type=click.Path(path_type=Path),
    help="When it appears or changes, the machine is about to go: save, leave, queue the job again.",
)
@click.option(
    "--events", type=click.Path(path_type=Path, dir_okay=False), help="Append one JSON line per event to this file."
)
@click.option(
    "--backend",
    type=click.Choice(["auto", "slurm", "local", "kubernetes"]),
    default="auto",
    show_default=True,
    help="Where the ranks run; auto: Slurm inside an allocation, else this machine. kubernetes: this pod, once.",
)
@click.option("--node-names", default="", help="Local backend: pretend names of nodes, separated by commas.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def launch(*, backend: str, node_names: str, events: Path | None, command: tuple[str, ...], **shape: Any) -> None:
    """Run COMMAND once per rank, or once per node; on an eject or abort start it again at once, without the condemned nodes.

    Exit codes: 0 done; 75 too few fit nodes are left, queue the job again (inside Slurm it already is); 93 the job says
    never again; 128 + N stopped by signal N; 1 ranks ended with 90 to 92 without an order; otherwise the code of the rank that failed.
    """
    try:
        chosen = _backend(backend, node_names)
        if shape["swap"] and isinstance(chosen, PodBackend):
            raise click.UsageError(
                "--swap does not work on Kubernetes: there a controller starts the ranks of each node"
            )
        clock = SystemClock()
        journal = Journal(events, chosen.job(), clock)
        if backend == "kubernetes":
            shape["max_restarts"] = 0  # the Job's controller starts the next attempt, perhaps on another node
        sys.exit(Launcher(_job(command, chosen.nodes(), **shape), chosen, journal, clock).run())
    except BackendError as error:
        raise Failure(str(error), Exit.PROBLEM) from error


def _job(  # the rest of the options, by name
    command: tuple[str, ...],
    at_hand: Sequence[str],
    *,
    nodes: int | None,
    spares: int,
    min_nodes: int | None,
    swap: bool,
    **rest: Any,
) -> Job:
    if swap and (rest["per_node"] or (spares == 0 and min_nodes is None)):
        raise click.UsageError(
            "--swap needs --spares of at least 1 or --min-nodes, and no --per-node: the launcher itself starts each rank"
        )
    wanted = nodes if nodes is not None else max(len(at_hand) - spares, min_nodes or 0)
    if min_nodes is not None and min_nodes > wanted:
        raise click.UsageError(f"--min-nodes {min_nodes} is more than the {wanted} of --nodes")
    if not 1 <= (min_nodes or wanted) <= len(at_hand):
        raise click.UsageError(
            f"{counted(len(at_hand), 'node')} at hand ({', '.join(at_hand)}) are too few for --nodes/--spares"
        )
    pause = rest["backoff_seconds"]
    limits = Limits(rest["max_restarts"], rest["max_crashes"], rest["user_error_seconds"], pause, max(60.0, pause))
    return Job(
        command,
        wanted,
        rest["ranks_per_node"],
        Gate(rest["gate"]),
        limits,
        rest["leave_seconds"],
        rest["done_seconds"],
        rest["stop_seconds"],
        rest["look_again_seconds"],
        least=min_nodes,
        socket_template=os.environ.get("HEALTHD_SOCKET") or SOCKET,
        per_node=rest["per_node"],
        progress_file=rest["progress_file"],
        preflight=_preflight(rest["preflight"], rest["preflight_command"]),
        preflight_seconds=rest["preflight_seconds"],
        notice_file=rest["notice_file"],
        warm_spares=spares if swap else 0,
        swap=swap,
        return_seconds=rest["return_seconds"],
    )


def _preflight(level: str, command: str) -> tuple[str, ...]:
    try:
        own = tuple(shlex.split(command))
    except ValueError as error:
        raise click.UsageError(f"--preflight-command: {error}") from error
    return own or (() if level == "off" else command_for(level))


def _backend(name: str, node_names: str) -> Backend:
    if name == "slurm" or (name == "auto" and "SLURM_JOB_ID" in os.environ):
        return SlurmBackend(os.environ)
    if name == "kubernetes":
        return PodBackend(os.environ)
    return LocalBackend([part.strip() for part in node_names.split(",") if part.strip()])
