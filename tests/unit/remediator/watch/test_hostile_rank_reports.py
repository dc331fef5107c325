"""Whatever numbers and texts a node tells of ranks, judging does not end in an error."""

from __future__ import annotations

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from remediator.monitoring.analysis_passes import PASS_ROWS
from remediator.monitoring.step_windows import NodeRankReport, is_possible_rank
from tests.unit.remediator.watch.fleet import TRAIN, Fleet, Watched, own
from tests.unit.remediator.watch.test_slow_jobs import slow
from tests.unit.remediator.watch.test_stuck_jobs import stalled
from vocabulary.finding import Severity
from vocabulary.messages.wire import RankStatus, StepWindow, decode_message, encode_message

NUMBER = st.one_of(st.integers(-2, 40), st.sampled_from([2**31, 2**52 - 1, 2**63, -(2**63), 2**70, -(2**70)]))
SECONDS = st.one_of(st.floats(-1e3, 1e3), st.sampled_from([0.0, 1e-308, 1e13, 1e308, -1e308, 1.7e9]))
MAYBE = st.none() | SECONDS
WINDOW = st.builds(
    StepWindow, NUMBER, st.one_of(st.sampled_from([1, 4, 1024]), NUMBER), NUMBER, SECONDS,
    MAYBE, MAYBE, MAYBE, MAYBE, MAYBE,
)  # fmt: skip
TEXT = st.sampled_from(["", "step", "done", "leaving", "forward", "communication", "x\0y", "é" * 300])
RANK = st.builds(
    RankStatus, job=st.just(TRAIN.job), attempt=st.just(TRAIN.attempt), rank=st.integers(0, 15) | NUMBER,
    world=st.sampled_from([16] * 9 + [32]), pid=NUMBER, step=st.integers(-1, 9) | NUMBER, phase=TEXT, at=SECONDS,
    alive=st.sampled_from([True] * 4 + [False]), section=TEXT, role=TEXT, pipeline_stage=NUMBER, tensor_group=NUMBER,
    data_group=NUMBER, gpu=TEXT, windows=st.just(()) | st.lists(WINDOW, max_size=2).map(tuple),
)  # fmt: skip


@settings(  # without shrinking: that would take minutes here
    max_examples=15,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(st.lists(st.lists(RANK, min_size=4, max_size=16), min_size=1, max_size=3), st.booleans())
def test_it_is_judged_to_the_end(words: list[list[RankStatus]], member: bool) -> None:  # noqa: FBT001 -- drawn
    fleet = Fleet(nodes=2)
    watch = Watched([stalled("n0"), stalled("n1"), stalled("liar"), own("liar", "xid/79", severity=Severity.FATAL)])
    for row in range(3 * PASS_ROWS):
        heard = fleet.say(slow(5, by=0.4))
        told = [rank for rank in words[row % len(words)] if is_possible_rank(rank)]
        told = [rank if rank.windows else replace(rank, windows=heard[0].ranks[0].windows) for rank in told]
        said = NodeRankReport("liar", told, fleet.now, fleet.now)
        watch.look([*heard[member:], said], fleet.now + 700.0 * (row % 7 == 0))
    for finding in watch.told:
        assert decode_message(encode_message(finding), type(finding)) == finding
