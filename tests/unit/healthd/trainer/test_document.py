"""A reader written from docs/reference/beacon.md alone, as another language would have it: no word of our code in it."""

from __future__ import annotations

import json
import struct
import zlib
from pathlib import Path

import pytest

from healthd.trainer.beacons.beacon import Acknowledgement, Beacon, MailboxOrder
from healthd.trainer.beacons.beacon_page import OrderOutcome, SampledDigests
from healthd.trainer.beacons.mailbox import post_order
from healthd.trainer.beacons.rank_placement import RankGpu, RankGroups, RankPlacement
from healthd.trainer.beacons.step_ring import LOSS, ON_DEVICE, TOKENS, EntryMeasurements, StepSection
from vocabulary.clock import ManualClock

pytestmark = pytest.mark.usefixtures("step_writer")

SECTIONS = ("data", "forward", "backward", "communication", "optimizer", "checkpoint", "other")


def framed(content: bytes, at: int, room: int) -> dict[str, object]:
    sequence, length, checksum = struct.unpack_from("<QII", content, at)
    text = content[at + 16 : at + 16 + length]
    assert 16 + length <= room
    assert zlib.crc32(struct.pack("<QI", sequence, length) + text) == checksum
    found = json.loads(text)
    assert isinstance(found, dict)
    return found


def step(content: bytes, n: int) -> dict[str, object]:
    at = 32768 + n % 1024 * 96
    assert zlib.crc32(content[at : at + 92]) == struct.unpack_from("<I", content, at + 92)[0]
    number, name, started_at, seconds, flags = struct.unpack_from("<QqddI", content, at)
    assert number == n
    timed = dict(zip(SECTIONS, struct.unpack_from("<7f", content, at + 36), strict=True))
    loss, grad_norm, tokens, zero = struct.unpack_from("<ddQI", content, at + 64)
    assert zero == 0
    found = {"step": name, "started": started_at, "seconds": seconds, "gpu": flags >> 16 & 1, "waits": flags >> 17 & 1}
    found |= {section: timed[section] for bit, section in enumerate(SECTIONS) if flags >> bit & 1}
    told = {8: ("loss", loss), 9: ("grad_norm", grad_norm), 10: ("tokens", tokens)}
    return found | dict(told[bit] for bit in told if flags >> bit & 1)


def test_the_document_is_enough_to_read_a_page(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    clock = ManualClock(1_700_000_000.0)
    place = RankPlacement("job", 1, 3, 8, 3, "n1", RankGroups("actor", 1, 2, 0, 4), RankGpu("GPU-3", "0000:3b:00.0", 3))
    beacon = Beacon.create(str(tmp_path), place, clock)
    for number in range(1030):
        beacon.begin_step(10 * number)
        clock.advance(0.5)
        told = EntryMeasurements(LOSS | TOKENS | ON_DEVICE | 0b10, (0.0, 0.0, 0.25, *[0.0] * 5), 2.5, 0.0, 512)
        beacon.end_measured_step(told) if number % 2 else beacon.end_step()
    beacon.begin_step(7)
    clock.advance(0.25)
    beacon.section(StepSection.OPTIMIZER)
    post_order(beacon.path, MailboxOrder("o1", "abort", "why", ("n1",), 5.0))
    beacon.acknowledge(Acknowledgement("o1", OrderOutcome.SEEN, 4.0))
    beacon.publish_digests(SampledDigests("P", ("0" * 16, ""), 1, 2, 5))
    content = Path(beacon.path).read_bytes()
    beacon.close()

    assert len(content) == 131072
    assert struct.unpack_from("<8sIIII", content) == (b"gpu-hlth", 2, 131072, 1024, 96)
    assert struct.unpack_from("<I", content, 24)[0] == zlib.crc32(content[:24])
    who = framed(content, 64, 4032)
    assert (who["job"], who["rank"], who["pipeline_stage"], who["gpu_pci"]) == ("job", 3, 1, "0000:3b:00.0")
    found = framed(content, 4608, 3584)
    assert (found["platform"], found["digests"], found["last_good_step"]) == ("P", ["0" * 16, ""], 5)
    assert (found["contradictions"], found["transients"]) == (1, 2)
    assert framed(content, 8192, 8192)["outcome"] == "seen"
    assert framed(content, 16384, 16384)["condemned"] == ["n1"]
    first, now, since, at, completed, phase, section, last = struct.unpack_from("<QqddQIIQ", content, 4096)
    assert zlib.crc32(content[4096 : 4096 + 56]) == struct.unpack_from("<I", content, 4096 + 56)[0]
    assert (first == last, now, completed, phase, section, at - since) == (True, 7, 1030, 1, 5, 0.25)
    assert step(content, 1028) == {"step": 10280, "started": since - 1.0, "seconds": 0.5, "gpu": 0, "waits": 0}
    told_last = step(content, 1029)
    assert told_last["forward"] == 0.25
    assert (told_last["loss"], told_last["tokens"], told_last["gpu"]) == (2.5, 512, 1)
    assert "grad_norm" not in told_last
    with pytest.raises(AssertionError):
        step(content, 5)
