"""What a node tells in these tests: GPUs, ranks, findings, with words that try to be more than words."""

from __future__ import annotations

import time

from tests.unit.remediator.api.in_process_controller import Inside
from vocabulary.finding import Finding, Severity, finding_id
from vocabulary.health import Health
from vocabulary.identity import Component, ComponentKind
from vocabulary.messages.swap_messages import JobSwap
from vocabulary.messages.wire import FindingChange, Gpu, RankStatus, Report, Versions, encode_message

EVIL = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>{{7*7}}\x1b[2J\u202e"
GPU = Component(ComponentKind.GPU, "GPU-1", "0000:3b:00.0", 0)


def finding(
    node: str, summary: str = "a row waits to be remapped", severity: Severity = Severity.ERROR, code: str = "pending"
) -> Finding:
    now = time.time()
    return Finding(
        id=finding_id(node, "row_remap", code, GPU, "o"),
        node=node,
        check="row_remap",
        code=code,
        component=GPU,
        severity=severity,
        summary=summary,
        first_seen=now - 60,
        last_seen=now,
        origin="o",
    )


def report(
    centre: Inside,
    node: str = "n1",
    seq: int = 1,
    findings: tuple[Finding, ...] = (),
    job: str = "",
    health: Health = Health.HEALTHY,
    product: str = "NVIDIA H100",
    *,
    swaps: tuple[JobSwap, ...] = (),
) -> None:
    """Have a node tell this, and wait until it is durable."""
    now = time.time()
    ranks = (RankStatus(job, 0, 3, 16, 1, 41, "step", now, step_median=1.25, gpu="GPU-1"),) if job else ()
    body = Report(
        version=1,
        node=node,
        boot_id="b",
        agent="a",
        seq=seq,
        sent_at=now,
        ttl_s=600,
        health=health,
        changes=tuple(FindingChange(n + 1, f) for n, f in enumerate(findings)),
        active=findings,
        gpus=(Gpu(0, "GPU-1", "0000:3b:00.0", product, "1652"),),
        ranks=ranks,
        swaps=swaps,
        versions=Versions(healthd="0.1", driver="570.1", kernel="6.8"),
    )
    answer = centre.call("POST", f"/v1/nodes/{node}/report", node, encode_message(body))
    assert answer.status == 200, answer.body
