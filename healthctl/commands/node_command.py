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
    """A template serves a whole cluster: which node this is, only this machine knows."""
    return path.replace("{node}", os.environ.get("HEALTHD_NODE") or socket.gethostname())


socket_option = socket_option_with(_expand_node_placeholder)
AGAIN_S = 0.5


class NagiosCommand(click.Command):
    """A command whose wrong usage is UNKNOWN, since Nagios reads 2 as CRITICAL."""

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        """Parse the arguments."""
        try:
            return super().make_context(*args, **kwargs)
        except click.UsageError as error:
            error.exit_code = UNKNOWN  # type: ignore[misc]  # click declares it per class, reads it per instance
            raise


@click.group(epilog="Examples: healthctl node check --type prolog; healthctl node evidence --out evidence.json")
def node() -> None:
    """Ask the daemon on this node: is it fit for work, and what led up to now."""


@node.command("check", cls=NagiosCommand, epilog="Example: healthctl node check --type prolog")
@socket_option
@click.option("--type", "form", type=click.Choice(list(FORMS)), default="nagios", show_default=True, help="Who asks.")
@click.option(
    "--check", "only", multiple=True, metavar="GLOB", help="Count only these findings, as check/code; may be repeated."
)
@click.option("--ignore", multiple=True, metavar="GLOB", help="Do not count these findings; may be repeated.")
@click.option(
    "--on-unknown", type=click.Choice(["fail", "pass"]), default="fail", show_default=True, help="What 'not known' is."
)
@click.option(
    "--wait",
    "wait_s",
    type=click.FloatRange(0, 300),
    default=0.0,
    show_default=True,
    help="Seconds to ask again while it is not known.",
)
@click.option(
    "--timeout",
    "deadline_s",
    type=click.FloatRange(0.1, 60),
    default=5.0,
    show_default=True,
    help="Seconds for one answer.",
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="json: the verdict itself.",
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
    """Is this node fit for work?

    \b
    nagios  0 OK, 1 WARNING (works, but degraded), 2 CRITICAL (unfit or condemned), 3 UNKNOWN
    prolog  0 go, 1 drain this node (unfit, or not known)
    epilog  0 go, 1 drain this node (unfit)
    app     as nagios, the text alone
    nhc     0 OK: line, 1 ERROR: line
    npd     0 fine, 1 problem, 2 not known, 80 bytes at most

    Not known is: no answer, one over 5 s old, or healthd itself not knowing. It never reads as good, unless you say
    --on-unknown pass.
    """  # noqa: D301 - click wants that very character
    until = time.monotonic() + wait_s
    while True:
        judgement, raw = _fetch_judgement(path, deadline_s, only, ignore)
        if judgement.state != UNKNOWN or time.monotonic() + AGAIN_S > until:
            break
        time.sleep(AGAIN_S)
    if judgement.state == UNKNOWN and on_unknown == "pass":
        judgement = judgement._replace(state=OK, text=f"not known, passed as told: {judgement.text}")
    reply = FORMS[form](judgement)
    text = raw.decode(errors="replace") if output == "json" else reply.text
    if text:
        click.echo(_escape_unprintable(text))
    raise SystemExit(reply.code)


@node.command("evidence", epilog="Example: healthctl node evidence --out evidence.json")
@socket_option
@click.option("--out", type=click.Path(path_type=Path), metavar="FILE", help="Write it there, not to standard output.")
@click.option(
    "--timeout",
    "deadline_s",
    type=click.FloatRange(0.1, 300),
    default=30.0,
    show_default=True,
    help="Seconds to wait.",
)
def write_evidence_bundle(path: str, out: Path | None, deadline_s: float) -> None:
    """Show the last 15 minutes of this node. What led up to now, as JSON; for root.

    Temperatures, power, clocks, fabric counters, kernel lines, the trainers' last steps, and what is missing. It holds
    job names and kernel lines: look before you pass it on. FILE is made readable by you alone.
    """
    from healthctl.node_check.evidence_client import escape_evidence_json, fetch_evidence, write_private_file

    bundle = fetch_evidence(path, deadline_s)
    if out is None:
        click.echo(escape_evidence_json(bundle))
    else:
        write_private_file(out, bundle)
        click.echo(f"{out}: {len(bundle)} bytes", err=True)


def judge_verdict(answer: VerdictAnswer) -> int:
    """The state. What contradicts itself is unknown: healthy yet unfit, say."""
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
    """As `healthctl.rendering.blocks.escape_control_chars`, which would bring the codec along."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
