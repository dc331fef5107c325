"""Entry point of `healthctl`. A command's module is imported when the command runs, so that commands start fast."""

from __future__ import annotations

import gc
import io
import os
import signal
import sys
from typing import Any

import click

from healthctl.cli.lazy_group import LazyGroup
from healthctl.exit_codes import Exit, Failure

# Command → ("module:name", one-line help). The help stands here so that `--help` imports no command.
COMMANDS = {
    "status": ("healthctl.commands.status_command:status", "Show what is broken, what was done and what comes next."),
    "nodes": ("healthctl.commands.nodes_command:nodes", "Show and manage nodes."),
    "gpus": ("healthctl.commands.gpus_command:gpus", "List GPUs with health, findings and ranks."),
    "jobs": ("healthctl.commands.jobs_command:jobs", "Show training jobs, their progress and what slows them down."),
    "incidents": ("healthctl.commands.incidents_command:incidents", "Show and handle incidents."),
    "actions": ("healthctl.commands.actions_command:actions", "Show, approve and cancel actions."),
    "events": ("healthctl.commands.events_command:events", "Show or follow the audit log."),
    "lemons": ("healthctl.commands.lemons_command:lemons", "List nodes that fail repeatedly."),
    "stragglers": ("healthctl.commands.stragglers_command:stragglers", "List what slows training jobs down."),
    "alerts": ("healthctl.commands.alerts_command:alerts", "Show notifications and manage silences."),
    "mode": ("healthctl.commands.mode_command:mode", "Show or set the automation mode."),
    "breaker": ("healthctl.commands.breaker_command:breaker", "Show and reset the breaker."),
    "playbook": (
        "healthctl.commands.playbook_command:playbook",
        "Lint, test and compare policies, and explain decisions.",
    ),
    "node": ("healthctl.commands.node_command:node", "Query the healthd on this node."),
    "beacon": ("healthctl.commands.beacon_command:beacon", "Show what each training rank on this node is doing."),
    "doctor": ("healthctl.commands.doctor_command:doctor", "Check what this machine needs for healthd."),
    "nvhcd": ("healthctl.commands.nvhcd_command:nvhcd", "Serve health checks for NVIDIA's resiliency launcher."),
    "xid": ("healthctl.commands.xid_command:xid", "Explain driver messages and find them in logs."),
    "advise": ("healthctl.commands.advise_command:advise", "Recommend a checkpoint interval, spares or a placement."),
    "simulate": ("healthctl.commands.simulate_command:simulate", "Compare policies on a simulated fleet."),
    "analyze": (
        "healthctl.commands.analyze_command:analyze",
        "Analyze recorded files for stuck ranks, failing nodes and stragglers.",
    ),
    "preflight": (
        "healthctl.commands.preflight_command:preflight",
        "Test whether a node is fit for a job.",
    ),
    "inject": ("healthctl.commands.inject_command:inject", "Inject a marked test fault."),
    "launch": ("healthctl.commands.launch_command:launch", "Run a training job and restart it after a fault."),
    "demo": ("healthctl.demo.demo_command:demo", "Run a demo cluster with two faults on this machine."),
    "replay": (
        "healthctl.commands.replay_command:replay",
        "Replay recorded history under the same or another policy.",
    ),
    "enroll": ("healthctl.commands.enroll_command:enroll", "Get this node its own token with a join secret."),
    "token": ("healthctl.commands.token_command:token", "Manage access tokens."),
    "up": ("healthctl.commands.up_command:up", "Run this machine as a single-node cluster."),
    "completion": (
        "healthctl.commands.completion_command:completion",
        "Print a shell completion script.",
    ),
    "man": ("healthctl.commands.man_command:man", "Print or write the man pages."),
    "version": ("healthctl.commands.version_command:version", "Show the installed versions."),
}
# Names from other tools, and verbs without their group → the command to suggest.
ELSEWHERE = {
    "ack": "incidents ack",
    "approve": "actions approve",
    "audit": "events",
    "cordon": "nodes cordon",
    "drain": "nodes cordon",
    "explain": "playbook explain",
    "findings": "nodes show",
    "history": "nodes history",
    "hold": "nodes hold",
    "log": "events",
    "logs": "events",
    "policy": "playbook",
    "release": "nodes release",
    "resolve": "incidents resolve",
    "resume": "nodes uncordon",
    "silence": "alerts silence",
    "story": "nodes history",
    "top": "status --watch",
    "uncordon": "nodes uncordon",
    "undrain": "nodes uncordon",
}


class _OutputClosed(Exception):
    """The reader of the output has gone. Not an `OSError`, which click maps to exit code 1, "a problem was found"."""


class RootGroup(LazyGroup):
    """The command group of all commands."""

    table = COMMANDS
    elsewhere = ELSEWHERE

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        """As click does, but handles `_OutputClosed`, since the help is written here."""
        try:
            return super().make_context(*args, **kwargs)
        except BrokenPipeError as error:
            raise _OutputClosed from error

    def invoke(self, ctx: click.Context) -> Any:
        """As click does, but Ctrl-C does not exit with 1 ("a problem was found"), and `_OutputClosed` is handled."""
        try:
            return super().invoke(ctx)
        except (KeyboardInterrupt, click.Abort):
            raise click.exceptions.Exit(Exit.INTERRUPTED) from None
        except BrokenPipeError as error:
            raise _OutputClosed from error


@click.group(
    cls=RootGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 success, 1 a problem was found, 2 wrong usage, 3 no response, refused or unknown, 130 Ctrl-C.",
)
def cli() -> None:
    """Control and inspect the health of a GPU training cluster."""


def _end_without_reader() -> None:
    """Exit as programs do when the reader of their pipe closes it, such as `head`: by SIGPIPE, exit code 141 in a shell.

    Returns if standard output and standard error still have readers: then another pipe broke, and this exit is wrong.
    """
    import select

    outputs = select.poll()
    for number in (1, 2):
        outputs.register(number, 0)
    if any(state & (select.POLLERR | select.POLLHUP) for _, state in outputs.poll(0)):
        signal.signal(
            signal.SIGPIPE, signal.SIG_DFL
        )  # only now: earlier, a server that closes its connection would end this process
        os.kill(os.getpid(), signal.SIGPIPE)


def main() -> None:
    """Entry point of the `healthctl` script."""
    gc.set_threshold(50_000)  # imports make many objects and no garbage: looking for some took a twentieth of `status`
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal that lacks a character must not cause a failure
    try:
        cli(prog_name="healthctl")
    except (_OutputClosed, BrokenPipeError) as error:
        _end_without_reader()
        Failure(f"output: {error.__cause__ or error}").show()
        sys.exit(Exit.UNKNOWN)
    except OSError as error:  # such as a full disk behind standard output
        Failure(f"{error.filename or 'output'}: {error.strerror or error}").show()
        sys.exit(Exit.UNKNOWN)


if __name__ == "__main__":
    main()
