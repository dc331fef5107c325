"""Jobs played step by step before the watchdogs: healthy ones raise nothing, each fault is found in so many steps."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterator
from typing import NamedTuple

import msgspec
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from healthd.checks.training_checks import CODES, Limits, TrainingCheck
from healthd.findings.facts import LevelFact, Moment, Raise
from healthd.samples.rank_steps import RankSteps, StepFacts
from healthd.thresholds import load_thresholds

LIMITS = load_thresholds().section("training", Limits)
EXTREMES = [math.nan, math.inf, -math.inf, 1e308, -1e308, 1e300, 0.0, -0.0, 5e-324, 1.0]


class Style(NamedTuple):
    """How a healthy job behaves. Durations in seconds, periods in steps."""

    step_s: float = 2.0
    noise: float = 0.05
    evaluate_every: int = 400
    evaluation_s: float = 300.0
    save_every: int = 150
    save_s: float = 40.0
    share: float = 0.2
    sections: bool = True


class Beat(NamedTuple):
    """One step of the whole job, and the pause after it."""

    facts: StepFacts
    pause_s: float


Change = Callable[[int, StepFacts], StepFacts]


def beats(style: Style, count: int, seed: int = 1, change: Change = lambda _, facts: facts) -> Iterator[Beat]:
    dice = random.Random(seed)  # noqa: S311 - a simulation
    at = 1e9
    for n in range(count):
        work_s = style.step_s * dice.lognormvariate(0, style.noise) + (200 if n < 4 else 0)
        save_s = style.save_s if n % style.save_every == style.save_every - 1 else 0.0
        facts = StepFacts(
            ordinal=n,
            step=500 + n,
            started_at=at,
            seconds=work_s + save_s,
            checkpoint_s=save_s if style.sections else 0.0,
            communication_s=work_s * min(0.95, max(0.0, style.share + dice.gauss(0, 0.03))) if style.sections else None,
            loss=2 + 9 * math.exp(-n / 400) + dice.gauss(0, 0.06),
            gradient_norm=dice.lognormvariate(0, 0.5) * (1 + 10 * math.exp(-n / 30)),
            tokens=4096.0,
        )
        facts = change(n, facts)
        pause_s = style.evaluation_s if n % style.evaluate_every == style.evaluate_every - 1 else 0.01
        at += facts.seconds + pause_s
        yield Beat(facts, pause_s)


class Player:
    """Plays a job's ranks before a check and notes at which step each finding was raised and cleared."""

    def __init__(self, ranks: int = 2, look_s: float = 1.0) -> None:
        self.check = TrainingCheck(LIMITS)
        self.ranks, self.look_s = ranks, look_s
        self.now = 0.0
        self.told: dict[str, Raise] = {}
        self.raised: list[tuple[str, int]] = []
        self.cleared: list[tuple[str, int]] = []
        self._pending: list[StepFacts] = []
        self._looked = -math.inf

    def play(self, timeline: Iterator[Beat]) -> None:
        for facts, pause_s in timeline:
            self.stay("step", facts, facts.seconds)
            self._pending.append(facts)
            self.stay("between", facts, pause_s, done=1)

    def stay(self, phase: str, facts: StepFacts, seconds: float, *, done: int = 0) -> None:
        end = self.now + seconds
        while self._looked + self.look_s <= end:
            self.now = max(self.now, self._looked + self.look_s)
            section = "checkpoint" if phase == "step" and facts.checkpoint_s else ""
            self.look(
                [self.rank(r, facts.ordinal + done, facts.step, phase, section) for r in range(self.ranks)],
                facts.ordinal,
            )
        self.now = end

    def rank(
        self, rank: int, completed: int, step: int, phase: str, section: str = "", *, alive: bool = True
    ) -> RankSteps:
        new = tuple(self._pending)
        return RankSteps("train", 0, rank, self.ranks, 100 + rank, alive, step, completed, phase, section, new)

    def look(self, ranks: list[RankSteps], step: int) -> None:
        self._looked = self.now
        self._pending = []
        held = self.check.judge(ranks, Moment(1e9 + self.now, self.now))
        self.note(held, step)

    def note(self, held: list[LevelFact], step: int) -> None:
        kept = {fact.code for fact in held if not isinstance(fact, Raise)}
        said = [fact for fact in held if isinstance(fact, Raise)]
        assert len({(f.code, f.component) for f in said}) == len(said)
        for code in [code for code in self.told if code not in kept | {f.code for f in said}]:
            del self.told[code]
            self.cleared.append((code, step))
        for fact in said:
            msgspec.json.decode(msgspec.json.encode(fact.evidence), type=dict[str, str | int | float])
            if fact.code not in self.told:
                self.raised.append((fact.code, step))
            self.told.setdefault(fact.code, fact)


