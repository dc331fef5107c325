"""A simulated fleet for a real controller: 512 nodes, three jobs, and faults in every state that a page can show.

Nodes, jobs and people are simulated. The controller is a real process, with real decisions and pages, used over HTTP.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import requests
from msgspec.structs import replace

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
from vocabulary.messages.wire import (
    FindingChange,
    Gpu,
    OrdersReply,
    RankStatus,
    Report,
    StepWindow,
    Versions,
    decode_message,
    encode_message,
)
from vocabulary.order import OrderKind, OrderState, OrderUpdate

NODES, PER_RACK, PER_SWITCH, PER_STAGE, GPUS = 512, 16, 64, 40, 8
JOBS = {
    "llama-405b": range(1, 321),
    "moe-8x22b": range(321, 417),
    "sft-70b": range(433, 449),
    "eval-suite": range(449, 465),
    "vit-22b": range(465, 473),
}
SLOW, SLOWER_BY, WATCHED = 440, 0.24, "sft-70b"
STEP, STEP_S, WINDOWS, WINDOW_STEPS = 18_432, 0.52, 16, 8
TELLS_S = 2.5  # longer than the controller's interval between checks of a job
SILENT = (205, 206)
LONG_S, SHORT_S = 3600.0, 8.0  # how long a node's report stays valid
START_WITHIN_S, ANSWER_WITHIN_S = 30.0, 30.0
AT_ONCE = 8
HOST = Component(ComponentKind.HOST)
NEVER: frozenset[OrderKind] = frozenset()  # orders that a node is still executing
AT_SAVE = frozenset({OrderKind.CHECKPOINT_THEN_EJECT})
AT_RESET, AT_TEST = frozenset({OrderKind.RESET_GPU}), frozenset({OrderKind.RUN_PREFLIGHT})

CONFIG = """\
cluster: helios
listen: 127.0.0.1:{port}
database: sqlite:///{place}/controller.db
topology: {place}/topology.yaml
mode: act
scheduler: {{kind: local, state_file: {place}/holds.json, poll_busy_s: 0.2}}
budget: {{isolated_max: 10, isolation_gap_s: 0, isolated_fraction_per_hour_max: 1, isolations_per_hour_max: 20, open_per_switch_max: 8, common_cause_nodes: 9}}
limits: {{person_per_s: 1000, person_burst: 10000}}
"""


class Trouble(NamedTuple):
    """The faults of a node. `busy` are orders still running while the picture is taken."""

    check: str
    code: str
    severity: Severity
    summary: str
    busy: frozenset[OrderKind] = AT_SAVE
    gpu: int = 3


TROUBLES = {
    240: Trouble("temperature", "high", Severity.WARNING, "91 °C, 11 °C above its siblings, for 6 min"),
    421: Trouble("row_remap", "pending", Severity.ERROR, "a worn memory row waits for a reset", AT_RESET),
    455: Trouble("xid", "79", Severity.FATAL, "Xid 79: GPU has fallen off the bus", NEVER, 5),
    467: Trouble("xid", "74", Severity.ERROR, "Xid 74: NVLink error, link 11 does not carry data"),
    469: Trouble("xid", "74", Severity.ERROR, "Xid 74: NVLink error, link 4 does not carry data"),
    490: Trouble("xid", "48", Severity.FATAL, "Xid 48: double-bit ECC error", AT_TEST, 1),
    506: Trouble("row_remap", "pending", Severity.ERROR, "a worn memory row waits for a reset", NEVER),
}
PAST: dict[int, Evidence] = {
    64: {"probability": 0.93, "incidents": 7, "service_d": 41.0, "advice": "test", "multiplier": 38.0, "repairs": 1},
    291: {"probability": 0.58, "incidents": 4, "service_d": 63.0, "advice": "watch", "multiplier": 14.0, "repairs": 0},
    470: {"probability": 0.41, "incidents": 3, "service_d": 88.0, "advice": "watch", "multiplier": 9.0, "repairs": 0},
}


class DemoFleet:
    """The controller and its nodes, from `start` to `stop`. `token` is an operator's."""

    def __init__(self, place: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self._config = place / "controller.yaml"
        self._config.write_text(CONFIG.format(port=port, place=place))
        (place / "topology.yaml").write_text(_topology())
        self._seq = dict.fromkeys(range(1, NODES + 1), 0)
        self._healed: set[int] = set()
        self._left: set[int] = set()  # nodes whose ranks have exited
        self._steps = STEP
        self._known: dict[int, list[str]] = {}
        self._obeying = threading.Thread(target=self._obey_all, name="nodes", daemon=True)
        self._ended = threading.Event()
        self._nodes = ThreadPoolExecutor(AT_ONCE)
        self._process: subprocess.Popen[bytes] | None = None
        self.token = self._prepare()

    def start(self) -> None:
        """Start the controller and let every node report.

        Raises:
            TimeoutError: the controller does not respond.
        """
        command = [sys.executable, "-m", "remediator", "serve", "--config", str(self._config)]
        self._process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + START_WITHIN_S
        while not self._answers():
            if time.monotonic() > deadline:
                raise TimeoutError(f"the controller at {self.url} does not answer within {START_WITHIN_S:g} s")
            time.sleep(0.1)
        list(self._nodes.map(self.report, self._seq))
        for path, body in (
            (f"{format_node_name(300)}/hold", {"text": "fan replacement, ask Kim"}),
            (f"{format_node_name(402)}/cordon", {"text": "kept for the network team"}),
            (f"{format_node_name(512)}/retire", {"text": "given back to its vendor"}),
        ):
            self._call("POST", f"/v1/nodes/{path}", self.token, json=body).raise_for_status()
        self._obeying.start()

    def stop(self) -> None:
        """End the nodes, then the controller."""
        self._ended.set()
        self._nodes.shutdown()
        if self._obeying.is_alive():
            self._obeying.join()
        if self._process is not None:
            self._process.terminate()
            self._process.wait(ANSWER_WITHIN_S)

    def words(self) -> set[str]:
        """The states and healths of all nodes."""
        status = self._call("GET", "/v1/status", self.token).json()
        return {*status["nodes_by_state"], *status["nodes_by_health"]}

    def stragglers(self) -> int:
        """The number of straggler verdicts."""
        return len(self._call("GET", "/v1/stragglers", self.token).json()["stragglers"])

    def report(self, number: int) -> None:
        """A node's full report."""
        self._seq[number] += 1
        now, trouble = time.time(), TROUBLES.get(number)
        found = () if trouble is None or number in self._healed else (_finding(number, trouble, now),)
        worst = found[0].severity if found else Severity.INFO
        report = Report(
            version=1,
            node=format_node_name(number),
            boot_id=f"boot-{number}",
            agent=f"agent-{number}",
            seq=self._seq[number],
            sent_at=now,
            ttl_s=SHORT_S if number in SILENT else LONG_S,
            health={Severity.INFO: Health.HEALTHY, Severity.WARNING: Health.DEGRADED}.get(worst, Health.UNHEALTHY),
            changes=tuple(FindingChange(self._seq[number], each) for each in found),
            active=found,
            gpus=tuple(
                Gpu(g, format_gpu_uuid(number, g), f"0000:{16 * g + 0x1B:02x}:00.0", "NVIDIA H100 80GB HBM3")
                for g in range(GPUS)
            ),
            ranks=() if number in self._left else _ranks(number, self._steps, now),
            versions=Versions(healthd="0.1.0", driver="570.124.06", kernel="6.8.0-55", image="train-2026.10"),
        )
        path = f"/v1/nodes/{report.node}/report"
        self._call("POST", path, format_node_name(number), data=encode_message(report)).raise_for_status()

    def _obey_all(self) -> None:
        ordered = {*TROUBLES, *JOBS["eval-suite"], *JOBS["vit-22b"]}
        while not self._ended.wait(TELLS_S):
            self._steps += WINDOWS * WINDOW_STEPS
            for number in JOBS[WATCHED]:
                self.report(number)
            for number in ordered:
                self._obey(number)

    def _obey(self, number: int) -> None:
        """Execute the controller's orders for this node, until it is busy."""
        path, known = f"/v1/nodes/{format_node_name(number)}/orders", self._known.setdefault(number, [])
        busy = TROUBLES[number].busy if number in TROUBLES else NEVER
        for order in decode_message(self._call("GET", path, format_node_name(number)).content, OrdersReply).orders:
            if order.id in known:
                continue
            known.append(order.id)
            if order.kind is OrderKind.ABORT and number in TROUBLES:
                self._left.add(number)
            if order.kind is OrderKind.RESET_GPU and order.kind not in busy:
                self._healed.add(number)
            state = OrderState.RUNNING if order.kind in busy else OrderState.SUCCEEDED
            update = OrderUpdate(id=order.id, state=state, at=time.time())
            self._call("POST", f"{path}/{order.id}", format_node_name(number), data=encode_message(update))
            self.report(number)

    def _prepare(self) -> str:
        """A database with all tokens and the nodes' history; returns the operator's token."""
        config = load_config(self._config)
        journal = Journal(config.database)
        journal.prepare()
        tokens, now = Tokens(journal.engine), time.time()
        token = tokens.issue(Role.OPERATOR, "ann", now)
        self._tokens = {
            format_node_name(number): tokens.issue(Role.NODE, format_node_name(number), now) for number in self._seq
        }
        term = LeaderTerm(config, PolicyReloader(config), journal, LongPollWakeups(), lambda _why: None)
        term.start()
        for number in PAST:
            known = FindingsReported(at=now, node=format_node_name(number), boot_id=f"boot-{number}", active=())
            term.service.engine.submit_durably(known).result(ANSWER_WITHIN_S)
        past = tuple(_lemon(number, told, now) for number, told in PAST.items())
        term.service.engine.submit_durably(VerdictsReached(at=now, findings=past)).result(ANSWER_WITHIN_S)
        term.stop()
        journal.close()
        return token

    def _answers(self) -> bool:
        try:
            return requests.get(f"{self.url}/healthz", timeout=1).ok
        except requests.RequestException:
            return False

    def _call(self, method: str, path: str, token: str, **more: object) -> requests.Response:
        headers = {"Authorization": f"Bearer {self._tokens.get(token, token)}"}
        return requests.request(method, self.url + path, headers=headers, timeout=ANSWER_WITHIN_S, **more)  # type: ignore[arg-type]  # what requests takes by name


def format_node_name(number: int) -> str:
    """A node's name."""
    return f"gpu-{number:04}"


def format_gpu_uuid(number: int, gpu: int) -> str:
    """A GPU's."""
    return f"GPU-{number:08x}-{gpu:04x}-4e1a-9c00-0242ac120002"


def _topology() -> str:
    lines = [
        f"  {format_node_name(number)}: {{rack: r{(number - 1) // PER_RACK + 1:02}, switch: leaf{(number - 1) // PER_SWITCH + 1:02}, "
        f"partitions: [{'train' if number <= 416 else 'research'}]}}"
        for number in range(1, NODES + 1)
    ]
    return "\n".join(["nodes:", *lines, ""])


def _finding(number: int, trouble: Trouble, now: float) -> Finding:
    gpu = trouble.gpu
    component = Component(ComponentKind.GPU, format_gpu_uuid(number, gpu), f"0000:{16 * gpu + 0x1B:02x}:00.0", gpu)
    return Finding(
        id=finding_id(format_node_name(number), trouble.check, trouble.code, component, "boot"),
        node=format_node_name(number),
        check=trouble.check,
        code=trouble.code,
        component=component,
        severity=trouble.severity,
        summary=trouble.summary,
        first_seen=now,
        last_seen=now,
        origin="boot",
    )


def _lemon(number: int, told: Evidence, now: float) -> Finding:
    code, severity = ("suspected", Severity.WARNING) if told["advice"] == "test" else ("watched", Severity.INFO)
    words = (
        f"a lemon with probability {told['probability']:.2f}: {told['incidents']} incidents in "
        f"{told['service_d']:.0f} days of service; advice: {told['advice']}"
    )
    return build_detector_finding(
        (format_node_name(number), HOST),
        (lemon_findings.CHECK, code),
        lemon_findings.ORIGIN,
        severity,
        words,
        now,
        told,
    )


def _ranks(number: int, step: int, now: float) -> tuple[RankStatus, ...]:
    for job, nodes in JOBS.items():
        if number not in nodes:
            continue
        first, spread = (number - nodes.start) * GPUS, 0.004 * (number % 7)
        own = STEP_S * (0.9 + spread + (SLOWER_BY if number == SLOW else 0.0))
        waits = max(0.02, STEP_S * 1.25 - own)
        step_s = own + waits
        windows = tuple(
            StepWindow(step - (WINDOWS - n) * WINDOW_STEPS, WINDOW_STEPS, WINDOW_STEPS, step_s, None, None, waits)
            for n in range(WINDOWS)
        )
        common = RankStatus(
            job=job,
            attempt=1,
            rank=first,
            world=len(nodes) * GPUS,
            pid=4000,
            step=step,
            phase="step",
            at=now,
            step_seconds=step_s,
            section="backward",
            step_median=step_s,
            sections_median={"data": 0.03, "communication": waits},
            pipeline_stage=(number - nodes.start) // PER_STAGE,
            tensor_group=number,
            windows=windows,
        )
        return tuple(
            replace(common, rank=first + g, pid=4000 + g, data_group=g, gpu=format_gpu_uuid(number, g))
            for g in range(GPUS)
        )
    return ()
