"""Plans: the same from the same seed, whole in their file, and nothing in them comes after its time."""

from __future__ import annotations

import ast
from pathlib import Path

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.chaos.disasters.registry import BY_NAME, DISASTERS
from tests.chaos.plan import PORTION_S, Plan
from tests.chaos.plan_generator import draw

CHECKER = Path(__file__).parent / "checker"
seeds = st.integers(0, 2**31)


@settings(max_examples=30)
@given(seeds)
def test_the_same_seed_is_the_same_plan_and_its_file_holds_all_of_it(seed: int) -> None:
    plan = draw(seed)
    assert draw(seed) == plan
    assert msgspec.json.decode(msgspec.json.encode(plan), type=Plan) == plan
    assert len(plan.digest) == 12


@settings(max_examples=30)
@given(seeds)
def test_every_strike_fits_its_world_begins_in_time_and_is_undone(seed: int) -> None:
    plan = draw(seed)
    assert plan.lines
    assert plan.strikes
    for strike in plan.strikes:
        assert BY_NAME[strike.disaster].fits(plan.world)
        assert 0 < strike.at_s <= PORTION_S
        assert strike.until_s > strike.at_s
    assert [line.at_s for line in plan.lines] == sorted(line.at_s for line in plan.lines)
    assert {line.node for line in plan.lines} <= set(plan.world.nodes)


def test_two_hundred_seeds_meet_every_disaster_that_can_be_had_here() -> None:
    struck = {strike.disaster for seed in range(200) for strike in draw(seed).strikes}
    worlds = [draw(seed).world for seed in range(200)]
    assert struck == {each.name for each in DISASTERS if any(each.fits(world) for world in worlds)}


def test_the_checker_knows_nothing_of_the_product_nor_of_how_runs_are_made() -> None:
    for file in CHECKER.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            for name in names:
                own = name.startswith("tests.chaos.checker")
                assert own or name.partition(".")[0] not in {
                    "tests",
                    "vocabulary",
                    "healthd",
                    "remediator",
                    "healthctl",
                    "preflight",
                    "bench",
                    "playbooks",
                }, f"{file.name} imports {name}"