@pytest.mark.parametrize(
    "style",
    [
        Style(),
        Style(step_s=0.05, noise=0.01, evaluation_s=20, save_s=3),
        Style(noise=0.12, share=0.5),
        Style(noise=0.12, sections=False, save_s=400),
        Style(step_s=25, noise=0.03, evaluation_s=1500, save_s=600, evaluate_every=1000, save_every=90),
    ],
)
def test_a_healthy_job_raises_nothing_in_ten_thousand_steps(style: Style) -> None:
    player = Player(look_s=max(1.0, style.step_s / 2))
    player.play(beats(style, 10_000))
    assert player.raised == []


@settings(max_examples=15, deadline=None, phases=[Phase.reuse, Phase.generate])  # shrinking a job takes minutes
@given(
    st.builds(
        Style,
        step_s=st.floats(0.05, 30),
        noise=st.floats(0.001, 0.12),
        evaluate_every=st.integers(20, 500),
        evaluation_s=st.floats(0.1, 1700),
        save_every=st.integers(5, 300),
        save_s=st.floats(0, 1500),
        share=st.floats(0.02, 0.6),
        sections=st.booleans(),
    ).map(lambda style: style if style.sections else style._replace(save_s=min(style.save_s, 400))),
    st.integers(0, 10_000),
)
def test_no_healthy_job_raises_anything(style: Style, seed: int) -> None:
    player = Player(look_s=max(1.0, style.step_s, style.evaluation_s / 50, style.save_s / 50))
    player.play(beats(style, 400, seed))
    assert player.raised == []


FAULTS: dict[str, tuple[Change, int]] = {
    "loss_not_finite": (lambda n, f: f._replace(loss=math.nan) if 500 <= n < 540 else f, 1),
    "loss_spike": (lambda n, f: f._replace(loss=(f.loss or 0) + 4) if 500 <= n < 540 else f, 6),
    "gradient_spike": (lambda n, f: f._replace(gradient_norm=40.0) if 500 <= n < 540 else f, 3),
    "throughput_low": (
        lambda n, f: f._replace(seconds=f.seconds + 0.8, communication_s=0.4) if 500 <= n < 700 else f,
        80,
    ),
    "communication_share": (
        lambda n, f: f._replace(communication_s=(f.seconds - f.checkpoint_s) * 0.45) if 500 <= n < 700 else f,
        80,
    ),
}


@pytest.mark.parametrize("code", FAULTS)
def test_a_fault_is_found_soon_raised_once_and_clears_by_itself(code: str) -> None:
    change, steps = FAULTS[code]
    player = Player()
    player.play(beats(Style(), 1000, change=change))
    assert [c for c, _ in player.raised] == [code]
    assert 500 <= player.raised[0][1] <= 500 + steps
    assert [c for c, _ in player.cleared] == [code]


def test_a_slowdown_of_an_eighth_is_found() -> None:
    player = Player()
    player.play(beats(Style(), 800, change=lambda n, f: f._replace(seconds=f.seconds * 1.12) if n >= 500 else f))
    assert [c for c, _ in player.raised] == ["throughput_low"]
    assert 500 <= player.raised[0][1] <= 580
    assert "has slowed down to" in player.told["throughput_low"].summary


def test_a_loss_scale_that_finds_its_place_raises_nothing_and_one_that_does_not_is_told() -> None:
    def change(n: int, facts: StepFacts) -> StepFacts:
        overflows = n < 20 or n % 200 in (100, 101) or n >= 900
        return facts._replace(gradient_norm=math.inf) if overflows else facts

    player = Player()
    player.play(beats(Style(), 900, change=change))
    assert player.raised == []
    player.play(itertools.islice(beats(Style(), 920, change=change), 900, None))
    assert [c for c, _ in player.raised] == ["gradient_spike"]
    fact = player.told["gradient_spike"]
    assert "the gradient norm of train is inf, for longer than a loss scale needs" in fact.summary
    assert fact.evidence["value"] == "inf"
    assert fact.evidence["last_good_step"] == 500 + 899


