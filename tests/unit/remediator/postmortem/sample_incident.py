"""One incident, the same every time: a GPU falls off the bus under a job of four nodes, and a person must replace it."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

from remediator.model.journal_records import (
    Action,
    ActionState,
    Answer,
    AuditEvent,
    Decision,
    Facts,
    Incident,
    IncidentState,
)
from remediator.model.plan_steps import Step, StepRun, StepState, Verb
from remediator.postmortem.incident_history import IncidentHistory
from vocabulary.fault_catalogue.catalogue import Catalogue
from vocabulary.fault_catalogue.catalogue_file import load_catalogue
from vocabulary.finding import Evidence, Finding, Severity
from vocabulary.identity import Component, ComponentKind
from vocabulary.messages.evidence_bundle import EvidenceBundle, KernelLine, Missing, RankEvidence, Series, StepTaken
from vocabulary.messages.wire import Gpu
from vocabulary.order import Order, OrderKind

T = 1_790_000_000.0  # the fault
NODE = "gpu-17"
GPUS = tuple(Gpu(n, f"GPU-{n:04d}", f"0000:{0x10 + n:02x}:00.0", "NVIDIA H100 80GB HBM3") for n in range(8))
LOST = Component(ComponentKind.GPU, GPUS[3].uuid, GPUS[3].pci, 3)
INCIDENT = "inc-3f2a9c01d4"
JOB_NODES = ("gpu-16", NODE, "gpu-18", "gpu-19")


@cache
def catalogue() -> Catalogue:
    return load_catalogue()


def finding(code: str, at: float, severity: Severity, summary: str, **more: Any) -> Finding:
    return Finding(
        id=f"f-{code}",
        node=NODE,
        check="xid",
        code=code,
        component=LOST,
        severity=severity,
        summary=summary,
        first_seen=at,
        last_seen=at,
        origin=f"b:{code}",
        **more,
    )


def findings() -> list[Finding]:
    burst: Evidence = {"burst_first": "79", "burst_position": 2}
    return [
        finding("79", T, Severity.FATAL, "GPU has fallen off the bus."),
        finding(
            "154", T + 0.3, Severity.ERROR, "GPU recovery action changed to 0x2 (Node Reboot Required)", evidence=burst
        ),
    ]


def action(verb: str, node: str, at: float, took: float | None, state: ActionState, **more: Any) -> Action:
    number = f"{verb}.{node}"
    return Action(
        id=f"{INCIDENT}.d1.s0.{number}",
        incident=INCIDENT,
        decision=f"{INCIDENT}.d1",
        node=node,
        verb=verb,
        planned_at=at,
        deadline=at + 120,
        state=state,
        finished_at=None if took is None else at + took,
        **more,
    )


def abort(node: str, job: str, took: float) -> Action:
    order = Order(
        id=f"o-{node}",
        kind=OrderKind.ABORT,
        node=node,
        issued_at=T + 1,
        expires_at=T + 121,
        incident=INCIDENT,
        reason="gpu-lost",
        job=job,
        attempt=2,
        condemned=(NODE,),
    )
    data: Facts = {"mailbox_at": T + 1.2, "ranks": 8, "left_at": T + took}
    return action("abort", node, T + 1, took, ActionState.SUCCEEDED, order=order, detail="8 ranks left", data=data)


def actions(job: str) -> list[Action]:
    done = ActionState.SUCCEEDED
    return [
        action("cordon", NODE, T + 1, 0.4, done, detail="drained in slurm"),
        *(abort(node, job, 6.0 + number) for number, node in enumerate(JOB_NODES)),
        action(
            "collect_evidence", NODE, T + 1, 2.5, done, detail="812345 bytes of evidence delivered to the controller"
        ),
        action("ticket", NODE, T + 9.2, 0.8, ActionState.FAILED, detail="https://tickets.example: 503"),
    ]


def events() -> list[AuditEvent]:
    def event(after: float, kind: str, text: str, **more: Any) -> AuditEvent:
        return AuditEvent(at=T + after, kind=kind, text=text, node=NODE, incident=INCIDENT, **more)

    return [
        event(0.8, "incident_opened", f"{INCIDENT} on {NODE}: xid/79 on GPU 3"),
        event(1.0, "decision", "act by rule gpu-lost: the GPU does not answer any more"),
        event(1.0, "node_state", f"{NODE}: healthy → draining", data={"from": "healthy", "to": "draining"}),
        event(1.0, "action_planned", f"cordon of {NODE} planned"),
        event(1.4, "action_ended", f"cordon of {NODE} done: drained in slurm"),
        event(10.0, "step_failed", "ticket: a GPU fell off the bus failed (https://tickets.example: 503)"),
        event(10.1, "needs_human", f"{INCIDENT} on {NODE}: replace GPU 3"),
    ]


def curve(number: int, base: float, swing: float, *, until: float = 60.0) -> tuple[tuple[float, float], ...]:
    """A value every ten seconds of a quarter of an hour before, and up to `until` seconds after."""
    moments = [T - 840 + 10 * n for n in range(91)]
    return tuple((at, round(base + swing * math.sin(at / 47 + number), 1)) for at in moments if at <= T + until)


def rising(points: tuple[tuple[float, float], ...], by: float) -> tuple[tuple[float, float], ...]:
    return tuple((at, round(value + by * max(0.0, (at - T + 300) / 300), 1)) for at, value in points)


def bundle(job: str = "llama-70b", lines: tuple[str, ...] = ()) -> EvidenceBundle:
    series = []
    for gpu in GPUS:
        lost = gpu.index == 3
        component, until = f"gpu:{gpu.uuid}", 0.0 if lost else 60.0
        heat = curve(gpu.index, 62, 3, until=until)
        series += [
            Series("temperature", "°C", component, rising(heat, 21) if lost else heat),
            Series("power", "W", component, curve(gpu.index, 655, 30, until=until)),
            Series("SM clock", "MHz", component, curve(gpu.index, 1905, 40, until=until)),
            Series("PCIe replays", "since the driver was loaded", component, curve(gpu.index, 0, 0)),
        ]
    replays = tuple((T - 840 + 60 * n, float(max(0, n - 9)) ** 3) for n in range(15))
    series.append(Series("NVLink CRC errors", "all links", f"gpu:{GPUS[3].uuid}", replays))
    texts = lines or (
        "NVRM: Xid (PCI:0000:13:00): 79, pid=48213, name=python3, GPU has fallen off the bus.",
        "NVRM: GPU 0000:13:00.0: GPU has fallen off the bus.",
        "NVRM: Xid (PCI:0000:13:00): 154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)",
        "backup[812]: snapshot of scratch is done",
    )
    ranks = tuple(
        RankEvidence(
            job, 2, 8 + n, 32, "step", 18_250, T - 0.7, T - 0.7, alive=n != 3,
            steps=tuple(StepTaken(18_150 + k, T - 410 + 4.1 * k, round(4.05 + 0.02 * math.sin(k + n), 3)) for k in range(100)),
        )
        for n in range(8)
    )  # fmt: skip
    return EvidenceBundle(
        version=1,
        node=NODE,
        boot_id="b",
        taken_at=T + 3.5,
        from_at=T - 896.5,
        order=f"{INCIDENT}.d1.s0.collect_evidence",
        incident=INCIDENT,
        series=tuple(series),
        kernel_lines=tuple(
            KernelLine(T + 0.1 * n, text, n, 1 if "backup" in text else 0) for n, text in enumerate(texts)
        ),
        ranks=ranks,
        gpus=GPUS,
        missing=(Missing("ethernet", "absent: no such interface"),),
    )


def story(job: str = "llama-70b", **more: Any) -> IncidentHistory:
    """An open incident, told ten minutes after the fault; the job ran again after three."""
    decision = Decision(
        id=f"{INCIDENT}.d1",
        incident=INCIDENT,
        node=NODE,
        at=T + 1.0,
        answer=Answer.ACT,
        rule="gpu-lost",
        reason=f"xid/79 on {LOST} of {NODE}: the GPU does not answer any more",
        policy="shipped 1f0c9a2b",
        findings=("f-79",),
        guards=("1 of 4 nodes may be isolated, none is",),
    )
    replace = StepRun(Step(Verb.REPLACE), state=StepState.SUCCEEDED)
    ticket = StepRun(
        Step(Verb.TICKET, how="a GPU fell off the bus"),
        state=StepState.FAILED,
        detail="https://tickets.example: 503",
        actions=(f"{INCIDENT}.d1.s0.ticket.{NODE}",),
    )
    incident = Incident(
        id=INCIDENT,
        node=NODE,
        title=f"xid/79 on {LOST}: GPU has fallen off the bus.",
        opened_at=T + 0.8,
        state=IncidentState.WAITING,
        findings=("f-79", "f-154"),
        rule="gpu-lost",
        answer=Answer.ACT,
        decisions=1,
        plan=((ticket,), (replace,)),
        outcome="waits for replacement",
    )
    parts: dict[str, Any] = {
        "incident": incident,
        "as_of": T + 600,
        "catalogue": catalogue(),
        "findings": findings(),
        "decisions": [decision],
        "actions": actions(job),
        "events": events(),
        "evidence": [bundle(job)],
        "gpus": {"gpu-16": 8, "gpu-18": 8},
        "returns": {job: T + 183.0},
        "earlier": [],
    }
    return IncidentHistory(**(parts | more))
