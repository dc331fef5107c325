"""A controller with two nodes, of which one is faulty, for those who look at its pages in a browser."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from browser import Browser
from controller_process import Controller

from remediator.api.handler_context import LongPollWakeups
from remediator.config import load_config
from remediator.engine.policy_reload import PolicyReloader
from remediator.model.credentials import Role
from remediator.model.pipeline_inputs import FindingsReported, VerdictsReached
from remediator.monitoring import lemon_findings
from remediator.monitoring.detector_findings import build_detector_finding
from remediator.serving.leader_term import LeaderTerm
from remediator.store.journal import Journal
from remediator.store.token_store import Tokens
from vocabulary.finding import Evidence, Finding, Severity, finding_id
from vocabulary.health import Health
from vocabulary.identity import Component, ComponentKind
from vocabulary.messages.wire import FindingChange, Gpu, RankStatus, Report, encode_message

EVIL = "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">\x1b]0;owned\x07{{7*7}}"
WITHIN_S = 90.0
GPU = Component(ComponentKind.GPU, "GPU-0", "0000:00:00.0", 0)


@contextmanager
def serving(place: Path, mode: str = "act", lemon: str = "") -> Iterator[Controller]:
    """A controller in this mode; besides its operator ann there is vic, who may look. `lemon`: why n1 is one; empty: it is none."""
    controller = Controller(place)
    controller.config.write_text(controller.config.read_text().replace("mode: act", f"mode: {mode}"))
    journal = Journal(f"sqlite:///{place}/r.db")
    controller.tokens["vic"] = Tokens(journal.engine).issue(Role.VIEWER, "vic", time.time())
    journal.close()
    if lemon:
        remember_a_lemon(controller.config, "n1", lemon)
    controller.start()
    yield controller
    if controller.process is not None and controller.process.poll() is None:
        controller.end(signal.SIGKILL)


@contextmanager
def window(controller: Controller) -> Iterator[Browser]:
    """An operator's, on its pages."""
    browser = Browser(controller.url)
    browser.log_in(controller.tokens["ann"])
    yield browser
    browser.close()


def remember_a_lemon(config: Path, node: str, why: str) -> None:
    """Write into the database of a controller that does not run yet what a watch of weeks would have concluded of a node."""
    known = load_config(config)
    journal = Journal(known.database)
    term = LeaderTerm(known, PolicyReloader(known), journal, LongPollWakeups(), lambda _why: None)
    term.start()
    now, engine = time.time(), term.service.engine
    engine.submit_durably(FindingsReported(at=now, node=node, boot_id="b", active=())).result(WITHIN_S)
    told: Evidence = {"probability": 0.87, "incidents": 5, "service_d": 30.0, "advice": "test"}
    about = (node, Component(ComponentKind.HOST))
    lemon = build_detector_finding(
        about, (lemon_findings.CHECK, "suspected"), lemon_findings.ORIGIN, Severity.WARNING, why, now, told
    )
    engine.submit_durably(VerdictsReached(at=now, findings=(lemon,))).result(WITHIN_S)
    term.stop()
    journal.close()


def tell(
    controller: Controller, node: str, summary: str = "", ranks: tuple[RankStatus, ...] = (), product: str = "H100"
) -> None:
    """A node's whole word; with a summary, also of a fault."""
    now = time.time()
    fault = Finding(
        id=finding_id(node, "row_remap", "pending", GPU, "o"),
        node=node,
        check="row_remap",
        code="pending",
        component=GPU,
        severity=Severity.ERROR,
        summary=summary,
        first_seen=now - 5,
        last_seen=now,
        origin="o",
    )
    found = (fault,) if summary else ()
    message = Report(
        version=1,
        node=node,
        boot_id="b",
        agent="a",
        seq=int(now * 1e6),  # later than any before
        sent_at=now,
        ttl_s=600,
        health=Health.UNHEALTHY if summary else Health.HEALTHY,
        changes=tuple(FindingChange(n + 1, f) for n, f in enumerate(found)),
        active=found,
        gpus=tuple(Gpu(g, f"GPU-{g}", f"0000:{g:02x}:00.0", product) for g in range(8)),
        ranks=ranks,
    )
    assert controller.call("POST", f"/v1/nodes/{node}/report", node, data=encode_message(message)).ok
