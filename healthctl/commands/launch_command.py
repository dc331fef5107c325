"""`healthctl launch`: runs a training job on the healthy nodes of an allocation, and restarts it after a fault."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from healthctl.exit_codes import Exit, Failure
from healthd.launcher.backends.kubernetes_pod import PodBackend
from healthd.launcher.backends.local_backend import LocalBackend
from healthd.launcher.backends.slurm_backend import SlurmBackend
from healthd.launcher.decisions.relaunch_policy import GateMode, RetryLimits
from healthd.launcher.job_definition import JobDefinition
from healthd.launcher.launch_journal import LaunchJournal
from healthd.launcher.launch_loop import Launcher
from healthd.launcher.preflight import LEVELS, make_preflight_command
from healthd.launcher.scheduler_backend import Backend, BackendError
from vocabulary.clock import SystemClock
from vocabulary.daemon_socket import SOCKET
from vocabulary.text.plurals import format_count


@click.command(
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    epilog="Example: healthctl launch --nodes 4 --spares 1 --ranks-per-node 8 python train.py",
)
@click.option(
    "--nodes", type=click.IntRange(min=1), help="Number of nodes to train on. Default: all except the spares."
)
@click.option(
    "--spares",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Number of hot spares; best effort with --nodes.",
)
@click.option(
    "--swap",
    is_flag=True,
    help="Keep a process ready on each spare node that replaces a lost rank while the others run on. COMMAND must use run_guarded_job.",
)
@click.option(
    "--min-nodes",
    type=click.IntRange(min=1),
    help="Continue with as few as this many nodes (elastic). With --swap the job shrinks in place when no spare is left,"
    " and grows when a node returns.",
)
@click.option(
    "--return-seconds",
    type=click.FloatRange(min=0),
    default=15.0,
    show_default=True,
    help="With --swap and --min-nodes: start ranks again on a lost node that is healthy after this time, doubled by each further loss. 0: never.",
)
@click.option(
    "--frozen-seconds",
    type=click.FloatRange(min=0),
    default=15.0,
    show_default=True,
    help="With --swap: replace a rank whose process does not answer for this time while the job finishes no step. 0: never.",
)
@click.option(
    "--replace-nodes/--no-replace-nodes",
    default=True,
    show_default=True,
    help="With --swap under Slurm: give condemned nodes back while the job runs, so that they can be repaired, and request other nodes.",
)
@click.option(
    "--ranks-per-node",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Number of ranks per node; usually one per GPU.",
)
@click.option("--per-node", is_flag=True, help="Run COMMAND once per node; COMMAND starts the ranks, as torchrun does.")
@click.option(
    "--gate",
    type=click.Choice([gate.value for gate in GateMode]),
    default="prefer",
    show_default=True,
    help="Check each node with healthd: prefer healthy nodes, require healthy nodes, or skip the check.",
)
@click.option(
    "--preflight",
    type=click.Choice(["off", *LEVELS]),
    default="off",
    show_default=True,
    help="Run preflight at this level on every node before ranks start; nodes that fail are left out.",
)
@click.option(
    "--preflight-command", default="", help="Command to run instead of preflight, with the same output and exit codes."
)
@click.option(
    "--preflight-seconds",
    type=click.FloatRange(min=0.1),
    default=600.0,
    show_default=True,
    help="Time limit of the preflight on a node.",
)
@click.option(
    "--max-restarts", type=click.IntRange(min=0), default=20, show_default=True, help="Maximum number of restarts."
)
@click.option(
    "--max-crashes",
    type=click.IntRange(min=1),
    default=3,
    show_default=True,
    help="Stop after this many consecutive crashes without progress.",
)
@click.option(
    "--progress-file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File that the job modifies when it makes progress, for ranks without a guard.",
)
@click.option(
    "--user-error-seconds",
    type=click.FloatRange(min=0),
    default=60.0,
    show_default=True,
    help="Treat equal exits of all ranks within this time, on healthy nodes, as an error of COMMAND; 0: never.",
)
@click.option(
    "--backoff-seconds",
    type=click.FloatRange(min=0, max=3600),
    default=1.0,
    show_default=True,
    help="Backoff after a crash without progress; doubles each time, up to one minute.",
)
@click.option(
    "--leave-seconds",
    type=click.FloatRange(min=0.1),
    default=30.0,
    show_default=True,
    help="Kill a rank that is still running this long after its first peer left.",
)
@click.option(
    "--done-seconds",
    type=click.FloatRange(min=0),
    default=3600.0,
    show_default=True,
    help="Kill a rank that is still running this long after its first peer exited with 0. 0: never.",
)
@click.option(
    "--stop-seconds",
    type=click.FloatRange(min=0.1),
    default=30.0,
    show_default=True,
    help="Time for the ranks to save and exit when the launcher is stopped.",
)
@click.option(
    "--look-again-seconds",
    type=click.FloatRange(min=0),
    default=15.0,
    show_default=True,
    help="Check the nodes again this long after a start, and move the job if one is unhealthy before the first step. 0: never.",
)
@click.option(
    "--notice-file",
    type=click.Path(path_type=Path),
    help="File that announces preemption: when it appears or changes, save, exit and requeue the job.",
)
@click.option(
    "--events", type=click.Path(path_type=Path, dir_okay=False), help="Append one JSON line per event to this file."
)
@click.option(
    "--backend",
    type=click.Choice(["auto", "slurm", "local", "kubernetes"]),
    default="auto",
    show_default=True,
    help="Where to run the ranks. auto: Slurm inside an allocation, else this machine; kubernetes: this pod, once.",
)
@click.option("--node-names", default="", help="Local backend: simulated node names, separated by commas.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def launch(*, backend: str, node_names: str, events: Path | None, command: tuple[str, ...], **shape: Any) -> None:
    """Run COMMAND once per rank, or once per node. After an eject or abort, restart it at once without the failed nodes.

    Exit codes: 0 done; 75 too few healthy nodes are left, requeue the job (inside Slurm this is automatic); 93 the job
    must not be restarted; 128 + N stopped by signal N; 1 ranks exited with 90 to 92 without an order; otherwise the exit
    code of the failed rank.
    """
    try:
        chosen = _select_backend(backend, node_names)
        if shape["swap"] and isinstance(chosen, PodBackend):
            raise click.UsageError(
                "--swap does not work on Kubernetes, where a Kubernetes controller starts the ranks of each node"
            )
        clock = SystemClock()
        journal = LaunchJournal(events, chosen.job(), clock)
        if backend == "kubernetes":
            shape["max_restarts"] = 0  # the Job's controller starts the next attempt, perhaps on another node
        sys.exit(Launcher(_build_job(command, chosen.nodes(), **shape), chosen, journal, clock).run())
    except BackendError as error:
        raise Failure(str(error), Exit.PROBLEM) from error


def _build_job(  # the remaining options, by name
    command: tuple[str, ...],
    at_hand: Sequence[str],
    *,
    nodes: int | None,
    spares: int,
    min_nodes: int | None,
    swap: bool,
    **rest: Any,
) -> JobDefinition:
    if swap and (rest["per_node"] or (spares == 0 and min_nodes is None)):
        raise click.UsageError(
            "--swap needs --spares of at least 1 or --min-nodes, and no --per-node: the launcher itself starts each rank"
        )
    wanted = nodes if nodes is not None else max(len(at_hand) - spares, min_nodes or 0)
    if min_nodes is not None and min_nodes > wanted:
        raise click.UsageError(f"--min-nodes {min_nodes} is more than the {wanted} of --nodes")
    if not 1 <= (min_nodes or wanted) <= len(at_hand):
        raise click.UsageError(
            f"{format_count(len(at_hand), 'node')} available ({', '.join(at_hand)}), too few for --nodes/--spares"
        )
    pause = rest["backoff_seconds"]
    limits = RetryLimits(rest["max_restarts"], rest["max_crashes"], rest["user_error_seconds"], pause, max(60.0, pause))
    return JobDefinition(
        command,
        wanted,
        rest["ranks_per_node"],
        GateMode(rest["gate"]),
        limits,
        rest["leave_seconds"],
        rest["done_seconds"],
        rest["stop_seconds"],
        rest["look_again_seconds"],
        least=min_nodes,
        socket_template=os.environ.get("HEALTHD_SOCKET") or SOCKET,
        per_node=rest["per_node"],
        progress_file=rest["progress_file"],
        preflight=_build_preflight_command(rest["preflight"], rest["preflight_command"]),
        preflight_seconds=rest["preflight_seconds"],
        notice_file=rest["notice_file"],
        warm_spares=spares if swap else 0,
        swap=swap,
        return_seconds=rest["return_seconds"],
        frozen_seconds=rest["frozen_seconds"],
        replace_nodes=rest["replace_nodes"],
    )


def _build_preflight_command(level: str, command: str) -> tuple[str, ...]:
    try:
        own = tuple(shlex.split(command))
    except ValueError as error:
        raise click.UsageError(f"--preflight-command: {error}") from error
    return own or (() if level == "off" else make_preflight_command(level))


def _select_backend(name: str, node_names: str) -> Backend:
    if name == "slurm" or (name == "auto" and "SLURM_JOB_ID" in os.environ):
        return SlurmBackend(os.environ)
    if name == "kubernetes":
        return PodBackend(os.environ)
    return LocalBackend([part.strip() for part in node_names.split(",") if part.strip()])
