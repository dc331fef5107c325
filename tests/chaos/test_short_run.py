"""Two plans, shortened, on real processes: the whole thing lives. `make chaos` plays hundreds, at full length."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import msgspec
import pytest

from tests.chaos.campaign import Result, run_plan, why_not
from tests.chaos.plan import KernelLine, Plan, Strike, World

pytestmark = pytest.mark.timeout(480)
WORLD = World(
    nodes=("n1", "n2"),
    scheduler="local",
    database="sqlite",
    centres=1,
    trainers=1,
    isolated_max=1,
    gap_s=0.0,
    per_hour=2,
)
TEXT = "NVRM: Xid (PCI:0000:10:00): {}, pid=4711, name=python3, Ch 00000010"


def line(at_s: float, node: str, code: int, author: str = "kernel") -> KernelLine:
    return KernelLine(at_s=at_s, node=node, author=author, code=code, gpu=0, text=TEXT.format(code))


PLAN = Plan(
    seed=0,
    world=WORLD,
    lines=(
        line(0.5, "n1", 109),
        line(0.6, "n2", 901),
        line(0.65, "n1", 31),  # while its daemon is down
        line(0.7, "n1", 110, author="trainer"),
        line(1.2, "n2", 31),
    ),
    strikes=(
        Strike(disaster="kill", at_s=0.6, until_s=0.8, target="healthd-n1"),
        Strike(disaster="partition", at_s=1.0, until_s=2.0, target="n2"),
    ),
    commands=(),
)


SWAPS = Plan(
    seed=1,
    world=msgspec.structs.replace(WORLD, nodes=("n1", "n2", "n3"), trainers=2, swap=True, spares=1),
    lines=(line(3.0, "n2", 31),),
    strikes=(Strike(disaster="trainer", at_s=4.0, until_s=4.5, target="rank-0", detail={"how": "kill", "seed": 1.0}),),
    commands=(),
)


def test_a_killed_daemon_and_a_pulled_cable_break_no_invariant() -> None:
    play(PLAN)


def test_a_rank_is_replaced_and_no_invariant_is_broken() -> None:
    assert play(SWAPS).swaps == {"rank_lost": 1, "swapped": 1}


def play(plan: Plan) -> Result:
    """A run that passes; its files stay if it does not."""
    if why := why_not():
        pytest.skip(why)
    place = Path(tempfile.mkdtemp(prefix="gh-chaos-"))  # short, for the UNIX sockets below it
    place.chmod(0o755)
    result = run_plan(plan, place / "run", "here")
    said = "\n".join(path.read_text(errors="replace")[-2000:] for path in sorted((place / "run").glob("*.log")))
    assert result.passed, f"{result.verdicts}\n{said}"
    shutil.rmtree(place)
    return result
