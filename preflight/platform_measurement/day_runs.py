"""Runs the steps of a day on this node: one qualification each, in new processes, as a prolog would."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from preflight.execution.progress_output import Progress
from preflight.execution.qualification import qualify_node
from preflight.execution.worker_outcomes import build_worker_results
from preflight.execution.worker_process import TestProcess, end_processes
from preflight.execution.worker_requests import WorkerRequest, await_answers, conclude_request
from preflight.host.nvml_recording import NvmlRecording
from preflight.plan import build_plan
from preflight.platform_measurement.day_plan import DayStep
from preflight.results import Document, Result
from preflight.worker_messages import NvmlRequest
from vocabulary.clock import Clock

DRIVER_LIMIT_S = 60.0


class CheckedProgress:
    """Passes the progress on, and checks the time before each test."""

    def __init__(self, progress: Progress, check: Callable[[], None]) -> None:
        self._progress, self._check = progress, check

    def begins(self, test: str) -> None:
        """A test begins, unless `check` raises."""
        self._check()
        self._progress.begins(test)

    def ended(self, results: tuple[Result, ...]) -> None:
        """A test has ended."""
        self._progress.ended(results)


def qualify_step(
    step: DayStep, node: str, baselines: Path, clock: Clock, progress: Progress, check: Callable[[], None]
) -> Document:
    """The document of one step. Raises whatever `check` raises."""
    plan = build_plan(step.level, step.only, step.inject)
    listener = CheckedProgress(progress, check)
    return qualify_node(plan, node, step.inject, baselines, clock, listener, one_round=True)


def record_driver(clock: Clock) -> NvmlRecording:
    """The driver's answers, from a process that may hang."""
    process = TestProcess("", 1)
    try:
        turn = WorkerRequest(process, NvmlRequest(), DRIVER_LIMIT_S, clock)
        await_answers([turn], clock)
        if isinstance(turn.answer, NvmlRecording):
            return turn.answer
        return NvmlRecording(failures=(build_worker_results("", conclude_request(turn, clock))[-1].reason,))
    finally:
        end_processes([process], clock)
