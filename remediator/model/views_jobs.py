"""API views of GPUs and jobs. Times are UTC seconds, durations seconds."""

from __future__ import annotations

import msgspec

from vocabulary.finding import Finding
from vocabulary.messages.swap_messages import JobSwap
from vocabulary.messages.wire import RankStatus


class GpuView(msgspec.Struct, frozen=True, omit_defaults=True):
    """One GPU.

    `health` is unknown while its node is silent; `findings` are titles; `job` and `rank` as the rank reports.
    """

    node: str
    index: int
    uuid: str
    pci: str
    health: str
    name: str = ""
    serial: str = ""
    findings: tuple[str, ...] = ()
    job: str = ""
    rank: int | None = None


class GpuList(msgspec.Struct, frozen=True):
    """`GET /v1/gpus`, by node and index, as of `at`. The last one's ``NODE/INDEX`` is the `after` of the next page."""

    at: float
    gpus: tuple[GpuView, ...]


class JobRank(msgspec.Struct, frozen=True):
    """One rank, and the node that reports it."""

    node: str
    status: RankStatus


class ReportedSwap(msgspec.Struct, frozen=True):
    """One swap, and the node that reports it: the one where the job's launcher runs."""

    node: str
    swap: JobSwap


class JobView(msgspec.Struct, frozen=True, omit_defaults=True):
    """The newest attempt of a job that has living ranks. In listings `ranks` is left empty.

    `step` is the newest that a rank reported, `step_s` the median of its ranks' medians, `phase` that of most ranks,
    `at` the time of the newest report; `verdicts` are conclusions about the job, newest first. `swaps` are the newest, of
    all attempts, newest first; they are the launcher's own account.
    """

    job: str
    attempt: int
    world: int
    ranks_told: int
    nodes: tuple[str, ...]
    step: int = -1
    step_s: float = 0.0
    phase: str = ""
    at: float = 0.0
    verdicts: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    ranks: tuple[JobRank, ...] = ()
    swaps: tuple[ReportedSwap, ...] = ()


class JobList(msgspec.Struct, frozen=True):
    """`GET /v1/jobs`, by name, as of `at`."""

    at: float
    jobs: tuple[JobView, ...]
