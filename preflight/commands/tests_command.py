"""``tests``: lists the tests with their purpose, which is the first sentence of the test's module docstring."""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path

import click
import msgspec

from preflight.command_options import output_option
from preflight.plan import ANY_FAULT, LEVELS, SPECS, Spec


class TestRow(msgspec.Struct, frozen=True):
    """One listed test. `watchdog_s` is its maximum duration on a healthy machine, `faults` its own injectable faults."""

    test: str
    proves: str
    scope: str
    levels: tuple[str, ...]
    faults: tuple[str, ...]
    watchdog_s: float


@click.command(epilog="Example: healthctl preflight tests")
@output_option
def tests(output: str) -> None:
    """List the tests with their levels, their purpose, and the faults that `--inject` accepts."""
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
    """The first sentence of a test's file, which is parsed, not imported: it may load torch."""
    found = importlib.util.find_spec(f"preflight.checks.{test}")
    if found is None or found.origin is None:
        return ""
    said = ast.get_docstring(ast.parse(Path(found.origin).read_bytes())) or ""
    return " ".join(said.partition("\n\n")[0].split())
