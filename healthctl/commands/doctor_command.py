"""`healthctl doctor`: checks what this machine needs for healthd, and why."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import click

from healthctl.cli.screen import Screen, output_options
from healthctl.doctor.daemon import check_controller, check_daemon
from healthctl.doctor.diagnosis import Diagnosis, DiagnosisState, diagnose_bad, diagnose_good
from healthctl.doctor.directory_checks import check_directories
from healthctl.doctor.driver_checks import check_driver, check_hardware
from healthctl.doctor.kernel_log_checks import check_kernel_log
from healthctl.doctor.order_prerequisites import check_order_prerequisites
from healthctl.doctor.source_checks import check_sources
from healthctl.doctor.trainer_environment import check_trainer_environment
from healthctl.exit_codes import Exit
from healthctl.rendering.blocks import Block, Cell, Line, Tone
from healthd.config import Config, ConfigError, load_node_config

CONFIG = Path("/etc/gpu-healthd/healthd.yaml")
MARKS = {
    DiagnosisState.GOOD: ("ok", Tone.GOOD),
    DiagnosisState.ABSENT: ("absent", Tone.UNKNOWN),
    DiagnosisState.BAD: ("BAD", Tone.BAD),
}

PARTS: tuple[Callable[[Config], Iterator[Diagnosis]], ...] = (
    check_hardware,
    check_order_prerequisites,
    check_kernel_log,
    check_driver,
    check_directories,
    check_sources,
    check_daemon,
    check_controller,
)


@click.command(epilog="Examples: sudo healthctl doctor; srun healthctl doctor --trainer")
@click.option(
    "--config", "path", type=click.Path(path_type=Path), help=f"Configuration file of healthd.  [default: {CONFIG}]"
)
@click.option(
    "--trainer", "of_trainer", is_flag=True, help="Check only the environment variables of a training process."
)
@output_options
def doctor(screen: Screen, path: Path | None, *, of_trainer: bool) -> None:
    """Check this machine for everything healthd needs, and recommend fixes.

    Changes nothing. Exits with 1 if a check is bad, else with 0; a check that is only absent does not count.
    """
    advice: list[Diagnosis] = []
    for each in check_trainer_environment() if of_trainer else _diagnose_machine(path):
        advice.append(each)
        if not screen.is_document:  # print each result at once: an unresponsive driver takes long
            screen.show(None, partial(_render_diagnosis, each))
    count = sum(each.state is DiagnosisState.BAD for each in advice)
    told = f"{count} bad, {sum(each.state is DiagnosisState.ABSENT for each in advice)} absent, of {len(advice)}."
    screen.code = Exit.PROBLEM if count else Exit.OK
    screen.show(advice, lambda: [Line(told)])


def _diagnose_machine(path: Path | None) -> Iterator[Diagnosis]:
    given = path or CONFIG
    try:
        config, word = _load_daemon_config(given, must_be_there=path is not None)
    except ConfigError as error:
        config, word = (
            Config(),
            diagnose_bad(
                "configuration", str(error), "healthd does not start with this configuration", f"correct {given}"
            ),
        )
    return _run_checks(config, word)


def _run_checks(config: Config, word: Diagnosis) -> Iterator[Diagnosis]:
    yield word
    for part in PARTS:
        try:
            yield from part(config)
        except Exception as error:  # noqa: BLE001 - the doctor must get through on any machine
            yield diagnose_bad(
                part.__name__, f"{type(error).__name__}: {error}", "the check failed", "please report it"
            )


def _load_daemon_config(path: Path, *, must_be_there: bool) -> tuple[Config, Diagnosis]:
    if path.exists() or must_be_there:
        config = load_node_config(path)
        return config, diagnose_good("configuration", f"{path}, node {config.node}")
    config = Config()
    why, todo = "healthd uses the defaults: no controller", "copy deploy/healthd.yaml there"
    return config, Diagnosis(part="configuration", state=DiagnosisState.ABSENT, found=f"no {path}", why=why, todo=todo)


def _render_diagnosis(advice: Diagnosis) -> list[Block]:
    word, tone = MARKS[advice.state]
    lines: list[Block] = [Line(Cell(f"{word.ljust(7)}{advice.part}: {advice.found}", tone))]
    if advice.why:
        lines.append(Line(f"why it matters: {advice.why}", indent=9))
    if advice.todo:
        lines.append(Line(f"what to do:     {advice.todo}", indent=9))
    return lines
