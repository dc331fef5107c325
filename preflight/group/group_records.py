"""What the processes of a group tell each other, and the document that comes out. Frozen records, JSON."""

from __future__ import annotations

import enum

import msgspec

from preflight.fault_localisation.localisation_records import Kind, Why
from preflight.results import Evidence, Verdict

GROUP_VERSION = 1
UNIT = "GB/s"


class Own(msgspec.Struct, frozen=True, kw_only=True):
    """What a node's own test came to, alone. `told`: it tells healthd itself what it found."""

    verdict: Verdict
    reason: str = ""
    injected: tuple[str, ...] = ()
    told: bool = False


class ArrivalMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A process says at once that it came. `nonce` is chance: the end must name it, so none of an earlier run is believed."""

    rank: int
    node: str
    nonce: str


class NodeReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a node knows of itself, once it has tested itself. `machine` tells whether two "nodes" are one machine; `own` is None where no own test was asked for.

    `rails` are names of what each rail goes through; empty: the way that the system chooses. `facts` are None where they could not
    be read. `injected` are the faults that this process was asked to commit.
    """

    rank: int
    node: str
    machine: str
    leaf: str = ""
    own: Own | None = None
    facts: Evidence | None = {}
    rails: tuple[str, ...] = ()
    injected: tuple[str, ...] = ()
    backend: str = "gloo"


class RoundStep(msgspec.Struct, frozen=True, kw_only=True):
    """From the coordinator: one round of pairs, as ranks. The next step comes within `next_within_s` at the latest."""

    number: int
    pairs: tuple[tuple[int, int], ...]
    pair_s: float
    next_within_s: float


class Accusation(msgspec.Struct, frozen=True, kw_only=True):
    """What a node is to tell its own healthd: that it is at fault, or one of two that may be. `nic` is the adapter, where it is that."""

    verdict: Verdict
    reason: str
    nic: str = ""


class EndMessage(msgspec.Struct, frozen=True, kw_only=True):
    """From the coordinator: it is over. `heard` are the nonces of those that took part, `accused` what is said of some; both by rank."""

    exit_code: int
    heard: dict[int, str] = {}
    accused: dict[int, Accusation] = {}
    injected: tuple[str, ...] = ()


class CoordinatorMessage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One word of the coordinator: a step, or the end."""

    step: RoundStep | None = None
    end: EndMessage | None = None


class RailMeasurement(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one end of a pair saw on one rail. `rate` is per direction, both directions at once, in GB/s.

    `factor` is not 1 where a fault was injected. `wrong_words` counts words of eight bytes that did not arrive as they were sent.
    """

    rail: int | None = None
    rate: float | None = None
    why: Why = Why.MEASURED
    words: str = ""
    wrong_words: int = 0
    factor: float = 1.0


class StepAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What one end of a pair says of a step."""

    measured: tuple[RailMeasurement, ...]


class PairRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One pair on one rail in one round, of both ends' words the worse. `rate` in GB/s per direction, as measured.

    `share` is the rate that was judged, where nodes that share one machine make measured rates worthless.
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
    UNFIT = "unfit"  # its own test failed; it met nobody
    WAITS = "waits"  # its own test came to no pass for another reason; it met nobody
    ABSENT = "absent"  # it never came
    SILENT = "silent"  # it came, and then answered no more


class NodeRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One node of the group."""

    rank: int
    node: str
    standing: Standing
    leaf: str = ""
    own: Own | None = None
    facts: Evidence = {}
    rails: tuple[str, ...] = ()


class Named(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A culprit, or a suspect. `where` are one or two nodes, or leaves; `nic` is what the rail goes through there.

    `score` is the best share of the baseline that it reached, `margin` how far that lies under the bound of noise.
    """

    kind: Kind
    where: tuple[str, ...]
    rail: int | None = None
    nic: str = ""
    score: float = 0.0
    margin: float = 0.0
    evidence: tuple[str, ...] = ()


class GroupDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of a group. Times are UTC seconds; `reasons` are empty only for a pass, `remarks` change no verdict.

    `exclude` are the nodes to leave out, so that the rest can work: culprits, and one end of a culprit link. `compared` is false
    where rates say nothing (nodes share a machine, or a group of two): then pairs were tested for answers and for right data only.
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
