"""`healthctl doctor`: what this machine lacks, and why it matters."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import click

from healthctl.doctor.advice import Advice, State, bad, good
from healthctl.doctor.daemon import centre, daemon
from healthctl.doctor.driver import driver, hardware
from healthctl.doctor.kernel_log import kernel_log
from healthctl.doctor.places import places
from healthctl.doctor.sources import sources
from healthctl.doctor.trainer import trainer
from healthctl.doctor.work import work
from healthctl.exits import Exit
from healthctl.output import clean, json_text, output_option
from healthd.config import Config, ConfigError, load

CONFIG = Path("/etc/gpu-healthd/healthd.yaml")
MARKS = {State.GOOD: "ok     ", State.ABSENT: "absent ", State.BAD: "BAD    "}

PARTS: tuple[Callable[[Config], Iterator[Advice]], ...] = (
    hardware,
    work,
    kernel_log,
    driver,
    places,
    sources,
    daemon,
    centre,
)


@click.command()
@click.option(
    "--config", "path", type=click.Path(path_type=Path), help=f"healthd's configuration.  [default: {CONFIG}]"
)
@click.option(
    "--trainer", "of_trainer", is_flag=True, help="Look at the variables of a training process here, and nothing else."
)
@output_option
def doctor(path: Path | None, output: str, *, of_trainer: bool) -> None:
    """What this machine lacks for healthd, why that matters, and what to do.

    Looks, and changes nothing. Ends with 0 if nothing is bad (what is merely absent is fine), with 1 otherwise.
    """
    advice: list[Advice] = []
    for each in trainer() if of_trainer else _machine(path):
        advice.append(each)
        if output == "table":
            click.echo(_lines(each))
    if output == "json":
        click.echo(json_text(advice))
    count = sum(each.state is State.BAD for each in advice)
    if output == "table":
        click.echo(f"\n{count} bad, {sum(each.state is State.ABSENT for each in advice)} absent, of {len(advice)}.")
    raise SystemExit(Exit.PROBLEM if count else Exit.OK)


def _machine(path: Path | None) -> Iterator[Advice]:
    given = path or CONFIG
    try:
        config, word = _config(given, must_be_there=path is not None)
    except ConfigError as error:
        config, word = Config(), bad("configuration", str(error), "healthd does not start with it", f"correct {given}")
    return _all(config, word)


def _all(config: Config, word: Advice) -> Iterator[Advice]:
    yield word
    for part in PARTS:
        try:
            yield from part(config)
        except Exception as error:  # noqa: BLE001 - the doctor must get through on any machine
            yield bad(
                part.__name__, f"{type(error).__name__}: {error}", "the doctor could not look", "please report it"
            )


def _config(path: Path, *, must_be_there: bool) -> tuple[Config, Advice]:
    if path.exists() or must_be_there:
        config = load(path)
        return config, good("configuration", f"{path}, node {config.node}")
    config = Config()
    why, todo = "the defaults are taken: no remediator", "copy deploy/healthd.yaml there"
    return config, Advice(part="configuration", state=State.ABSENT, found=f"no {path}", why=why, todo=todo)


def _lines(advice: Advice) -> str:
    lines = [f"{MARKS[advice.state]}{advice.part}: {clean(advice.found)}"]
    if advice.why:
        lines.append(f"         why it matters: {advice.why}")
    if advice.todo:
        lines.append(f"         what to do:     {advice.todo}")
    return "\n".join(lines)
