"""The command line: ``python -m preflight run``. One document on standard output, progress on standard error."""

from __future__ import annotations

import socket
import sys
from collections.abc import Sequence

import click
import msgspec

from preflight.across.table import together
from preflight.judge import judge
from preflight.plan import LASTS_S, LEVELS, Plan, PlanError, Scope, plan
from preflight.results import DOCUMENT_VERSION, Document, Verdict
from preflight.runner import Progress, Runner
from vocabulary.clock import Clock, SystemClock


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def cli() -> None:
    """Prove a node fit for work."""


@cli.command()
@click.option("--level", default="gate", show_default=True, help=f"One of: {', '.join(LEVELS)}.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option("--only", multiple=True, metavar="TEST", help="Leave all other tests out; may be repeated.")
@click.option(
    "--inject",
    multiple=True,
    metavar="TEST:FAULT[@DEVICE]",
    help="Commit a fault, on the last device unless one is named, to see that the test finds it.",
)
@click.option("--watchdog", multiple=True, metavar="TEST=SECONDS", help="Give a test another time limit.")
def run(level: str, output: str, only: tuple[str, ...], inject: tuple[str, ...], watchdog: tuple[str, ...]) -> None:
    """Test this node.

    Ends with 0 pass, 1 fail, 2 misconfigured (also wrong usage), 3 inconclusive: only 0 says the node is fit.
    """
    try:
        chosen = plan(level, only, inject, dict(map(_limit, watchdog)))
        document = run_plan(chosen, inject, SystemClock(), tell)
    except PlanError as error:
        raise click.UsageError(str(error)) from None
    click.echo(msgspec.json.format(msgspec.json.encode(document), indent=2) if output == "json" else page(document))
    sys.exit(document.verdict.exit_code)


def tell(line: str) -> None:
    """Progress, as lines on standard error."""
    click.echo(f"preflight: {line}", err=True)


def run_plan(chosen: Plan, inject: tuple[str, ...], clock: Clock, progress: Progress) -> Document:
    """Run a plan, round after round as its level asks, and judge it.

    Raises:
        PlanError: a fault is to be committed on a device that isn't there.
    """
    started_at, began = clock.wall(), clock.monotonic()
    rounds, round_s, verdict = 0, 0.0, Verdict.PASS
    with Runner(chosen, clock, progress) as runner:
        lasts_s = LASTS_S[chosen.level] if chosen.needs(Scope.DEVICE, Scope.PEERS) else 0.0
        while rounds == 0 or clock.monotonic() - began + round_s <= lasts_s:
            round_began, rounds = clock.monotonic(), rounds + 1
            results = together(runner.round(), runner.devices)
            verdict, reasons = judge([spec.test for spec in chosen.specs], results, awaited(chosen, runner.names))
            round_s = clock.monotonic() - round_began
            if verdict is not Verdict.PASS:
                break
        devices, software = runner.devices, runner.software
    return Document(
        version=DOCUMENT_VERSION,
        level=chosen.level,
        node=socket.gethostname(),
        rounds=rounds,
        complete=len(chosen.specs) == len(LEVELS[chosen.level]),
        verdict=verdict,
        reason="; ".join(reasons),
        reasons=reasons,
        injected=inject,
        started_at=started_at,
        seconds=round(clock.monotonic() - began, 3),
        devices=devices,
        software=software,
        results=results,
    )


def awaited(chosen: Plan, names: Sequence[str]) -> dict[str, Sequence[str]]:
    """For each test of devices those that must have a result."""
    return {spec.test: names for spec in chosen.specs if spec.scope is Scope.DEVICE}


def page(document: Document) -> str:
    """The document for people."""
    lines = [
        f"  {r.outcome.value:<15} {r.test:<16} {r.device:<8} {r.seconds:6.2f} s  {r.reason}".rstrip()
        for r in document.results
    ]
    partly = "" if document.complete else " in part"
    marked = f" (injected: {', '.join(document.injected)})" if document.injected else ""
    rounds = f", {document.rounds} rounds" if document.rounds > 1 else ""
    head = (
        f"{document.node}: {document.verdict.value.upper()} at level {document.level}{partly} "
        f"in {document.seconds:.1f} s{rounds}{marked}"
    )
    return "\n".join([head, *lines, *(f"because: {reason}" for reason in document.reasons)])


def _limit(word: str) -> tuple[str, float]:
    test, _, seconds = word.partition("=")
    try:
        limit = float(seconds)
    except ValueError:
        limit = 0.0
    if not 0 < limit <= 86_400:
        raise click.UsageError(f"--watchdog {word!r}: give TEST=SECONDS, more than 0 and at most a day")
    return test, limit
