"""Simulated jobs of the hard cases: whole stages, slow nodes in noise, links, and everyone at once. Deterministic by seed.

They share nothing with `bench/traces.py`: ranks are numbered tensor first, then data, then stages, as Megatron does, so
that a stage fills whole nodes; noise is a gamma law, apart in each pass or common to both; a collective ends for all of
its group at once, a transfer after its latest member started.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Columns = dict[str, npt.NDArray[np.generic]]

FORWARD_S, BACKWARD_S = 0.42, 0.81
TRANSFER_S = 0.12
TOKENS = 16_384
SPEEDS = 0.004  # of the ranks, for good


@dataclass(frozen=True)
class SlowNode:
    """A node whose ranks all compute slower by `more` from step `since` on."""

    node: int
    more: float
    since: int = 0


@dataclass(frozen=True)
class SlowLink:
    """A node through which transfers take 1 + `more` times as long from step `since` on."""

    node: int
    more: float
    since: int = 0


@dataclass(frozen=True)
class Case:
    """A job.

    Attributes:
        dp, pp, tp, node_ranks, steps: its shape.
        noise: of a rank's own time per step (standard deviation), in `both` passes alike or in each on its own.
        stages: factor of each stage, filled with 1.
        lengths: spread of the log of a replica's tokens per step, which all of its stages share.
        quadratic: share of a stage's time that grows with the square of the length, the first and the last stage's.
        everyone, since: the slowdown of all ranks, and its first step.
        transfer_noise: spread of the log of a group's transfer time.
        bucket_noise: spread of the log of what a rank's own end of a transfer adds.
        drift: how much all transfers become slower and faster over some fifty steps (congestion).
        slow: what is broken.
    """

    dp: int = 8
    pp: int = 1
    tp: int = 8
    node_ranks: int = 8
    steps: int = 96
    noise: float = 0.01
    noise_in: Literal["both", "each"] = "both"
    stages: tuple[float, ...] = ()
    lengths: float = 0.0
    quadratic: tuple[float, float] = (0.3, 0.3)
    everyone: float = 0.0
    since: int = 0
    transfer_noise: float = 0.04
    bucket_noise: float = 0.02
    drift: float = 0.0
    slow: tuple[SlowNode | SlowLink, ...] = field(default=())

    @property
    def ranks(self) -> int:
        """How many."""
        return self.dp * self.pp * self.tp

    @property
    def culprits(self) -> frozenset[int]:
        """The ranks of the broken nodes."""
        node = np.arange(self.ranks) // self.node_ranks
        return frozenset(np.flatnonzero(np.isin(node, [each.node for each in self.slow])).tolist())


def _places(case: Case) -> dict[str, Ints]:
    rank = np.arange(case.ranks)
    return {
        "tp_rank": rank % case.tp,
        "dp_rank": rank // case.tp % case.dp,
        "pp_rank": rank // (case.tp * case.dp),
    }


def _draw_noise(case: Case, draw: np.random.Generator) -> Floats:
    """Return (S, R) positive factors around one with a longer upper tail."""
    if not case.noise:
        return np.ones((case.steps, case.ranks))
    shape = 1 / case.noise**2
    return draw.gamma(shape, 1 / shape, (case.steps, case.ranks))


def _draw_passes(case: Case, draw: np.random.Generator) -> tuple[Floats, Floats, Ints]:
    """Return (S, R) seconds forward and backward, and tokens."""
    place = _places(case)
    length = np.exp(draw.normal(-(case.lengths**2) / 2, case.lengths, (case.steps, case.dp)))[:, place["dp_rank"]]
    square = np.linspace(*case.quadratic, case.pp)[place["pp_rank"]]
    work = (1 - square) * length + square * length**2
    work *= np.array([*case.stages, *[1.0] * case.pp])[place["pp_rank"]] * draw.normal(1, SPEEDS, case.ranks)
    step, node = np.arange(case.steps)[:, None], np.arange(case.ranks)[None, :] // case.node_ranks
    work = work * (1 + case.everyone * (step >= case.since))
    for each in case.slow:
        if isinstance(each, SlowNode):
            work = work * (1 + each.more * ((step >= each.since) & (node == each.node)))
    work *= 1 + 0.4 * draw.random(case.ranks)[None, :] * 0.6**step  # warm-up
    forward = _draw_noise(case, draw)
    backward = forward if case.noise_in == "both" else _draw_noise(case, draw)
    return FORWARD_S * work * forward, BACKWARD_S * work * backward, np.rint(TOKENS * length).astype(np.int64)


def _draw_communication(case: Case, own: Floats, draw: np.random.Generator) -> Floats:
    """Return (S, R) seconds in the data-parallel collectives and, with stages, in sends along the pipeline."""
    place = _places(case)
    node = np.arange(case.ranks) // case.node_ranks
    ring = place["pp_rank"] * case.tp + place["tp_rank"]
    chain = place["dp_rank"] * case.tp + place["tp_rank"]
    sea = case.drift * np.sin(np.arange(case.steps)[:, None] / 50 * 2 * np.pi + draw.uniform(0, 2 * np.pi))
    spent = np.zeros_like(own)
    for number, seconds in ((ring, TRANSFER_S), (chain, TRANSFER_S / 2)):
        if np.bincount(number).max() < 2:
            continue
        groups = int(number.max()) + 1
        takes = seconds * np.exp(draw.normal(0, case.transfer_noise, (case.steps, groups)) + sea)
        for each in case.slow:
            if isinstance(each, SlowLink):
                takes[each.since :, np.unique(number[node == each.node])] *= 1 + each.more
        latest = np.zeros((case.steps, groups))
        start = own if number is ring else np.zeros_like(own)  # sends overlap with computing: nobody waits
        for column in range(case.ranks):
            np.maximum(latest[:, number[column]], start[:, column], out=latest[:, number[column]])
        spent += (latest + takes)[:, number] - start
    return spent * np.exp(draw.normal(0, case.bucket_noise, own.shape))


def build_case_columns(case: Case, seed: int, *, tokens: bool = False) -> Columns:
    """The rows that the ranks would have reported, as columns of the neutral format."""
    draw = np.random.default_rng([seed, case.ranks, 0x5EED])
    forward, backward, length = _draw_passes(case, draw)
    own = forward + backward
    spent = _draw_communication(case, own, draw)
    wide: dict[str, npt.NDArray[np.generic]] = {
        "compute_s": own,
        "forward_s": forward,
        "backward_s": backward,
        "comm_s": spent,
        "step_s": np.repeat((own + spent).max(axis=1, keepdims=True), case.ranks, axis=1),
        **({"tokens": length} if tokens else {}),
    }
    flat: Columns = {name: values.reshape(-1) for name, values in wide.items()}
    flat["step"], flat["rank"] = np.divmod(np.arange(case.steps * case.ranks), case.ranks)
    for name, values in _places(case).items():
        flat[name] = np.tile(values, case.steps)
    flat["stage"] = flat["pp_rank"]
    flat["node"] = np.tile(np.array([f"host-{rank // case.node_ranks:03d}" for rank in range(case.ranks)]), case.steps)
    return flat
