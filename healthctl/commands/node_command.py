"""`healthctl node check` and `healthctl node evidence`."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path
from typing import Any

import click

from healthctl.node_check.output_formats import CRITICAL, FORMS, OK, UNKNOWN, WARNING, NodeJudgement
from healthctl.node_check.verdict_client import NoAnswerError, VerdictAnswer, query_verdict
from preflight.command_options import socket_option_with


def _expand_node_placeholder(_context: click.Context, _option: click.Parameter, path: str) -> str:
    """Expand the placeholder for the node name in a socket path that a whole cluster shares."""
    return path.replace("{node}", os.environ.get("HEALTHD_NODE") or socket.gethostname())


socket_option = socket_option_with(_expand_node_placeholder)
AGAIN_S = 0.5


class NagiosCommand(click.Command):
    """A command whose wrong usage exits with UNKNOWN, since Nagios reads 2 as CRITICAL."""

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        """Parse the arguments."""
        try:
            return super().make_context(*args, **kwargs)
        except click.UsageError as error:
            error.exit_code = UNKNOWN  # type: ignore[misc]  # click declares it per class, reads it per instance
            raise


@click.group(epilog="Examples: healthctl node check --type prolog; healthctl node evidence --out evidence.json")
def node() -> None:
    """Query the healthd on this node: health and recent evidence."""


@node.command("check", cls=NagiosCommand, epilog="Example: healthctl node check --type prolog")
@socket_option
@click.option(
    "--type",
    "form",
    type=click.Choice(list(FORMS)),
    default="nagios",
    show_default=True,
    help="Output format and exit codes of this monitoring system.",
)
@click.option(
    "--check",
    "only",
    multiple=True,
    metavar="GLOB",
    help="Consider only these findings, as check/code. Can be repeated.",
)
@click.option("--ignore", multiple=True, metavar="GLOB", help="Ignore these findings. Can be repeated.")
@click.option(
    "--on-unknown",
    type=click.Choice(["fail", "pass"]),
    default="fail",
    show_default=True,
    help="Result if the health is unknown.",
)
@click.option(
    "--wait",
    "wait_s",
    type=click.FloatRange(0, 300),
    default=0.0,
    show_default=True,
    help="Retry for this many seconds while the health is unknown.",
)
@click.option(
    "--timeout",
    "deadline_s",
    type=click.FloatRange(0.1, 60),
    default=5.0,
    show_default=True,
    help="Timeout of one request, in seconds.",
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Output format; json: the full verdict.",
)
def check_node(  # noqa: PLR0913 - one for each option
    path: str,
    form: str,
    only: tuple[str, ...],
    ignore: tuple[str, ...],
    on_unknown: str,
    *,
    wait_s: float,
    deadline_s: float,
    output: str,
) -> None:
    """Check whether this node is fit for work.

    \b
    nagios  0 OK, 1 WARNING (degraded), 2 CRITICAL (unfit or condemned), 3 UNKNOWN
    prolog  0 start, 1 drain this node (unfit or unknown)
    epilog  0 end, 1 drain this node (unfit)
    app     as nagios, the text alone
    nhc     0 OK: line, 1 ERROR: line
    npd     0 OK, 1 problem, 2 unknown, at most 80 bytes

    The health is unknown if healthd does not respond, its verdict is over 5 s old, or it reports unknown. This never counts
    as fit, except with --on-unknown pass.
    """  # noqa: D301 - click wants that very character
    until = time.monotonic() + wait_s
    while True:
        judgement, raw = _fetch_judgement(path, deadline_s, only, ignore)
        if judgement.state != UNKNOWN or time.monotonic() + AGAIN_S > until:
            break
        time.sleep(AGAIN_S)
    if judgement.state == UNKNOWN and on_unknown == "pass":
        judgement = judgement._replace(state=OK, text=f"unknown, passed by --on-unknown: {judgement.text}")
    reply = FORMS[form](judgement)
    text = raw.decode(errors="replace") if output == "json" else reply.text
    if text:
        click.echo(_escape_unprintable(text))
    raise SystemExit(reply.code)


@node.command("evidence", epilog="Example: healthctl node evidence --out evidence.json")
@socket_option
@click.option(
    "--out", type=click.Path(path_type=Path), metavar="FILE", help="Write to this file instead of standard output."
)
@click.option(
    "--timeout",
    "deadline_s",
    type=click.FloatRange(0.1, 300),
    default=30.0,
    show_default=True,
    help="Timeout in seconds.",
)
def write_evidence_bundle(path: str, out: Path | None, deadline_s: float) -> None:
    """Write a bundle of evidence as JSON. It covers the last 15 minutes of this node; requires root.

    Contains temperatures, power, clocks, fabric counters, kernel lines, recent training steps, and what is missing.
    Review it before sharing: it holds job names and kernel lines. FILE is readable only by you.
    """
    from healthctl.node_check.evidence_client import escape_evidence_json, fetch_evidence, write_private_file

    bundle = fetch_evidence(path, deadline_s)
    if out is None:
        click.echo(escape_evidence_json(bundle))
    else:
        write_private_file(out, bundle)
        click.echo(f"{out}: {len(bundle)} bytes", err=True)


def judge_verdict(answer: VerdictAnswer) -> int:
    """The state for the exit code. A contradictory verdict, such as healthy but unfit, is unknown."""
    if answer.condemned or answer.health == "unhealthy":
        return CRITICAL
    if answer.health == "unknown" or not answer.fit:
        return UNKNOWN
    return OK if answer.health == "healthy" else WARNING


def _fetch_judgement(
    path: str, deadline_s: float, only: tuple[str, ...], ignore: tuple[str, ...]
) -> tuple[NodeJudgement, bytes]:
    try:
        answer = query_verdict(path, deadline_s, only, ignore)
    except NoAnswerError as error:
        import json

        return NodeJudgement(UNKNOWN, str(error)), json.dumps({"error": str(error)}).encode()
    reasons = f": {'; '.join(answer.reasons)}" if answer.reasons else ""
    text = f"{answer.node} is {answer.health}{reasons}"
    return NodeJudgement(judge_verdict(answer), text, answer.age_s), answer.raw


def _escape_unprintable(text: str) -> str:
    """Like `healthctl.rendering.blocks.escape_control_chars`, without importing the codec."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
