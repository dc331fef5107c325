"""`healthctl doctor`: what this machine lacks, and why it matters."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
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
from healthctl.output import Block, Cell, Line, Tone
from healthctl.screen import Screen, output_options
from healthd.config import Config, ConfigError, load

CONFIG = Path("/etc/gpu-healthd/healthd.yaml")
MARKS = {State.GOOD: ("ok", Tone.GOOD), State.ABSENT: ("absent", Tone.UNKNOWN), State.BAD: ("BAD", Tone.BAD)}

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


@click.command(epilog="Examples: sudo healthctl doctor; srun healthctl doctor --trainer")
@click.option(
    "--config", "path", type=click.Path(path_type=Path), help=f"healthd's configuration.  [default: {CONFIG}]"
)
@click.option(
    "--trainer", "of_trainer", is_flag=True, help="Look at the variables of a training process here, and nothing else."
)
@output_options
def doctor(screen: Screen, path: Path | None, *, of_trainer: bool) -> None:
    """Say what this machine lacks for healthd, why that matters, and what to do.

    Looks, and changes nothing. Ends with 0 if nothing is bad (what is merely absent is fine), with 1 otherwise.
    """
    advice: list[Advice] = []
    for each in trainer() if of_trainer else _machine(path):
        advice.append(each)
        if not screen.is_document:  # at once: a sick driver takes its time
            screen.show(None, partial(_lines, each))
    count = sum(each.state is State.BAD for each in advice)
    told = f"{count} bad, {sum(each.state is State.ABSENT for each in advice)} absent, of {len(advice)}."
    screen.code = Exit.PROBLEM if count else Exit.OK
    screen.show(advice, lambda: [Line(told)])


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


def _lines(advice: Advice) -> list[Block]:
    word, tone = MARKS[advice.state]
    lines: list[Block] = [Line(Cell(f"{word.ljust(7)}{advice.part}: {advice.found}", tone))]
    if advice.why:
        lines.append(Line(f"why it matters: {advice.why}", indent=9))
    if advice.todo:
        lines.append(Line(f"what to do:     {advice.todo}", indent=9))
    return lines
