"""The front door. A command's module is imported when that command runs, so that a simple one starts at once."""

from __future__ import annotations

import io
import os
import signal
import sys
from typing import Any

import click

from healthctl.cli.lazy_group import LazyGroup
from healthctl.exit_codes import Exit, Failure

# Command → where it lives, and its line in the help (reading it from there would import them all).
COMMANDS = {
    "status": ("healthctl.commands.status_command:status", "What is broken, what was done, why, what comes next."),
    "nodes": ("healthctl.commands.nodes_command:nodes", "Nodes: state, health, GPUs, findings."),
    "gpus": ("healthctl.commands.gpus_command:gpus", "GPUs: health, findings, whose rank runs there."),
    "jobs": ("healthctl.commands.jobs_command:jobs", "Training jobs: where they run, what holds them back."),
    "incidents": ("healthctl.commands.incidents_command:incidents", "Incidents: what happened, was decided and done."),
    "actions": ("healthctl.commands.actions_command:actions", "Actions: what is done, was done, waits for a person."),
    "events": ("healthctl.commands.events_command:events", "The audit log, now or as it grows."),
    "lemons": ("healthctl.commands.lemons_command:lemons", "Nodes that fail again and again."),
    "stragglers": ("healthctl.commands.stragglers_command:stragglers", "What holds training jobs back."),
    "alerts": ("healthctl.commands.alerts_command:alerts", "Who was told of what; silences."),
    "mode": ("healthctl.commands.mode_command:mode", "How far automation may go, and who said so."),
    "breaker": ("healthctl.commands.breaker_command:breaker", "What stops automation when too much fails at once."),
    "playbook": ("healthctl.commands.playbook_command:playbook", "Read, test and compare policies."),
    "node": ("healthctl.commands.node_command:node", "Ask the daemon on this node."),
    "beacon": ("healthctl.commands.beacon_command:beacon", "What each training rank on this node is doing."),
    "doctor": ("healthctl.commands.doctor_command:doctor", "What this machine lacks, and why it matters."),
    "nvhcd": ("healthctl.commands.nvhcd_command:nvhcd", "Answer NVIDIA's resiliency launcher."),
    "xid": ("healthctl.commands.xid_command:xid", "Explain and find the driver's messages."),
    "advise": ("healthctl.commands.advise_command:advise", "What numbers to choose, and what each choice costs."),
    "simulate": ("healthctl.commands.simulate_command:simulate", "Compare policies on a fleet in imagination."),
    "analyze": (
        "healthctl.commands.analyze_command:analyze",
        "Who is to blame, or nobody, in what a cluster recorded.",
    ),
    "preflight": (
        "healthctl.commands.preflight_command:preflight",
        "Prove this machine fit; read and compare what was measured.",
    ),
    "inject": ("healthctl.commands.inject_command:inject", "Write a marked test fault."),
    "launch": ("healthctl.commands.launch_command:launch", "Run a training job and bring it back after a fault."),
    "demo": ("healthctl.demo.demo_command:demo", "Show the whole path on this machine."),
    "replay": (
        "healthctl.commands.replay_command:replay",
        "The centre's record once more: as it was, or under another policy.",
    ),
    "enroll": ("healthctl.commands.enroll_command:enroll", "On a node: get a token of its own with a join secret."),
    "token": ("healthctl.commands.token_command:token", "Tokens: who may ask and who may act."),
    "up": ("healthctl.commands.up_command:up", "Run this machine as a cluster of one, with its real GPUs."),
    "completion": (
        "healthctl.commands.completion_command:completion",
        "What a shell needs to complete commands and names.",
    ),
    "man": ("healthctl.commands.man_command:man", "The man pages."),
    "version": ("healthctl.commands.version_command:version", "What is installed."),
}
# What other tools call it, or who thinks of the deed first → what to type.
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
    """What was written to has no reader. No `OSError`: of that click makes a 1, which says that a problem was found."""


class RootGroup(LazyGroup):
    """Every command there is."""

    table = COMMANDS
    elsewhere = ELSEWHERE

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        """As click does, but see `_OutputClosed`: the help is written here."""
        try:
            return super().make_context(*args, **kwargs)
        except BrokenPipeError as error:
            raise _OutputClosed from error

    def invoke(self, ctx: click.Context) -> Any:
        """As click does; but Ctrl-C is no 1, which says that a problem was found, and see `_OutputClosed`."""
        try:
            return super().invoke(ctx)
        except (KeyboardInterrupt, click.Abort):
            raise click.exceptions.Exit(Exit.INTERRUPTED) from None
        except BrokenPipeError as error:
            raise _OutputClosed from error


@click.group(
    cls=RootGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 done or good, 1 a problem was found, 2 wrong usage, 3 no answer, refused or unknown, 130 Ctrl-C.",
)
def cli() -> None:
    """Keep GPU training clusters alive: look, ask, explain, test."""


def _end_without_reader() -> None:
    """As programs end that write to a pipe whose reader has enough, such as `head`: by SIGPIPE, a shell's 141.

    Returns if standard output and standard error are still read: then it was another pipe, and no way to end.
    """
    import select

    outputs = select.poll()
    for number in (1, 2):
        outputs.register(number, 0)
    if any(state & (select.POLLERR | select.POLLHUP) for _, state in outputs.poll(0)):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # only now: earlier, a server that hangs up would end us too
        os.kill(os.getpid(), signal.SIGPIPE)


def main() -> None:
    """Entry point of the `healthctl` script."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal that lacks a letter is no reason to fail
    try:
        cli(prog_name="healthctl")
    except (_OutputClosed, BrokenPipeError) as error:
        _end_without_reader()
        Failure(f"output: {error.__cause__ or error}").show()
        sys.exit(Exit.UNKNOWN)
    except OSError as error:  # a full disk behind standard output, for one
        Failure(f"{error.filename or 'output'}: {error.strerror or error}").show()
        sys.exit(Exit.UNKNOWN)


if __name__ == "__main__":
    main()
