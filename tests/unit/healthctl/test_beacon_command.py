from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import Result

from healthd.trainer.beacons.beacon import Acknowledgement, Beacon, MailboxOrder
from healthd.trainer.beacons.beacon_page import OrderOutcome, Phase
from healthd.trainer.beacons.mailbox import post_order
from healthd.trainer.beacons.rank_placement import RankGpu, RankGroups, RankPlacement
from healthd.trainer.beacons.step_ring import GRAD_NORM, LOSS, ON_DEVICE, TOKENS, EntryMeasurements, StepSection
from vocabulary.clock import ManualClock

Run = Callable[..., Result]
PLACE = RankPlacement(
    "llm \x1b[2J", 2, 3, 8, 3, "n1", RankGroups("actor", 1, 0, 2), RankGpu("GPU-3", "0000:3b:00.0", 3)
)
ORDER = MailboxOrder("o1", "checkpoint_then_eject", "row remap pending", ("n1",), 1_700_000_600.0, injected=True)


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    """One rank in the middle of a step, one that has ended; times are those of a clock that stands still."""
    tmp_path.chmod(0o700)
    clock = ManualClock()
    rank = Beacon.create(str(tmp_path), PLACE, clock)
    rank.begin_step(40)
    clock.advance(0.5)
    rank.end_step()
    rank.begin_step(41)
    clock.advance(0.75)
    told = LOSS | GRAD_NORM | TOKENS | ON_DEVICE | 0b1010
    rank.end_measured_step(EntryMeasurements(told, (0.0, 0.0, 0.25, 0.0, 0.125, 0.0, 0.0, 0.0), math.nan, 1.5, 4096))
    rank.begin_step(42)
    rank.section(StepSection.COMMUNICATION)
    post_order(rank.path, ORDER)
    rank.acknowledge(Acknowledgement("o1", OrderOutcome.AGREED, clock.wall(), 43, clock.wall()))
    other = Beacon.create(str(tmp_path), RankPlacement("other", 0, 0, 1, 0, "n1"), clock)
    other.phase(Phase.DONE)
    yield tmp_path
    rank.close()
    other.close()


def settled(text: str, directory: Path) -> str:
    """Without what differs from run to run."""
    text = text.replace(str(directory), "DIR").replace(str(os.getpid()), "PID").replace(f"user {os.getuid()}", "user U")
    return re.sub(r"  +", "  ", re.sub(r"\d+\.\d s\b", "AGE", text))


def test_a_rank_is_shown_whole(healthctl: Run, directory: Path, golden: Callable[[str, str], None]) -> None:
    done = healthctl("beacon", "show", "--dir", str(directory))

    assert done.exit_code == 0, done.stderr
    golden("healthctl/beacon_show.txt", settled(done.stdout, directory))


def test_ranks_are_listed(healthctl: Run, directory: Path, golden: Callable[[str, str], None]) -> None:
    done = healthctl("beacon", "--dir", str(directory))

    assert done.exit_code == 0, done.stderr
    golden("healthctl/beacon_list.txt", settled(done.stdout, directory))


def test_a_program_gets_numbers(healthctl: Run, directory: Path) -> None:
    done = healthctl("beacon", "show", "--dir", str(directory), "--rank", "3", "--steps", "1", "-o", "json")

    [rank] = json.loads(done.stdout)["ranks"]
    assert rank["identity"]["gpu_pci"] == "0000:3b:00.0"
    assert (rank["state"]["phase"], rank["state"]["section"]) == ("step", "communication")
    assert rank["order"]["id"] == rank["acknowledgement"]["order"] == "o1"
    [step] = rank["steps"]
    assert step["sections"] == {"forward": 0.25, "communication": 0.125}
    assert (step["not_finite"], step["grad_norm"], step["on_device"]) == (["loss"], 1.5, True)


def test_a_dead_rank_is_shown_as_it_died(healthctl: Run, tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    code = (
        "import os\nfrom healthd.trainer.beacons.beacon import Beacon, RankPlacement\n"
        f"beacon = Beacon.create({str(tmp_path)!r}, RankPlacement('j', 0, 0, 2))\n"
        "beacon.begin_step(7); beacon.section(3); os._exit(9)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 9

    text = healthctl("beacon", "show", "--dir", str(tmp_path), "--job", "j").stdout

    assert "dead, last report" in text
    assert "step, backward" in text
    assert re.search(
        r"^j +0/2 .* no .*step, backward", healthctl("beacon", "--dir", str(tmp_path)).stdout, re.MULTILINE
    )


def test_a_page_that_cannot_be_read_is_named_and_hides_no_other(healthctl: Run, directory: Path) -> None:
    (directory / "bad\x1b\udcff.beacon").write_bytes(b"nonsense")
    (directory / "other.0.0.beacon").rename(directory / "renamed\udcff.beacon")

    for command in (["list"], ["show"], ["list", "-o", "json"]):
        done = healthctl("beacon", *command, "--dir", str(directory))
        assert done.exit_code == 1
        assert "llm" in done.stdout
        assert "\x1b" not in done.stdout + done.stderr
        assert "size: 8 bytes, a page has 131072" in done.stderr


@pytest.mark.parametrize("wanted", [["--job", "nobody's"], ["--rank", "7"], ["--job", "other", "--rank", "1"]])
def test_who_is_not_there_is_an_error_that_says_who_is(healthctl: Run, directory: Path, wanted: list[str]) -> None:
    done = healthctl("beacon", "show", "--dir", str(directory), *wanted)

    assert done.exit_code == 3
    assert f"no beacon of {' '.join(wanted).replace('--', '')} in {directory}; available: llm" in done.stderr
    assert "other rank 0" in done.stderr


def test_no_directory_and_no_pages_are_told_apart(healthctl: Run, tmp_path: Path) -> None:
    empty = healthctl("beacon", "--dir", str(tmp_path))
    assert (empty.exit_code, empty.stdout) == (0, f"no beacon in {tmp_path}\n")

    absent = healthctl("beacon", "show", "--dir", str(tmp_path / "absent"))
    assert absent.exit_code == 3
    assert "No such file or directory; check that healthd is running here" in absent.stderr
    assert healthctl("beacon", "show", "--dir", str(tmp_path)).exit_code == 3
