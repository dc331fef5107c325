"""Simulated jobs of the hard cases: whole stages, slow nodes in noise, links, and everyone at once. Deterministic by seed.

They share nothing with `bench/traces.py`: ranks are numbered tensor first, then data, then stages, as Megatron does, so
that a stage fills whole nodes; noise is a gamma law, apart in each pass or common to both; a collective ends for all of
its group at once, a transfer after its latest member started.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from remediator.detection.stragglers.straggler_verdict import SlowdownKind, StragglerVerdict

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Columns = dict[str, npt.NDArray[np.generic]]

FORWARD_S, BACKWARD_S = 0.42, 0.81
KEPT = 0.9  # of the congestion of the step before
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
        node_speeds: spread of the nodes' speeds, for good.
        lengths: spread of the log of a replica's tokens per step, which all of its stages share.
        quadratic: share of a stage's time that grows with the square of the length, the first and the last stage's.
        everyone, since: the slowdown of all ranks, and its first step.
        transfer_noise: spread of the log of a group's transfer time.
        bucket_noise: spread of the log of what a rank's own end of a transfer adds.
        transfer_s: seconds of a data-parallel transfer.
        wander: spread of the log by which all transfers become slower and faster for some ten steps (congestion).
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
    node_speeds: float = 0.0
    lengths: float = 0.0
    quadratic: tuple[float, float] = (0.3, 0.3)
    everyone: float = 0.0
    since: int = 0
    transfer_noise: float = 0.04
    bucket_noise: float = 0.02
    transfer_s: float = 0.12
    wander: float = 0.0
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
    if case.node_speeds:
        work = work * np.exp(draw.normal(0, case.node_speeds, int(node.max()) + 1))[node]
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
    sea = draw.normal(0, case.wander, (case.steps, 1))
    for step in range(1, case.steps):
        sea[step] = KEPT * sea[step - 1] + np.sqrt(1 - KEPT**2) * sea[step]
    spent = np.zeros_like(own)
    for number, seconds in ((ring, case.transfer_s), (chain, case.transfer_s / 2)):
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


class ExpectedVerdict(NamedTuple):
    """A case and its right answer: the verdict, and whether it names the culprits or nobody."""

    case: Case
    verdicts: frozenset[SlowdownKind]
    named: bool = False
    tokens: bool = False

    def is_met_by(self, found: StragglerVerdict) -> bool:
        """Return whether the verdict is right, and exactly the culprits are named."""
        named = frozenset(culprit.rank for culprit in found.culprits)
        return found.verdict in self.verdicts and named == (self.case.culprits if self.named else frozenset())


def _only(*kinds: SlowdownKind) -> frozenset[SlowdownKind]:
    return frozenset(kinds)


_NODE, _STAGE, _LINK = _only(SlowdownKind.NODE), _only(SlowdownKind.STAGE), _only(SlowdownKind.LINK)
_DATA, _GLOBAL = _only(SlowdownKind.DATA), _only(SlowdownKind.GLOBAL)
_QUIET = _only(SlowdownKind.NOBODY, SlowdownKind.DATA)
_STAGES = Case(dp=1, pp=4)
_GRID = Case(dp=8, pp=8)
_RING = Case(dp=64, tp=1, noise=0.03)
_NOISY = Case(dp=4, noise=0.05)
_PACKED = Case(dp=8, pp=4, tp=2, lengths=0.2, stages=(1, 1, 1, 1.12))

CASES: dict[str, ExpectedVerdict] = {
    **{
        f"node = stage, +{100 * more:.0f} %, {name}": ExpectedVerdict(
            replace(shape, slow=(SlowNode(1, more, 48),)), _NODE, named=True)
        for more in (0.2, 0.5)
        for name, shape in (
            ("one replica", _STAGES), ("8 replicas", replace(_STAGES, dp=8, tp=1)),
            ("2 stages of 4", Case(dp=1, pp=2, tp=4, node_ranks=4)),
            ("noise 3 %", replace(_STAGES, noise=0.03, noise_in="each")), ("lengths 10 %", replace(_STAGES, lengths=0.1)),
        )
    },
    "node = stage, +30 %, since the first step": ExpectedVerdict(replace(_STAGES, slow=(SlowNode(1, 0.3),)), _STAGE),
    "slow node +10 %, noise 5 %, 4 nodes": ExpectedVerdict(replace(_NOISY, slow=(SlowNode(2, 0.1, 48),)), _NODE, named=True),
    "slow node +10 %, noise 5 %, 4 nodes, since the first step": ExpectedVerdict(
        replace(_NOISY, slow=(SlowNode(2, 0.1),)), _NODE, named=True),
    "slow node +10 %, noise 5 % in each pass": ExpectedVerdict(
        replace(_NOISY, noise_in="each", slow=(SlowNode(2, 0.1, 48),)), _NODE, named=True),
    "slow node +10 %, noise 5 %, 2 nodes": ExpectedVerdict(
        replace(_NOISY, dp=2, slow=(SlowNode(1, 0.1, 48),)), _NODE, named=True),
    "slow node +10 %, noise 5 %, 2 nodes, since the first step: undecided": ExpectedVerdict(
        replace(_NOISY, dp=2, slow=(SlowNode(1, 0.1),)), _only(SlowdownKind.NOBODY)),
    "slow link, 512 ranks, +100 %": ExpectedVerdict(replace(_GRID, slow=(SlowLink(10, 1.0, 48),)), _LINK, named=True),
    "slow link, 64 ranks without tensor groups, +100 %": ExpectedVerdict(
        Case(dp=16, pp=4, tp=1, slow=(SlowLink(3, 1.0, 48),)), _LINK, named=True),
    "slow link, 2048 ranks, +100 %": ExpectedVerdict(
        replace(_GRID, dp=32, slow=(SlowLink(10, 1.0, 48),)), _LINK, named=True),
    "slow link in one ring, 64 ranks, +100 %": ExpectedVerdict(replace(_RING, slow=(SlowLink(3, 1.0, 48),)), _LINK),
    "slow link in one ring, 512 ranks, +100 %": ExpectedVerdict(
        replace(_RING, dp=512, slow=(SlowLink(3, 1.0, 48),)), _LINK),
    "everyone +8 %, noise 1 %": ExpectedVerdict(Case(everyone=0.08, since=48), _GLOBAL),
    "everyone +8 %, noise 5 %": ExpectedVerdict(Case(noise=0.05, everyone=0.08, since=48), _GLOBAL),
    "everyone +8 %, noise 5 %, 4 stages": ExpectedVerdict(Case(pp=4, noise=0.05, everyone=0.08, since=48), _GLOBAL),
    "everyone +8 %, lengths 10 %, 64 replicas": ExpectedVerdict(
        Case(dp=64, tp=1, lengths=0.1, everyone=0.08, since=48), _GLOBAL),
    "everyone +8 %, lengths 10 %, 16 replicas": ExpectedVerdict(
        Case(dp=16, tp=1, lengths=0.1, everyone=0.08, since=48), _GLOBAL),
    "lengths 20 %, last stage +12 %": ExpectedVerdict(_PACKED, _DATA),
    "lengths 20 %, last stage +12 %, token counts": ExpectedVerdict(_PACKED, _DATA, tokens=True),
    "lengths 20 %, attention differs by stage": ExpectedVerdict(replace(_PACKED, stages=(), quadratic=(0.1, 0.6)), _DATA),
    "last stage +20 %, equal lengths": ExpectedVerdict(replace(_PACKED, lengths=0.0, stages=(1, 1, 1, 1.2)), _STAGE),
}  # fmt: skip
HEALTHY: dict[str, ExpectedVerdict] = {
    "one ring, 64 ranks": ExpectedVerdict(_RING, _QUIET),
    "one ring, 16 ranks, noise 5 %": ExpectedVerdict(replace(_RING, dp=16, noise=0.05), _QUIET),
    "one ring, transfers vary by 20 %": ExpectedVerdict(replace(_RING, transfer_noise=0.2, bucket_noise=0.1), _QUIET),
    "one ring, transfers of 0.4 s wander by 15 %": ExpectedVerdict(replace(_RING, transfer_s=0.4, wander=0.15), _QUIET),
    "one ring, transfers of 0.4 s wander by 30 %": ExpectedVerdict(replace(_RING, transfer_s=0.4, wander=0.3), _QUIET),
    "8 rings, transfers of 0.4 s wander by 15 %": ExpectedVerdict(
        Case(dp=8, pp=2, tp=4, transfer_s=0.4, wander=0.15), _QUIET
    ),
    "4 stages on 4 nodes, noise 5 %": ExpectedVerdict(replace(_STAGES, noise=0.05), _QUIET),
    "4 stages on 4 nodes, lengths 20 %": ExpectedVerdict(replace(_STAGES, dp=8, tp=1, lengths=0.2), _QUIET),
    "4 nodes, noise 5 %": ExpectedVerdict(_NOISY, _QUIET),
    "5 nodes whose speeds differ by 3 %": ExpectedVerdict(Case(dp=5, node_speeds=0.03), _QUIET),
    "2 nodes, noise 5 %": ExpectedVerdict(replace(_NOISY, dp=2), _QUIET),
}
HEALTHY_LARGE: dict[str, ExpectedVerdict] = {
    "one ring, 512 ranks": ExpectedVerdict(replace(_RING, dp=512), _QUIET),
    "8 stages, 512 ranks": ExpectedVerdict(_GRID, _QUIET),
}
