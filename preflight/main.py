"""The command line: ``python -m preflight run``. One document on standard output, progress on standard error."""

from __future__ import annotations

import socket
import sys

import click
import msgspec

from preflight import runner
from preflight.judge import judge
from preflight.plan import LASTS_S, LEVELS, Plan, PlanError, plan
from preflight.results import DOCUMENT_VERSION, Document, Verdict
from vocabulary.clock import Clock, SystemClock


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def cli() -> None:
    """Prove a node fit for work."""


@cli.command()
@click.option("--level", default="gate", show_default=True, help=f"One of: {', '.join(LEVELS)}.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option("--only", multiple=True, metavar="TEST", help="Leave all other tests out; may be repeated.")
@click.option("--inject", multiple=True, metavar="TEST:FAULT", help="Commit a fault, to see that the test finds it.")
@click.option("--watchdog", multiple=True, metavar="TEST=SECONDS", help="Give a test another time limit.")
def run(level: str, output: str, only: tuple[str, ...], inject: tuple[str, ...], watchdog: tuple[str, ...]) -> None:
    """Test this node.

    Ends with 0 pass, 1 fail, 2 misconfigured (also wrong usage), 3 inconclusive: only 0 says the node is fit.
    """
    try:
        chosen = plan(level, only, inject, dict(map(_limit, watchdog)))
    except PlanError as error:
        raise click.UsageError(str(error)) from None
    document = run_plan(chosen, inject, SystemClock())
    click.echo(msgspec.json.format(msgspec.json.encode(document), indent=2) if output == "json" else page(document))
    sys.exit(document.verdict.exit_code)


def run_plan(chosen: Plan, inject: tuple[str, ...], clock: Clock) -> Document:
    """Run a plan, round after round as its level asks, judge it, and tell progress on standard error."""
    started_at, began = clock.wall(), clock.monotonic()
    wanted = [spec.test for spec in chosen.specs]
    rounds, verdict = 0, Verdict.PASS
    while verdict is Verdict.PASS and (rounds == 0 or clock.monotonic() - began < LASTS_S[chosen.level]):
        rounds += 1
        results = runner.run(chosen, clock, lambda line: click.echo(f"preflight: {line}", err=True))
        verdict, reasons = judge(wanted, results)
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
        results=results,
    )


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
