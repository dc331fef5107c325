"""Checks of the environment variables that decide how a training process behaves when NCCL fails or hangs.

Run it where the ranks run: `srun healthctl doctor --trainer`. The defaults named here are PyTorch 2.13's.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from healthctl.doctor.diagnosis import Diagnosis, diagnose_absent, diagnose_bad, diagnose_good
from healthctl.doctor.torch_variables import TorchInstallation, installed_torch
from vocabulary.text.plurals import format_count

TRUE = ("y", "yes", "1", "t", "true")
FALSE = ("n", "no", "0", "f", "false")
HEARTBEAT_S = (60, 900)
NOBODY_READS = {
    "NCCL_TIMEOUT": "init_process_group(timeout=...) is the only deadline of a collective (10 minutes for NCCL)",
    "TORCH_NCCL_TIMEOUT": "init_process_group(timeout=...) is the only deadline of a collective (10 minutes for NCCL)",
    "NCCL_HEARTBEAT_TIMEOUT_SEC": "the name is TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC",
    "NCCL_ENABLE_MONITORING": "the name is TORCH_NCCL_ENABLE_MONITORING",
    "NCCL_DUMP_ON_TIMEOUT": "the name is TORCH_NCCL_DUMP_ON_TIMEOUT",
    "NCCL_TRACE_BUFFER_SIZE": "the name is TORCH_FR_BUFFER_SIZE",
}


class EnvironmentVariable(NamedTuple):
    """One variable: its default, its effect, and the check of a value ('' is good, else what to do)."""

    name: str
    unset: str
    does: str
    judge: Callable[[str], str]
    severe: bool = True


def _forbid_values(
    unwanted: tuple[str, ...], todo: str, allowed: tuple[str, ...] = TRUE + FALSE
) -> Callable[[str], str]:
    def judge(value: str) -> str:
        if value.lower() not in allowed:
            return f"torch refuses to start with it; one of {', '.join(allowed)}"
        return todo if value.lower() in unwanted else ""

    return judge


def _require_range(low: int, high: int, todo: str) -> Callable[[str], str]:
    def judge(value: str) -> str:
        try:
            number = int(value)
        except ValueError:
            return "torch refuses to start with it; a whole number"
        return "" if low <= number <= high else todo

    return judge


VARIABLES = (
    EnvironmentVariable(
        "TORCH_NCCL_ASYNC_ERROR_HANDLING",
        "3: the process ends when a collective fails or times out (torchrun sets 1: the same, communicators aborted first)",
        "0 lets a rank wait forever for a dead peer; 2 aborts the communicator and continues training in an undefined state",
        _forbid_values(("0", "2"), "unset it", ("0", "1", "2", "3")),
    ),
    EnvironmentVariable(
        "TORCH_NCCL_BLOCKING_WAIT",
        "off",
        "each wait blocks the host, and errors are no longer handled asynchronously: the variable above is overridden",
        _forbid_values(TRUE, "unset it"),
    ),
    EnvironmentVariable(
        "TORCH_NCCL_ENABLE_MONITORING",
        "on: a thread ends the process if the watchdog itself is stuck",
        "if off, a watchdog that hangs in a CUDA call is never detected, nor is any other failure",
        _forbid_values(FALSE, "unset it"),
    ),
    EnvironmentVariable(
        "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC",
        "480 s",
        "how long a stuck watchdog is tolerated; too short kills ranks that only load or compile, too long holds GPUs idle",
        _require_range(
            *HEARTBEAT_S, f"between {HEARTBEAT_S[0]} and {HEARTBEAT_S[1]} s; not above the collectives' own timeout"
        ),
    ),
    EnvironmentVariable(
        "TORCH_NCCL_RETHROW_CUDA_ERRORS",
        "on: a CUDA error seen by the watchdog ends the process",
        "if off, a rank whose GPU has failed keeps running, and its peers wait until they time out",
        _forbid_values(FALSE, "unset it"),
    ),
    EnvironmentVariable(
        "TORCH_NCCL_DUMP_ON_TIMEOUT",
        "on: every rank writes its flight recorder when one of them times out",
        "if off, nothing shows which rank did not join the collective",
        _forbid_values(FALSE, "unset it"),
    ),
    EnvironmentVariable(
        "TORCH_FR_BUFFER_SIZE",
        "2000 collectives remembered",
        "0 disables the flight recorder: nothing shows which rank did not join the collective",
        _require_range(1, 1 << 20, "unset it, or 2000"),
    ),
    EnvironmentVariable(
        "TORCH_NCCL_TRACE_BUFFER_SIZE",
        "2000; the older name of TORCH_FR_BUFFER_SIZE; it still decides whether NCCL's watchdog dumps",
        "0 disables the dump even if TORCH_FR_BUFFER_SIZE is above it",
        _require_range(1, 1 << 20, "unset it, or the same as TORCH_FR_BUFFER_SIZE"),
    ),
    EnvironmentVariable(
        "TORCH_FR_DUMP_TEMP_FILE",
        "a file per rank below ~/.cache/torch: on a shared home all jobs write the same files",
        "where the flight recorder is written; the rank's number is appended",
        lambda value: "" if value.startswith("/") else "an absolute path that names the job",
    ),
    EnvironmentVariable(
        "TORCH_NCCL_DESYNC_DEBUG",
        "off",
        "each collective writes to the store; for debugging a hang, not for production",
        _forbid_values(TRUE, "unset it when the hang is understood", TRUE + FALSE),
        severe=False,
    ),
    EnvironmentVariable(
        "TORCH_NCCL_ENABLE_TIMING",
        "off",
        "one more event per collective, and the watchdog queries CUDA for times, which can hang",
        _forbid_values(TRUE, "unset it when the measurement is done"),
        severe=False,
    ),
    EnvironmentVariable(
        "TORCH_NCCL_NAN_CHECK",
        "off",
        "reads every tensor that is sent, and stops the kernel on a NaN: costs bandwidth, and the GPU's context with it",
        _forbid_values(TRUE, "unset it when the NaN is found"),
        severe=False,
    ),
    EnvironmentVariable(
        "CUDA_LAUNCH_BLOCKING",
        "off",
        "the host waits for each kernel it launches: a debugging aid, much slower, and no communication overlaps with work",
        _forbid_values(("1",), "unset it", ("0", "1")),
    ),
)


def check_trainer_environment(
    environ: Mapping[str, str] | None = None, torch: TorchInstallation | None = None
) -> Iterator[Diagnosis]:
    """Check every variable that decides how a rank fails.

    Args:
        environ: environment of the training process; None is this process's.
        torch: the torch it will import; None searches for it.
    """
    environ = os.environ if environ is None else environ
    torch = torch or installed_torch()
    if torch is None:
        why = "without its headers, the variables it reads are unknown; the advice is for PyTorch 2.13"
        yield diagnose_absent("torch", "not found from here", why, "run this with the Python of the training job")
    else:
        yield diagnose_good(
            "torch", f"{torch.version} reads {format_count(len(set(torch.reads.values())), 'variable')} of these kinds"
        )
    reads = torch.reads if torch else {}
    as_read = {**{reads[name]: environ[name] for name in environ if name in reads}, **environ}
    for variable in VARIABLES:
        yield _diagnose_variable(variable, as_read)
    yield from _check_unknown_names(environ, torch)


def _diagnose_variable(variable: EnvironmentVariable, environ: Mapping[str, str]) -> Diagnosis:
    value = environ.get(variable.name)
    if value is None:
        return diagnose_good(variable.name, f"not set: {variable.unset}")
    todo = variable.judge(value)
    if not todo:
        return diagnose_good(variable.name, f"{value} (not set: {variable.unset})")
    if variable.severe or todo.startswith("torch refuses"):
        return diagnose_bad(variable.name, value, variable.does, todo)
    return diagnose_absent(variable.name, f"{value}: a debugging setting left on", variable.does, todo)


def _check_unknown_names(environ: Mapping[str, str], torch: TorchInstallation | None) -> Iterator[Diagnosis]:
    """Check for deprecated names, and names that no version reads, which have no effect although they are set."""
    reads = torch.reads if torch else {}
    judged = {variable.name for variable in VARIABLES}
    for name in sorted(environ):
        if name in NOBODY_READS:
            why = "a deadline or dump seems to be set, but is not"
            yield diagnose_bad(
                name, f"{environ[name]}: not read by any version of PyTorch", why, f"unset it; {NOBODY_READS[name]}"
            )
        elif name == "TORCH_NCCL_AVOID_RECORD_STREAMS":
            yield diagnose_absent(
                name,
                environ[name],
                "its effect is the default of current PyTorch: it is ignored, with a warning",
                "unset it",
            )
        elif name in judged:
            continue
        elif reads.get(name, name) != name:
            new = reads[name]
            ruled = " (which is also set and takes precedence)" if new in environ else ""
            why = "deprecated: still read with a warning, but may be removed"
            yield diagnose_absent(name, f"{environ[name]}: read as {new}{ruled}", why, f"set {new} instead")
        elif torch and name not in reads and name.startswith(("TORCH_NCCL_", "TORCH_FR_")):
            why = f"no header of torch {torch.version} names it: mistyped, from another version, or internal to the library"
            yield diagnose_absent(
                name, environ[name], why, "compare it with PyTorch's list of ProcessGroupNCCL variables"
            )
