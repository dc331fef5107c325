"""A remediator's answers over real HTTP, and the command line as a user has it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import click.testing
import msgspec
import pytest

from healthctl.main import cli
from remediator.model.journal_records import OperatorHold
from remediator.model.views import (
    ActionView,
    Approval,
    CommandText,
    DecisionView,
    EventList,
    EventView,
    HoldRequest,
    IncidentList,
    IncidentView,
    NodeList,
    NodeView,
    PendingApproval,
    StatusView,
    StepView,
    UncordonRequest,
)
from remediator.model.views_actions import ActionList, AwaitingList, AwaitingView, BreakerView
from remediator.model.views_audit import AuditView
from remediator.model.views_evidence import IncidentStacks, JobStacks
from remediator.model.views_jobs import GpuList, GpuView, JobList, JobRank, JobView, ReportedSwap
from remediator.model.views_overview import IncidentSummary, NamedNodes, OverviewView, ReportFreshness
from tests.unit.healthctl.stub_controller import SmallCentre
from vocabulary.finding import Finding, Severity
from vocabulary.identity import Component, ComponentKind
from vocabulary.messages.job_hazard import NodeRisk, Placement
from vocabulary.messages.swap_messages import JobSwap, LostRank
from vocabulary.messages.wire import Gpu, Problem, RankStatus, Versions

TOKEN = "an-operators-token"
AT = 1_700_000_000.0

FINDING = Finding(
    id="f1",
    node="node1",
    check="xid",
    code="79",
    component=Component(ComponentKind.GPU, "GPU-1", "0000:3b:00.0", 3),
    severity=Severity.FATAL,
    summary="GPU has fallen off the bus.",
    first_seen=AT,
    last_seen=AT,
    origin="boot:1",
    injected=True,
)
NODES = NodeList(
    (
        NodeView(
            "node1",
            "quarantined",
            "unhealthy",
            AT,
            "XID 79 on GPU 3",
            AT,
            "inc-1",
            "gpu-healthd",
            ("7",),
            hands_off=OperatorHold("ann", "a fan is changed", AT + 3600),
            versions=Versions(healthd="0.1.0", driver="570.86.15", kernel="6.8", vbios=("96.00", "97.00")),
        ),
        NodeView("node2", "healthy", "unknown", AT, "evil \x1b[2J\x9b name\u202e\n", None),
    )
)
NODE = msgspec.structs.replace(
    NODES.nodes[0],
    gpus=(Gpu(3, "GPU-1", "0000:3b:00.0", "H200"),),
    ranks=(RankStatus("7", 1, 0, 4, 4242, 118, "forward", AT),),
    findings=(FINDING, FINDING.cleared(AT, "reset")),
)
INCIDENT = IncidentView(
    "inc-1",
    "node1",
    "acting",
    "XID 79 on GPU 3",
    AT,
    injected=True,
    steps=(StepView("abort", "done"), StepView("drain", "running", "waiting for Slurm")),
    findings=(FINDING,),
    decisions=(DecisionView("d1", AT, "start plan", "gpu-gone", "fatal on one GPU", "default@1", ("budget: 1 of 2",)),),
    actions=(ActionView("a1", "drain", "node1", "done", AT, AT + 60, AT + 1, 1, "drained", {}, "inc-1", "gpu-gone"),),
)
STEPS = (("cordon",), ("ticket", "alert"), ("replace",))
ASKING = IncidentView(
    "inc-2",
    "cluster:rack7",
    "open",
    "a rack is dark",
    AT - 60,
    awaits=(PendingApproval("inc-2.d1", "the plan of rack-dark"),),
    proposed=STEPS,
)
LISTED = msgspec.structs.replace(INCIDENT, steps=(), findings=(), decisions=(), actions=())
STATUS = StatusView(
    cluster="demo",
    version="0.1.0",
    mode="act",
    epoch=4,
    policy="default@1",
    at=AT,
    nodes_total=2,
    nodes_by_state={"healthy": 1, "quarantined": 1, "draining": 0},
    nodes_by_health={"unknown": 1, "unhealthy": 1},
    isolated=1,
    isolated_max=2,
    incidents_open=1,
    actions_open=1,
    scheduler="ok",
    blocked=("the breaker is open", "mode is observe"),
    mode_by="ann since 2023-11-14 22:13:20Z: the fabric is worked on",
    leader="this one, until it loses its lease",
    breaker="open since 2023-11-14 22:13:20Z: 6 nodes in an hour",
)
RANK = RankStatus("llama/7", 1, 9, 16, 4242, 118, "step", AT, step_median=2.5, section="forward", gpu="GPU-1")
JOB = JobView("llama/7", 1, 16, 2, ("node1", "node2"), 118, 2.5, "step", AT, ("rank 9 is a straggler",))
SWAPS = (
    JobSwap(
        job="llama/7", attempt=1, at=AT + 60, outcome="shrunk", generation=2, lost=(LostRank(3, "node2"),), lost_ranks=1,
        seconds=0.71, phases={"decided": 0.1, "met": 0.05}, lost_steps=2, step=119, ranks=8, ranks_before=16,
    ),
    JobSwap(
        job="llama/7", attempt=1, at=AT, outcome="swapped", generation=1, seconds=0.261, lost_steps=0, step=110,
        lost=(LostRank(9, "node3", "node1"), LostRank(8, "node3", "node1")), lost_ranks=4, phases={"met": 0.026},
        source="memory",
    ),
    JobSwap(job="llama/7", attempt=0, at=AT - 60, outcome="restarted", lost=(LostRank(0, "[red]n"),), reason="no spare"),
)  # fmt: skip
JOB_WHOLE = msgspec.structs.replace(
    JOB,
    swaps=tuple(ReportedSwap("node1", swap) for swap in SWAPS),
    ranks=(JobRank("node1", RANK), JobRank("node2", msgspec.structs.replace(RANK, rank=3, alive=False))),
    findings=(FINDING,),
)
GPUS = GpuList(
    at=AT,
    gpus=(
        GpuView("node1", 3, "GPU-1", "0000:3b:00.0", "unhealthy", "H200", "S1", ("fallen off the bus",), "llama/7", 9),
        GpuView("node2", 0, "GPU-2", "0000:1b:00.0", "unknown", "[red]H200[/red]"),
    ),
)
ACTIONS = ActionList(
    (
        ActionView(
            "inc-1.d1.s0.0.drain.node1", "drain", "node1", "planned", AT, AT + 60, incident="inc-1", why="gpu-gone"
        ),
    )
)
AWAITING = AwaitingList(
    (AwaitingView("inc-2", "cluster:rack7", "inc-2.d1", "the plan of rack-dark", AT - 50, "a rack is dark", STEPS),)
)
BREAKER = BreakerView(True, AT, ("2 of 2 nodes isolated", "6 of 6 isolations in an hour"), AT, "6 nodes in an hour")
EVENTS = tuple(
    EventView(seq, AT + seq, "decision", "engine", f"event {seq}", node="node1", injected=seq == 2) for seq in (1, 2, 3)
)


LINES = ("ranks 0-7", "  <module> (train.py:9)", "  rank 3, in data", "    \x9b2J (dataloader.py:7)")
STACKS = IncidentStacks((JobStacks("llama", 7, 8, AT, AT, {"collective": 7, "data": 1}, LINES),))
POSTMORTEM = '{\n "what": "evil \x9b name\u202e"\n}\n'
POSTED: list[tuple[str, msgspec.Struct]] = []  # what was heard, in order


def backwards(before: int, kind: str) -> AuditView:
    """The log from its end, two lines at a time."""
    older = [event for event in EVENTS if not before or event.seq < before][-2:]
    fitting = tuple(event for event in reversed(older) if kind in ("", event.kind))
    looked_to = older[0].seq if older and older[0].seq > 1 else 0
    return AuditView(AT, fitting, looked_to, len(EVENTS), "seal")


def overview() -> OverviewView:
    """One look, in the words of the single answers."""
    told = tuple(IncidentSummary(**msgspec.structs.asdict(each)) for each in (ASKING, INCIDENT))
    return OverviewView(
        **msgspec.structs.asdict(STATUS),
        incidents=told,
        nodes=NODES.nodes[:1],
        awaiting=AWAITING.awaiting,
        untended=NamedNodes(1, ("node2",)),
        heard=ReportFreshness(2, 1, 1, AT - 4),
    )


def as_told(node: NodeView) -> NodeView:
    """As the scheduler shows the node after what was asked for last."""
    told = {f"/v1/nodes/{node.node}/cordon": "operator", f"/v1/nodes/{node.node}/uncordon": ""}
    asked = [told[path] for path, _ in POSTED if path in told]
    return msgspec.structs.replace(node, held_by=asked[-1]) if asked else node


class Remediator(BaseHTTPRequestHandler):
    """Answers what the API's contract says, and nothing else."""

    def do_GET(self) -> None:
        path, query = urlsplit(self.path).path, parse_qs(urlsplit(self.path).query)
        if self.headers["Authorization"] != f"Bearer {TOKEN}":
            return self._say(401, Problem("this token is not known", todo="ask an operator"))
        if path == "/v1/incidents/inc-1/postmortem":
            return self._say(200, msgspec.Raw(POSTMORTEM.encode()))
        after = int(query.get("after", ["0"])[0])
        answers = {
            "/v1/status": STATUS,
            "/v1/overview": overview(),
            "/v1/nodes": NODES,
            "/v1/placement": Placement(("node1",), (NodeRisk("node2", 25.0, "a lemon"),), 1e-6, 2e-6),
            "/v1/nodes/node1": as_told(NODE),
            "/v1/nodes/node1/history": EventList(EVENTS[::-1]),
            "/v1/nodes/node2": NODES.nodes[1],
            "/v1/incidents": IncidentList((ASKING, LISTED)),
            "/v1/incidents/inc-1": INCIDENT,
            "/v1/incidents/inc-2": ASKING,
            "/v1/incidents/inc-1/stacks": STACKS,
            "/v1/incidents/inc-2/stacks": IncidentStacks(()),
            "/v1/gpus": GPUS,
            "/v1/jobs": JobList(at=AT, jobs=(JOB,)),
            "/v1/jobs/llama%2F7": JOB_WHOLE,
            "/v1/actions": ACTIONS,
            "/v1/awaiting": AWAITING,
            "/v1/breaker": BREAKER,
            "/v1/audit": backwards(int(query.get("before", ["0"])[0]), query.get("kind", [""])[0]),
            "/v1/events": EventList(tuple(event for event in EVENTS if event.seq > after)[:2]),
        }
        return self._say(200, answers[path]) if path in answers else self._say(404, Problem(f"nothing at {path}"))

    def do_POST(self) -> None:
        """Where words are heard, and what comes back where they are not understood."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        last = self.path.rpartition("/")[2]
        kinds: dict[str, type[HoldRequest | UncordonRequest | CommandText | Approval]] = {
            "hold": HoldRequest,
            "uncordon": UncordonRequest,
            "approve": Approval,
        }
        places = ("/v1/nodes/node1/", "/v1/incidents/inc-", "/v1/actions/inc-1.d1.s0.0.drain.node1/")
        if self.headers["Authorization"] != f"Bearer {TOKEN}" or not self.path.startswith(places):
            return self._say(404, Problem(f"nothing at {self.path}"))
        heard = msgspec.json.decode(body, type=kinds.get(last, CommandText))
        POSTED.append((self.path, heard))
        if isinstance(heard, HoldRequest | CommandText) and "retired" in heard.text:
            return self._say(409, Problem("it is retired"))
        return self._say(200, heard)

    def _say(self, status: int, message: msgspec.Struct | msgspec.Raw) -> None:
        body = msgspec.json.encode(message)
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Be quiet."""


