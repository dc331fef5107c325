"""`healthctl nvhcd`: health service for NVIDIA's resiliency launcher."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import click

from healthctl.commands.node_command import AGAIN_S, judge_verdict, socket_option
from healthctl.exit_codes import Failure
from healthctl.node_check.output_formats import UNKNOWN, NodeJudgement
from healthctl.node_check.verdict_client import NoAnswerError, query_verdict
from healthctl.nvhcd.grpc_service import HealthCheckServer, build_response
from healthctl.nvhcd.protobuf_messages import HealthCheckResponse

DEADLINE_S = 2.0
STOP_LOOK_S = 0.2


@click.command(epilog="Example: healthctl nvhcd --on-unknown pass")
@click.option(
    "--listen",
    type=click.Path(path_type=Path),
    default=Path("/run/gpu-healthd/nvhcd.sock"),
    show_default=True,
    help="UNIX socket to listen on.",
)
@socket_option
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
    type=click.FloatRange(0, 60),
    default=5.0,
    show_default=True,
    help="Retry for this many seconds while the health is unknown.",
)
def nvhcd(listen: Path, path: str, on_unknown: str, wait_s: float) -> None:
    """Serve health checks for NVIDIA's resiliency launcher (gRPC, on a UNIX socket).

    An unfit node, or one with unknown health, fails; a degraded node passes. Runs until stopped.
    """
    told: list[int] = []  # a plain list: an event's lock could be held when the handler runs
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: told.append(number))
    try:
        server = HealthCheckServer(
            listen, lambda: _answer_health_check(path, wait_s, pass_unknown=on_unknown == "pass")
        )
        server.start()
    except OSError as error:
        raise Failure(f"{error}; check that the directory exists and no other instance is running") from None
    click.echo(f"listening on {listen}")
    while not told:
        time.sleep(STOP_LOOK_S)
    server.stop()


def _answer_health_check(path: str, wait_s: float, *, pass_unknown: bool) -> HealthCheckResponse:
    until = time.monotonic() + wait_s
    while True:
        try:
            answer = query_verdict(path, DEADLINE_S)
        except NoAnswerError as error:
            judgement = NodeJudgement(UNKNOWN, str(error))
            reasons: tuple[str, ...] = ()
        else:
            judgement = NodeJudgement(judge_verdict(answer), f"{answer.node} is {answer.health}")
            reasons = answer.reasons
        if judgement.state != UNKNOWN or time.monotonic() + AGAIN_S > until:
            return build_response(judgement, reasons, pass_unknown=pass_unknown)
        time.sleep(AGAIN_S)
