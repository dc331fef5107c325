"""Messages between the processes of a group, and the resulting document. Frozen records, JSON."""

from __future__ import annotations

import enum

import msgspec

from preflight.fault_localisation.localisation_records import Kind, Why
from preflight.group.gpu_direct import GpuDirect, GpuDirectUse
from preflight.results import Evidence, Verdict

GROUP_VERSION = 1
UNIT = "GB/s"


class SelfTestResult(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a node's own test. `told`: the test reports to healthd itself."""

    verdict: Verdict
    reason: str = ""
    injected: tuple[str, ...] = ()
    told: bool = False


class ArrivalMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A process announces its arrival. The end message must contain `nonce`, so that messages of an earlier run are rejected."""

    rank: int
    node: str
    nonce: str


class NodeReport(msgspec.Struct, frozen=True, kw_only=True):
    """A node's own data after its self-test. `machine` identifies the host; `own` is None without a self-test.

    `rails` names the interface of each rail; empty: the system's choice. `facts` are None if unreadable. `injected` are the
    faults to inject in this process.
    """

    rank: int
    node: str
    machine: str
    leaf: str = ""
    own: SelfTestResult | None = None
    facts: Evidence | None = {}
    rails: tuple[str, ...] = ()
    injected: tuple[str, ...] = ()
    backend: str = "gloo"


class RoundStep(msgspec.Struct, frozen=True, kw_only=True):
    """From the coordinator: one round of pairs, as ranks. The next step follows within `next_within_s`."""

    number: int
    pairs: tuple[tuple[int, int], ...]
    pair_s: float
    next_within_s: float


class Accusation(msgspec.Struct, frozen=True, kw_only=True):
    """Tells a node's healthd that the node is at fault, or one of two suspects. `nic` is the adapter, if that is the cause."""

    verdict: Verdict
    reason: str
    nic: str = ""


class EndMessage(msgspec.Struct, frozen=True, kw_only=True):
    """From the coordinator: the end. `heard` are the nonces of the participants, `accused` the accusations; both by rank."""

    exit_code: int
    heard: dict[int, str] = {}
    accused: dict[int, Accusation] = {}
    injected: tuple[str, ...] = ()


class CoordinatorMessage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One message of the coordinator: a step, or the end."""

    step: RoundStep | None = None
    end: EndMessage | None = None


class RailMeasurement(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one end of a pair measured on one rail. `rate` is per direction, with both at once, in GB/s.

    `factor` is not 1 if a fault was injected. `wrong_words` counts words of eight bytes that arrived modified.
    """

    rail: int | None = None
    rate: float | None = None
    why: Why = Why.MEASURED
    words: str = ""
    wrong_words: int = 0
    factor: float = 1.0


class StepAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """One end's result of a step. `gpu_direct` is what its NCCL has logged since the start."""

    measured: tuple[RailMeasurement, ...]
    gpu_direct: GpuDirectUse = GpuDirectUse()


class PairRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One pair on one rail in one round, with the worse of both ends' results. `rate` in GB/s per direction, as measured.

    `share` is the judged rate, if nodes on one machine make measured rates meaningless.
    """

    round: int
    a: str
    b: str
    rail: int | None = None
    rate: float | None = None
    share: float | None = None
    why: Why = Why.MEASURED
    words: str = ""
    wrong_words: int = 0


class Standing(str, enum.Enum):
    """How a node took part."""

    TESTED = "tested"
    UNFIT = "unfit"  # its own test failed; it was not paired
    WAITS = "waits"  # its own test did not pass for another reason; it was not paired
    ABSENT = "absent"  # it never arrived
    SILENT = "silent"  # it arrived, and then stopped responding


class NodeRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One node of the group. `gpu_direct`: whether NCCL used GPUDirect RDMA on all its channels; unknown without RDMA."""

    rank: int
    node: str
    standing: Standing
    leaf: str = ""
    own: SelfTestResult | None = None
    facts: Evidence = {}
    rails: tuple[str, ...] = ()
    gpu_direct: GpuDirect = GpuDirect.UNKNOWN


class Named(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A culprit, or a suspect. `where` are one or two nodes, or leaves; `nic` is the rail's interface there.

    `score` is its best share of the baseline, `margin` the distance below the noise bound.
    """

    kind: Kind
    where: tuple[str, ...]
    rail: int | None = None
    nic: str = ""
    score: float = 0.0
    margin: float = 0.0
    evidence: tuple[str, ...] = ()


class GroupDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a group. Times are UTC seconds; `reasons` are empty only for a pass, `remarks` change no verdict.

    `exclude` are the nodes to leave out, so that the rest can work: culprits, and one end of a culprit link. `compared` is false
    if rates mean nothing (nodes share a machine, or a group of two): then pairs were tested only for answers and correct data.
    """

    version: int
    level: str
    verdict: Verdict
    reason: str
    reasons: tuple[str, ...]
    remarks: tuple[str, ...]
    injected: tuple[str, ...]
    coordinator: str
    launcher: str
    backend: str
    unit: str
    compared: bool
    started_at: float
    seconds: float
    rounds: int
    culprits: tuple[Named, ...]
    suspects: tuple[Named, ...]
    cleared: tuple[str, ...]
    unknown: tuple[str, ...]
    exclude: tuple[str, ...]
    nodes: tuple[NodeRecord, ...]
    pairs: tuple[PairRecord, ...]