@pytest.fixture
def serve() -> Iterator[Callable[[type[BaseHTTPRequestHandler]], str]]:
    """Start a server with this handler on a free port; its URL."""
    servers: list[ThreadingHTTPServer] = []

    def start(handler: type[BaseHTTPRequestHandler]) -> str:
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
        return f"http://127.0.0.1:{server.server_port}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.touch(mode=0o600)
    path.write_text(f"{TOKEN}\n")
    return path


@pytest.fixture
def small_centre() -> Iterator[SmallCentre]:
    """A controller that answers what a test writes into it."""
    centre = SmallCentre()
    yield centre
    centre.close()


@pytest.fixture
def healthctl() -> Callable[..., click.testing.Result]:
    """Run the command line in this process, with nothing of ours in the environment but `env`."""

    def invoke(*arguments: str, stdin: bytes | str | None = None, **env: str) -> click.testing.Result:
        clean: dict[str, str | None] = {"HEALTHCTL_SERVER": None, "HEALTHCTL_TOKEN_FILE": None}
        return click.testing.CliRunner().invoke(cli, arguments, input=stdin, env=clean | env, prog_name="healthctl")

    return invoke


@pytest.fixture
def asking(
    healthctl: Callable[..., click.testing.Result],
    serve: Callable[[type[BaseHTTPRequestHandler]], str],
    token_file: Path,
) -> Callable[..., click.testing.Result]:
    """The same, with a remediator to ask."""
    url = serve(Remediator)
    POSTED.clear()

    def invoke(*arguments: str) -> click.testing.Result:
        return healthctl(*arguments, HEALTHCTL_SERVER=url, HEALTHCTL_TOKEN_FILE=str(token_file))

    return invoke