@pytest.mark.parametrize("code", ["loss_not_finite", "loss_spike", "gradient_spike"])
def test_a_finding_names_the_last_step_before_it_began(code: str) -> None:
    change, _ = FAULTS[code]
    player = Player()
    player.play(beats(Style(noise=0.01), 530, change=change))
    assert player.told[code].evidence["last_good_step"] == 500 + 499


def test_a_loss_that_was_never_good_names_no_step() -> None:
    player = Player()
    player.play(beats(Style(), 5, change=lambda _, f: f._replace(loss=math.nan)))
    assert "last_good_step" not in player.told["loss_not_finite"].evidence


def test_a_level_that_lasts_becomes_the_usual_one() -> None:
    player = Player()
    player.play(beats(Style(), 4000, change=lambda n, f: f._replace(tokens=2048.0) if n >= 500 else f))
    assert [c for c, _ in player.raised] == ["throughput_low"]
    assert [c for c, _ in player.cleared] == ["throughput_low"]
    assert player.cleared[0][1] > 2000


def hung(player: Player, states: list[tuple[int, str, str, bool]], seconds: float) -> None:
    """`states` are completed, phase, section and alive of each rank, and stay so."""
    for _ in range(int(seconds)):
        player.now += 1
        ranks = [
            player.rank(r, completed, 500 + completed, phase, section, alive=alive)
            for r, (completed, phase, section, alive) in enumerate(states)
        ]
        player.look(ranks, 300)


def test_a_rank_that_does_not_arrive_is_named_with_what_it_hangs_in() -> None:
    player = Player(ranks=3)
    player.play(beats(Style(), 300))
    hung(
        player,
        [(300, "step", "communication", True), (300, "step", "data", True), (300, "step", "communication", True)],
        200,
    )
    fact = player.told["stalled"]
    assert 120 <= fact.evidence["waited_s"] < 125
    assert fact.evidence["limit_s"] == 120
    found = {key: fact.evidence[key] for key in ("rank", "phase", "section", "step", "not_arrived", "waiting", "dead")}
    assert found == {
        "rank": 1, "phase": "step", "section": "data", "step": 800, "not_arrived": "1", "waiting": "0, 2", "dead": "",
    }  # fmt: skip
    assert "rank 1 has not arrived" in fact.summary


def test_a_dead_rank_is_named_and_not_waited_for() -> None:
    player = Player(ranks=2)
    player.play(beats(Style(), 300))
    hung(player, [(300, "step", "communication", True), (299, "step", "forward", False)], 200)
    assert player.told["stalled"].evidence["dead"] == "1"
    assert "rank 1 is dead" in player.told["stalled"].summary


def test_a_node_whose_ranks_all_wait_blames_none_of_them() -> None:
    player = Player(ranks=2)
    player.play(beats(Style(), 300))
    hung(player, [(300, "step", "communication", True)] * 2, 200)
    assert player.told["stalled"].evidence["not_arrived"] == ""
    assert "elsewhere" in player.told["stalled"].summary


def test_a_stall_clears_after_some_steps_and_is_not_raised_twice_meanwhile() -> None:
    player = Player()
    player.play(beats(Style(), 300))
    hung(player, [(300, "step", "", True)] * 2, 400)
    assert player.raised == [("stalled", 300)]
    hung(player, [(301, "step", "", True)] * 2, 5)
    assert player.cleared == []
    hung(player, [(304, "step", "", True)] * 2, 5)
    assert player.cleared == [("stalled", 300)]


def test_a_job_with_long_steps_gets_more_time() -> None:
    player = Player(look_s=20)
    player.play(beats(Style(step_s=100, noise=0.01, save_every=20), 100))
    hung(player, [(100, "step", "", True)] * 2, 290)
    assert player.raised == []
    hung(player, [(100, "step", "", True)] * 2, 30)
    assert [c for c, _ in player.raised] == ["stalled"]


