"""``admit``: removes the startup taint from a Kubernetes node that has passed preflight."""

from __future__ import annotations

import os
import socket
import sys

import click

from preflight.commands.report_command import read_documents
from preflight.integrations.kubernetes_taint import KEY, TaintError, has_taint, read_cluster_api, remove_taint
from preflight.report.output_formats import FILE_OR_DASH, CommandError
from preflight.report.value_format import escape_text
from preflight.results import Document, Verdict
from vocabulary.clock import SystemClock

NOT_ADMITTED = 3
OLD_S = 3600.0


@click.command(epilog="Example: healthctl preflight admit result.json")
@click.argument("file", metavar="[FILE|-]", type=FILE_OR_DASH, required=False)
@click.option(
    "--within", default=60.0, show_default=True, type=click.FloatRange(1, 3600), help="Retry for this many seconds."
)
def admit(file: str | None, within: float) -> None:
    """Remove the taint gpu-healthd.dev/untested from this node if FILE, a document of `run`, qualifies it.

    FILE must contain a full pass of this node from the last hour, without injected faults. Without FILE, only checks for the
    taint. Runs in a pod of the node (deploy/kubernetes/startup-taint.yaml). Exits with 0 if the taint is absent, else with 3.
    """
    node = os.environ.get("HEALTHD_NODE") or socket.gethostname()
    try:
        why = _explain_refusal(file, node, within)
    except TaintError as error:
        raise CommandError(escape_text(str(error))) from None
    click.echo(f"{escape_text(node)}: {KEY} is {f'present: {escape_text(why)}' if why else 'absent'}", err=True)
    sys.exit(NOT_ADMITTED if why else 0)


def _explain_refusal(file: str | None, node: str, within: float) -> str:
    """Why the taint stays; "" if it is absent."""
    if file is None:
        return "not tested yet" if has_taint(read_cluster_api(os.environ), node, within) else ""
    (document,) = read_documents((file,))
    if why := explain_unqualified(document, node, SystemClock().wall()):
        return why
    remove_taint(read_cluster_api(os.environ), node, within)
    return ""


def explain_unqualified(document: Document, node: str, now: float) -> str:
    """Why a document does not qualify `node` at `now` (UTC s); "" if it does."""
    if document.node != node:
        return f"the document is for node {document.node}"
    if document.verdict is not Verdict.PASS:
        return f"the verdict is {document.verdict.value}: {document.reason}"
    if document.injected or not document.complete:
        return "the pass does not count: a fault was injected, or tests were left out"
    if not -60.0 <= now - document.started_at - document.seconds <= OLD_S:
        return "the pass is older than one hour"
    return ""
