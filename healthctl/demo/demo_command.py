"""`healthctl demo`: starts the cluster, runs the scenario and checks the outcome."""

from __future__ import annotations

import contextlib
import shlex
import shutil
import signal
import sys
import tempfile
from pathlib import Path

import click
import msgspec

from healthctl.demo.cluster_observer import ClusterObserver
from healthctl.demo.demo_cluster import BIN, DemoCluster, DemoOptions
from healthctl.demo.outcome_checks import DemoCheck, DemoFacts, measure_latencies_ms, read_losses, run_checks
from healthctl.demo.scenario import ABORT, GRACEFUL, KillPoint, Scenario, parse_kill
from healthctl.demo.slurm_cluster import explain_missing_slurm
from healthctl.demo.timeline import Timeline, TimelineEntry
from healthctl.demo.training import EXAMPLE
from healthctl.demo.training_jobs import Job, LocalJob, SlurmJob, Training
from healthctl.exit_codes import Exit, Failure
from healthctl.process_supervision.supervised_programs import ProgramError, SupervisedPrograms
from healthctl.rendering.blocks import format_json, output_option
from remediator.model.views import IncidentList, IncidentView, NodeList

REFERENCE_DEADLINE_S = 120.0


class StepsLost(msgspec.Struct, frozen=True):
    """Steps trained twice, per kind of exit; null if the scenario did not get that far."""

    graceful: int | None
    abort: int | None


class DemoOutcome(msgspec.Struct, frozen=True):
    """Output of `-o json`."""

    ok: bool
    checks: list[DemoCheck]
    timeline: list[TimelineEntry]
    latencies_ms: dict[str, float]
    steps_lost: StepsLost


@click.command(epilog="Example: healthctl demo --keep")
@output_option
@click.option("--keep", is_flag=True, help="Keep the working directory and its logs.")
@click.option("--dir", "workdir", type=click.Path(path_type=Path, file_okay=False),
              help="Working directory (new or empty; kept).")  # fmt: skip
