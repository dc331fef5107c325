"""``compile``: compiles the GPU kernels of the tests ahead of time."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import click
import msgspec

from preflight.execution.kernel_cache import CACHE_VARIABLE, choose_kernel_cache
from preflight.execution.worker_process import PACKAGES
from preflight.exit_codes import guard_exit_code, print_note
from preflight.report.output_formats import CommandError
from preflight.worker_messages import CompiledKernels

LIMIT_S = 600.0
TRITON_DEFAULT = Path("~/.triton/cache")
_ARCHITECTURE = re.compile(r"(?:sm_)?([1-9]\d)\.?(\d)|(?:sm_)?([7-9])\.?(\d)", re.ASCII)
_OLDEST = 75  # Turing: Triton compiles for no older one


def parse_architecture(_: click.Context, __: click.Parameter, values: tuple[str, ...]) -> tuple[int, ...]:
    """``sm_90``, ``90`` and ``9.0`` are 90, that of an H200."""
    found = []
    for value in values:
        match = _ARCHITECTURE.fullmatch(value)
        number = int("".join(part for part in match.groups() if part)) if match else 0
        if number < _OLDEST:
            raise click.BadParameter(f"{value!r}: give an architecture of {_OLDEST} or newer, such as sm_90")
        found.append(number)
    return tuple(found)


@click.command(name="compile", epilog="Example: healthctl preflight compile --architecture sm_90 --cache /opt/kernels")
@click.option(
    "--architecture",
    "architectures",
    multiple=True,
    metavar="sm_NN",
    callback=parse_architecture,
    help="Compile for this GPU architecture, which need not be present. Can be repeated.  [default: this node's]",
)
@click.option(
    "--cache",
    type=click.Path(file_okay=False, path_type=Path),
    help="Triton's cache folder.  [default: TRITON_CACHE_DIR, or the one that tests use]",
)
def compile_kernels(architectures: tuple[int, ...], cache: Path | None) -> None:
    """Compile the GPU kernels of all tests ahead of time, so that a node's first gate compiles nothing.

    Run it when a node or its image is installed. A folder copied from elsewhere works by HEALTHD_PREFLIGHT_KERNELS, with the
    same Triton. Kernels need no GPU and no C compiler; Triton's launcher needs a C compiler and the driver's libcuda.so.1, once.

    Exits with 0 if all was compiled or the launcher alone was not, 3 if kernels were not.
    """
    with guard_exit_code():
        if importlib.util.find_spec("triton") is None:
            raise CommandError(
                "Triton is not installed here; install the PyTorch of the jobs, with CUDA, and try again"
            )
        chosen = {CACHE_VARIABLE: str(cache.absolute())} if cache else choose_kernel_cache() | dict(os.environ)
        folder = chosen.get(CACHE_VARIABLE, str(TRITON_DEFAULT.expanduser()))
        for made in _run_compiler(architectures, dict(os.environ) | chosen):
            click.echo(f"sm_{made.architecture}: {made.kernels} kernels in {folder}, {made.seconds:.1f} s")
            if made.launcher:
                print_note(
                    f"Triton's launcher was not compiled ({made.launcher}); the first test on the node compiles it, which needs a C compiler"
                )


def _run_compiler(architectures: tuple[int, ...], environment: dict[str, str]) -> list[CompiledKernels]:
    """Compile in a process of its own, which a driver may hang.

    Raises:
        CommandError: it failed or took too long.
    """
    environment = {name: value for name, value in environment.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-m", "preflight.checks.kernel_compilation", *map(str, architectures)]
    try:
        done = subprocess.run(
            command, env=environment, cwd=PACKAGES, capture_output=True, text=True, check=False, timeout=LIMIT_S
        )
    except subprocess.TimeoutExpired:
        raise CommandError(f"kernels are not compiled after {LIMIT_S:.0f} s; check the load, and the driver") from None
    if done.returncode:
        why = next(
            (line for line in reversed(done.stderr.splitlines()) if line.strip()), f"exit code {done.returncode}"
        )
        raise CommandError(f"kernels were not compiled: {why.strip()}")
    return [msgspec.json.decode(line, type=CompiledKernels) for line in done.stdout.splitlines()]