@pytest.mark.parametrize(
    ("completed", "phase", "section", "place_s"),
    [
        (100, "step", "", 480),  # before the first save
        (300, "between", "", 1800),  # three times the longest evaluation is less
        (300, "step", "checkpoint", 1800),
        (5, "step", "forward", 1800),
    ],
)
def test_places_where_long_pauses_are_usual_get_more_time(
    completed: int, phase: str, section: str, place_s: int
) -> None:
    player = Player(look_s=5)
    player.play(beats(Style(), completed))
    hung(player, [(completed, phase, section, True)] * 2, place_s)
    assert player.raised == []
    hung(player, [(completed, phase, section, True)] * 2, 20)
    assert [c for c, _ in player.raised] == ["stalled"]


def test_a_rank_that_starts_while_the_others_train_is_the_one_they_wait_for() -> None:
    player = Player()
    player.play(beats(Style(), 300))
    hung(player, [(300, "step", "communication", True), (0, "starting", "", True)], 1850)
    assert player.told["stalled"].evidence["not_arrived"] == "1"


def test_an_agent_that_starts_anew_does_not_clear_a_stall_before_it_has_looked_as_long() -> None:
    player = Player()
    player.play(beats(Style(), 300))
    ranks = [player.rank(r, 300, 800, "step") for r in range(2)]
    fresh = TrainingCheck(LIMITS)
    for second in range(100):
        held = fresh.judge(ranks, Moment(1e9 + second, second))
        assert [(fact.code, type(fact).__name__) for fact in held if fact.code == "stalled"] == [("stalled", "Unknown")]
    held = fresh.judge([rank._replace(completed=301) for rank in ranks], Moment(1e9 + 101, 101))
    assert [fact for fact in held if fact.code == "stalled"] == []


@pytest.mark.parametrize("phase", ["starting", "leaving", "aborting", "done"])
def test_phases_with_deadlines_of_their_own_are_left_alone(phase: str) -> None:
    player = Player()
    player.play(beats(Style(), 100))
    hung(player, [(100, phase, "", True)] * 2, 4000)
    assert player.raised == []


def test_a_job_that_is_gone_leaves_no_finding() -> None:
    player = Player()
    player.play(beats(Style(), 300, change=lambda n, f: f._replace(loss=math.inf) if n > 200 else f))
    assert set(player.told) == {"loss_not_finite"}
    hung(player, [(300, "step", "", False)] * 2, 2)
    assert player.told == {}


def test_two_jobs_do_not_mix() -> None:
    player, other = Player(), Player()
    check = TrainingCheck(LIMITS)
    for (good, _), (bad, _) in zip(
        beats(Style(), 300), beats(Style(), 300, change=lambda _, f: f._replace(loss=math.nan)), strict=True
    ):
        ranks = [
            player.rank(0, good.ordinal, good.step, "step")._replace(new=(good,)),
            other.rank(0, bad.ordinal, bad.step, "step")._replace(job="other", new=(bad,)),
        ]
        held = check.judge(ranks, Moment(good.started_at, good.started_at))
    assert {(f.code, f.component.name) for f in held if isinstance(f, Raise)} == {("loss_not_finite", "other.0")}


WILD = st.one_of(st.none(), st.sampled_from(EXTREMES), st.floats())


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(WILD, WILD, WILD, WILD, st.sampled_from(EXTREMES)), max_size=40), st.integers(60, 130))
def test_no_number_crashes_a_watchdog(wild: list[tuple[float | None, ...]], past: int) -> None:
    def change(n: int, facts: StepFacts) -> StepFacts:
        if n < past:
            return facts
        loss, gradient_norm, tokens, communication_s, seconds = wild[n - past]
        return facts._replace(
            loss=loss, gradient_norm=gradient_norm, tokens=tokens, communication_s=communication_s,
            seconds=abs(seconds or 0.0) if math.isfinite(seconds or 0.0) else 1.0,
        )  # fmt: skip

    player = Player()
    for n, (facts, _) in enumerate(beats(Style(), past + len(wild), change=change)):
        player.now += 1
        player.look([player.rank(0, n, n, "step")._replace(new=(facts,))], n)


def test_every_code_has_been_tried() -> None:
    assert set(CODES) == {"stalled", "rank_idle", *FAULTS}
