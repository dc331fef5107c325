"""``tests``: what there is to run, and what each test proves, read from the tests' own first line."""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path

import click
import msgspec

from preflight.command_options import output_option
from preflight.plan import ANY_FAULT, LEVELS, SPECS, Spec


class TestRow(msgspec.Struct, frozen=True):
    """One test as it is listed. `watchdog_s` is the longest a healthy machine takes for it, `faults` are its own."""

    test: str
    proves: str
    scope: str
    levels: tuple[str, ...]
    faults: tuple[str, ...]
    watchdog_s: float


@click.command(epilog="Example: healthctl preflight tests")
@output_option
def tests(output: str) -> None:
    """List the tests: at which levels they run, what they prove, which faults `--inject` can commit."""
    rows = [_build_test_row(spec) for spec in SPECS.values()]
    if output == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(rows), indent=2))
        return
    for row in rows:
        about = {"node": "the node", "device": "each device", "peers": "the devices together"}[row.scope]
        click.echo(click.style(row.test, bold=True) + f"  ({about}; {', '.join(row.levels)})")
        click.echo(f"  {row.proves}")
        click.echo(f"  --inject {row.test}:{'|'.join((*row.faults, *ANY_FAULT))}")


def _build_test_row(spec: Spec) -> TestRow:
    levels = tuple(level for level, names in LEVELS.items() if spec.test in names)
    return TestRow(spec.test, read_test_summary(spec.test), spec.scope.value, levels, spec.faults, spec.watchdog_s)


def read_test_summary(test: str) -> str:
    """The first sentence of a test's file. The file is read and not imported: it may load torch."""
    found = importlib.util.find_spec(f"preflight.checks.{test}")
    if found is None or found.origin is None:
        return ""
    said = ast.get_docstring(ast.parse(Path(found.origin).read_bytes())) or ""
    return " ".join(said.partition("\n\n")[0].split())
