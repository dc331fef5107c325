"""Pretended training jobs with known culprits, for benches, tests and the simulator. Deterministic by seed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Columns = dict[str, npt.NDArray[np.generic]]

FORWARD = 1 / 3  # of the compute of a step


@dataclass(frozen=True)
class Fault:
    """One slow rank: by how much, since which step, until which, and how it comes (`jump`, `ramp`, `flicker`, `seldom`)."""

    rank: int
    slowdown: float
    since: int = 0
    until: int | None = None
    course: str = "jump"
    period: int = 40


@dataclass(frozen=True)
class Job:
    """What a job looks like.

    Attributes:
        steps, dp, pp, tp: its size.
        noise: standard deviation of a rank's compute from step to step, on top of the load.
        packed: standard deviation of the load of a pipeline per step (long sequences), shared by its stages.
        silicon: standard deviation of the ranks' own speeds.
        stages: factor of each stage; shorter lists are filled with 1.
        slow_product: the share of nodes, the last ones, that have a GPU that is a fifth slower.
        gc_every: steps between collections of a rank, of gc_s seconds, at different steps for each.
        checkpoint_every: steps between saves, which rank 0 spends more own time on.
        evaluate_every: steps between evaluations, in which everyone is three times as slow.
        experts: spread of a load that is uneven for good (mixture of experts), per rank.
        everyone: the job's own slowdown from two thirds on.
        warm_up: how much slower than later the first steps are, unevenly.
        tensor_waits: compute includes the waiting inside a tensor-parallel group.
        tail: degrees of freedom of the noise (Student's t), for wild values.
        drift: correlation of a rank's noise from step to step.
    """

    steps: int = 60
    dp: int = 16
    pp: int = 1
    tp: int = 1
    seconds: float = 1.5
    noise: float = 0.005
    packed: float = 0.0
    silicon: float = 0.003
    stages: tuple[float, ...] = ()
    slow_product: float = 0.0
    gc_every: int = 0
    gc_s: float = 0.3
    checkpoint_every: int = 0
    evaluate_every: int = 0
    experts: float = 0.0
    everyone: float = 0.0
    warm_up: float = 0.5
    tensor_waits: bool = False
    tail: float = 0.0
    drift: float = 0.0
    node_ranks: int = 8
    faults: tuple[Fault, ...] = field(default=())

    @property
    def ranks(self) -> int:
        """How many."""
        return self.dp * self.pp * self.tp


def compute_slowdown_course(fault: Fault, steps: int) -> Floats:
    """(S,) the factor on the rank's compute less one."""
    at = np.arange(steps)
    until = steps if fault.until is None else fault.until
    there = (at >= fault.since) & (at < until)
    shape = np.ones(steps)
    if fault.course == "ramp":
        shape = np.clip((at - fault.since + 1) / max(1, (until - fault.since) // 2), 0, 1)
    if fault.course == "flicker":
        shape = ((at - fault.since) % fault.period < fault.period // 2).astype(float)
    if fault.course == "seldom":
        shape = ((at - fault.since) % fault.period < fault.period // 5).astype(float)
    return fault.slowdown * shape * there


def draw_compute_times(job: Job, seed: int) -> tuple[Floats, Floats, Floats]:
    """(S, R) own seconds, of them in the forward pass, and tokens."""
    draw = np.random.default_rng(seed)
    s, r = job.steps, job.ranks
    pipeline, stage = np.divmod(np.arange(r) // job.tp, job.pp)
    load = np.exp(draw.normal(0, job.packed, (s, job.dp)))[:, pipeline] if job.packed else np.ones((s, r))
    seconds = job.seconds * load * np.exp(_noise(job, draw))
    seconds *= np.exp(draw.normal(0, job.silicon, r))
    seconds *= np.array([*job.stages, *([1.0] * job.pp)])[stage]
    if job.experts:
        seconds *= 1 + draw.exponential(job.experts, r)
    nodes = np.arange(r) // job.node_ranks
    slower = nodes >= np.ceil((1 - job.slow_product) * (nodes.max() + 1))
    seconds[:, slower] *= 1.2
    for fault in job.faults:
        seconds[:, fault.rank] *= 1 + compute_slowdown_course(fault, s)
    forward = seconds * FORWARD
    _now_and_then(job, draw, seconds, forward)
    cold = job.warm_up * np.exp(-np.arange(s) / 3)[:, None] * draw.uniform(0, 2, r)
    seconds, forward = seconds * (1 + cold), forward * (1 + cold)
    seconds[2 * s // 3 :] *= 1 + job.everyone
    forward[2 * s // 3 :] *= 1 + job.everyone
    if job.tensor_waits:
        together = seconds.reshape(s, -1, job.tp).max(axis=2)
        seconds = np.repeat(together, job.tp, axis=1) * np.exp(draw.normal(0, 0.002, (s, r)))
    return seconds, forward, np.round(8192 * load)


def _noise(job: Job, draw: np.random.Generator) -> Floats:
    shape = job.steps, job.ranks
    fresh = draw.standard_t(job.tail, shape) if job.tail else draw.normal(0, 1, shape)
    for step in range(1, job.steps) if job.drift else ():
        fresh[step] = job.drift * fresh[step - 1] + np.sqrt(1 - job.drift**2) * fresh[step]
    return job.noise * fresh


def _now_and_then(job: Job, draw: np.random.Generator, seconds: Floats, forward: Floats) -> None:
    at = np.arange(job.steps)
    if job.gc_every:
        collects = (at[:, None] + draw.integers(0, job.gc_every, job.ranks)[None, :]) % job.gc_every == 0
        pause = job.gc_s * draw.uniform(0.7, 1.3, seconds.shape) * collects
        seconds += pause
        forward += pause
    if job.checkpoint_every:
        seconds[at % job.checkpoint_every == 0, 0] *= 1.6
    if job.evaluate_every:
        seconds[at % job.evaluate_every == 0] *= 3
        forward[at % job.evaluate_every == 0] *= 3


def build_columns(job: Job, seed: int, name: str = "job", *, tokens: bool = False, passes: bool = True) -> Columns:
    """The rows that the ranks would have reported, as columns of the neutral format."""
    own, forward, lengths = draw_compute_times(job, seed)
    s, r = own.shape
    rank = np.arange(r)
    slowest = own.max(axis=1, keepdims=True)
    wide: Mapping[str, Floats] = {
        "compute_s": own,
        "comm_s": slowest - own + 0.1,
        "step_s": np.repeat(slowest + 0.1, r, axis=1),
        **({"forward_s": forward, "backward_s": own - forward} if passes else {}),
        **({"tokens": lengths} if tokens else {}),
    }
    flat: Columns = {key: values.reshape(-1) for key, values in wide.items()}
    flat["job"] = np.full(s * r, name)
    flat["step"], flat["rank"] = np.repeat(np.arange(s), r), np.tile(rank, s)
    for key, values in build_rank_coordinates(job).items():
        flat[key] = np.tile(values, s)
    flat["node"] = np.tile(np.array([f"n{number}" for number in rank // job.node_ranks]), s)
    return flat


def build_rank_coordinates(job: Job) -> dict[str, npt.NDArray[np.int64]]:
    """(R,) the coordinates of each rank: tensor inside pipeline inside data."""
    pipeline, stage = np.divmod(np.arange(job.ranks) // job.tp, job.pp)
    return {"dp_rank": pipeline, "pp_rank": stage, "tp_rank": np.arange(job.ranks) % job.tp, "stage": stage}
