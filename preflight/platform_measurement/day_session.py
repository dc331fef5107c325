"""One session on one node: runs the steps that fit into the time, and builds the document of whatever was measured."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import msgspec

from preflight.expectations.result_judgement import Knowledge
from preflight.host.nvml_recording import NvmlRecording
from preflight.plan import PlanError
from preflight.platform_measurement.day_analysis import (
    build_noises,
    collect_facts,
    collect_goldens,
    collect_rounding,
    judge_faults,
    list_ceilings,
    measure_scatter,
    summarise_gate,
)
from preflight.platform_measurement.day_plan import DayStep, estimate_seconds, plan_steps
from preflight.platform_measurement.day_records import (
    DAY_VERSION,
    DayDocument,
    Ending,
    FalseAlarms,
    FaultReport,
    FigureScatter,
    Stage,
    StageReport,
)
from preflight.platform_measurement.false_alarms import count_false_alarms
from preflight.results import Document, Verdict
from vocabulary.clock import Clock

ANALYSIS_SHARE, ANALYSIS_S_MAX = 0.1, 20.0  # of the time, kept for the simulation of false alarms
SIMULATED = (16, 25)  # fleets, and nodes judged in each


class OutOfTimeError(Exception):
    """The time is up in the middle of a run, which is given up."""


class StageProgress(msgspec.Struct, kw_only=True):
    """One stage so far."""

    planned: int = 0
    done: int = 0
    seconds: float = 0.0
    notes: list[str] = []

    def skip(self, why: str) -> None:
        """Note once why a step is missing."""
        self.notes = list(dict.fromkeys([*self.notes, why]))


class DaySession:
    """The measurements of one session. `run_steps` may be interrupted at any moment; `build_document` needs none to be complete."""

    def __init__(
        self,
        qualify: Callable[[DayStep], Document],
        record: Callable[[], NvmlRecording],
        clock: Clock,
        minutes: float,
        say: Callable[[str], None],
    ) -> None:
        """`qualify` runs one step, `record` asks the driver, `say` is told what happens."""
        self._qualify, self._record, self._clock, self._say = qualify, record, clock, say
        self._minutes = minutes
        self._began, self._started_at = clock.monotonic(), clock.wall()
        self._steps = plan_steps()
        self._stages = {stage: StageProgress() for stage in Stage}
        self._stages[Stage.DRIVER].planned = 1
        for step in self._steps:
            self._stages[step.stage].planned += 1
        self._driver = NvmlRecording()
        self._gates: list[Document] = []
        self._faults: list[FaultReport] = []
        self.ending = Ending.COMPLETE

    @property
    def steps_end_s(self) -> float:
        """When runs must have ended, by the monotonic clock."""
        whole_s = 60 * self._minutes
        return self._began + whole_s - min(ANALYSIS_S_MAX, ANALYSIS_SHARE * whole_s)

    def check_time(self) -> None:
        """Between two tests of a run.

        Raises:
            OutOfTimeError: the time is up. The first gate may take longer, since without it nothing is measured.
        """
        if self._gates and self._clock.monotonic() > self.steps_end_s:
            raise OutOfTimeError

    def run_steps(self) -> None:
        """Record the driver's answers, then run every step that fits. A run that raises an error is noted, and left out."""
        self.ending = Ending.INTERRUPTED  # unless it comes to its end
        self._run(Stage.DRIVER, self._record_driver, "recording the driver's answers")
        for number, step in enumerate(self._steps, 1):
            estimated_s = estimate_seconds(step, *self._measure_gate())
            if self._gates and self._clock.monotonic() + estimated_s > self.steps_end_s:
                self._stages[step.stage].skip("not reached: no time left")
                continue
            self._run(step.stage, functools.partial(self._run_step, step), f"{number}/{len(self._steps)} {step}")
            if not self._gates or not self._gates[0].devices:
                self._stages[step.stage].skip("the gate found no device to test")
                self.ending = Ending.NO_DEVICE
                return
        reached = all(stage.done == stage.planned for stage in self._stages.values())
        self.ending = Ending.COMPLETE if reached else Ending.OUT_OF_TIME

    def _run(self, stage: Stage, act: Callable[[], None], words: str) -> None:
        progress, began = self._stages[stage], self._clock.monotonic()
        self._say(f"{words}, {(began - self._began) / 60:.1f} of {self._minutes:g} min")
        try:
            act()
            progress.done += 1
        except OutOfTimeError:
            progress.skip("not reached: a run was given up when the time was over")
        except PlanError:
            raise
        except Exception as error:  # noqa: BLE001 - what was measured so far is worth more than a stack
            progress.skip(f"a run failed: {type(error).__name__}: {error}")
        finally:
            progress.seconds += self._clock.monotonic() - began

    def _record_driver(self) -> None:
        self._driver = self._record()

    def _run_step(self, step: DayStep) -> None:
        document = self._qualify(step)
        if step.stage is Stage.GATES:
            self._gates.append(document)
        else:
            self._faults += judge_faults(step.inject, document)

    def _measure_gate(self) -> tuple[float, float]:
        """The seconds of the longest gate so far, and those of its tests."""
        gates = [summarise_gate(document) for document in self._gates]
        return max(((gate.seconds, sum(gate.tests.values())) for gate in gates), default=(0.0, 0.0))

    def build_document(self, node: str, knows: Knowledge, *, simulate: bool = True) -> DayDocument:
        """Everything measured so far. `simulate` false: without the false alarms, which take seconds."""
        gates = self._gates
        figures = measure_scatter(gates)
        passed = next((gate for gate in reversed(gates) if gate.verdict is Verdict.PASS), None)
        last = passed or (gates[-1] if gates else None)
        return DayDocument(
            version=DAY_VERSION,
            stages=tuple(
                StageReport(
                    stage=stage,
                    planned=each.planned,
                    done=each.done,
                    seconds=round(each.seconds, 1),
                    notes=tuple(each.notes),
                )
                for stage, each in self._stages.items()
            ),
            ending=self.ending,
            node=node,
            minutes=self._minutes,
            started_at=self._started_at,
            seconds=round(self._clock.monotonic() - self._began, 1),
            devices=last.devices if last else (),
            software=last.software if last else {},
            facts=collect_facts(last) if last else {},
            driver=self._driver,
            gates=tuple(map(summarise_gate, gates)),
            figures=figures,
            false_alarms=self._simulate(last, figures, knows) if last and simulate else (),
            ceilings=list_ceilings(last, figures, knows.table) if last else (),
            faults=tuple(self._faults),
            rounding=collect_rounding(gates),
            goldens=collect_goldens(gates),
            gate=passed,
        )

    def _simulate(self, gate: Document, figures: Sequence[FigureScatter], knows: Knowledge) -> tuple[FalseAlarms, ...]:
        """With and without a baseline, each for half of the time that is left."""
        self._say("simulating healthy nodes with this scatter")
        noises, found = build_noises(figures, gate.devices), []
        for measured, parts in ((True, 2), (False, 1)) if noises else ():
            now = self._clock.monotonic()
            until = now + (self._began + 60 * self._minutes - now) / parts
            alarms = count_false_alarms(
                noises,
                gate.devices,
                measured=measured,
                size=SIMULATED,
                knows=Knowledge(table=knows.table),
                time_left=functools.partial(self._is_before, until),
            )
            found.append(alarms)
        return tuple(found)

    def _is_before(self, until: float) -> bool:
        return self._clock.monotonic() < until