@click.option(
    "--backend",
    type=click.Choice(["auto", "slurm", "local"]),
    default="auto",
    show_default=True,
    help="Scheduler; auto: a real Slurm if possible.",
)
@click.option(
    "--kill",
    metavar="TARGET[:N]@POINT",
    help="Kill healthd, remediator or rank with SIGKILL at a point of the scenario.",
)
def demo(*, output: str, keep: bool, workdir: Path | None, backend: str, kill: str | None) -> None:
    """Run a demo cluster on this machine: two faults, two kinds of recovery, and a comparison of the training results.

    While it runs, it prints the address of its web pages and the token file. Everything stops when the scenario ends;
    --keep preserves the files. '-o json' prints one document at the end instead of the timeline.

    Exit codes: 0 every check held; 1 one did not; 2 wrong usage; 3 the demo could not be run.
    """
    if not EXAMPLE.exists():
        raise Failure(f"{EXAMPLE} is missing; the demo runs from a source checkout: git clone, then make demo")
    try:
        strike = parse_kill(kill) if kill else None
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    missing = explain_missing_slurm() if backend != "local" else "requested with --backend local"
    if backend == "slurm" and missing:
        raise Failure(f"Slurm cannot be started here: {missing}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # exit as on Ctrl-C, with cleanup
    place = _prepare_workdir(workdir)
    as_json = output == "json"
    timeline = Timeline(None if as_json else sys.stdout)
    kept = keep or workdir is not None
    try:
        outcome = _run_scenario(DemoOptions(place, "local" if missing else "slurm"), timeline, strike, missing)
        kept = kept or not outcome.ok
    except (ProgramError, Failure) as error:
        kept = True
        raise Failure(f"{error}; all files remain in {place}") from error
    finally:
        timeline.end_progress()
        if not kept:
            shutil.rmtree(place, ignore_errors=True)
    if as_json:
        click.echo(format_json(outcome))
    else:
        _print_outcome(outcome, timeline, place if kept else None)
    sys.exit(Exit.OK if outcome.ok else Exit.PROBLEM)


def _prepare_workdir(wanted: Path | None) -> Path:
    if wanted is None:
        return Path(tempfile.mkdtemp(prefix="gpu-healthd-demo-"))
    wanted.mkdir(parents=True, exist_ok=True)
    if any(wanted.iterdir()):
        raise click.UsageError(f"--dir {wanted} is not empty")
    return wanted.resolve()


def _run_scenario(choices: DemoOptions, timeline: Timeline, kill: KillPoint | None, no_slurm: str) -> DemoOutcome:
    training = Training()
    with SupervisedPrograms(choices.workdir / "log") as programs, contextlib.ExitStack() as cleanup:
        cluster = DemoCluster(choices, programs)
        cleanup.callback(shutil.rmtree, cluster.beacons, ignore_errors=True)
        _print_introduction(cluster, timeline, no_slurm)
        cluster.start(lambda text: timeline.add("demo", "coming_up", text))
        timeline.add("demo", "cluster_up", f"{', '.join(cluster.nodes)} are healthy, as reported by their healthd")
        timeline.say(format_web_access(cluster.url, cluster.operator_token))
        job: Job = SlurmJob(cluster, training) if cluster.slurm else LocalJob(cluster, training)
        watch = ClusterObserver(cluster, job, training, timeline)
        trouble = ""
        try:
            Scenario(cluster, job, training, watch, timeline, kill).play()
        except ProgramError as error:
            trouble = str(error)
            timeline.add("demo", "trouble", trouble)
        facts = _collect_facts(cluster, job, training, watch, kill, trouble)
        checks = run_checks(facts)
        lost = StepsLost(facts.steps_lost(facts.graceful_node), facts.steps_lost(facts.abort_node))
        return DemoOutcome(
            all(check.ok for check in checks),
            checks,
            timeline.entries,
            measure_latencies_ms(facts, watch.first_step_at),
            lost,
        )


def _print_introduction(cluster: DemoCluster, timeline: Timeline, no_slurm: str) -> None:
    """Print what is real and what is simulated."""
    scheduler = f"no Slurm here ({no_slurm}): the built-in local scheduler"
    if cluster.slurm:
        seconds = cluster.slurm.shape.credential_s
        scheduler = f"a real Slurm; its credential lifetime is cut to {seconds} s, because a requeued job would otherwise wait for 120 s"
    timeline.headline("A cluster of five nodes on this machine")
    timeline.say(f"  scheduler   {scheduler}")
    timeline.say(f"  driver      {cluster.faults.driver}")
    timeline.say(f"  kernel log  {cluster.kernel_log}; injected faults are accepted, by configuration, and marked: *")
    timeline.say(f"  training    real, on the CPU over gloo; all files in {cluster.workdir}")
    timeline.say()


def _collect_facts(
    cluster: DemoCluster, job: Job, training: Training, watch: ClusterObserver, kill: KillPoint | None, trouble: str
) -> DemoFacts:
    """Collect what the checks need from the programs while they still run."""
    if not trouble:
        watch.until(
            lambda: cluster.programs.exit_code("reference") is not None, REFERENCE_DEADLINE_S, "the uninterrupted run"
        )
    server = cluster.server
    nodes = {node.node: node for node in server.get("/v1/nodes", NodeList).nodes}
    listed = server.get("/v1/incidents", IncidentList).incidents
    reference = read_losses(cluster.workdir / "reference" / "losses.jsonl")
    return DemoFacts(
        graceful_node=cluster.nodes[GRACEFUL],
        abort_node=cluster.nodes[ABORT],
        graceful_kind=cluster.faults.worn_kind,
        abort_kind=cluster.faults.lost_kind,
        needs_reset=cluster.faults.needs_reset,
        steps=training.steps,
        every=training.every,
        losses=read_losses(cluster.workdir / "losses.jsonl"),
        reference={row.step: row.loss for row in reference},
        launches=tuple(watch.launches),
        nodes=nodes,
        holds=cluster.scheduler.observe(cluster.nodes),
        incidents=tuple(server.get(f"/v1/incidents/{each.id}", IncidentView) for each in listed),
        events=tuple(watch.events),
        job_exit=job.exit_code(),
        killed_in_graceful=kill is not None and kill.target == "rank" and kill.point.startswith("graceful"),
        trouble=trouble,
    )


def _print_outcome(outcome: DemoOutcome, timeline: Timeline, kept: Path | None) -> None:
    timeline.headline("Duration of each step, from the detection of the fault")
    timeline.say("  (in the timeline above, a fault's line is the start of the program that causes it)")
    for name, value in outcome.latencies_ms.items():
        timeline.say(f"  {name:<42} {value:>10,.0f} ms")
    timeline.headline("What held")
    for check in outcome.checks:
        timeline.verdict(check.name, check.detail, ok=check.ok)
    timeline.say()
    if kept is not None:
        timeline.say(f"all files remain in {kept}")
    timeline.say(format_conclusion(outcome))


def format_web_access(url: str, token: Path) -> str:
    """The address of the demo's web pages and the token to log in with."""
    healthctl = shlex.quote(str(BIN / "healthctl"))
    there = f"HEALTHCTL_SERVER={url} HEALTHCTL_TOKEN_FILE={shlex.quote(str(token))}"
    return (
        f"  look        until the demo ends: {url}/ in a browser, with the token in {token}\n"
        f"              or in another terminal: {there} {healthctl} status"
    )


def format_conclusion(outcome: DemoOutcome) -> str:
    """The result, with its cost: steps trained twice are lost work, although no result is lost."""
    if not outcome.ok:
        return "FAILED: see the checks above"
    lost = outcome.steps_lost
    return (
        "OK: all checks passed, the losses equal those of an uninterrupted run; "
        f"steps trained twice: {lost.graceful} on the graceful exit, {lost.abort} on the abort"
    )
