"""What a bundle holds: from a node's status, its ring, and the pages of its ranks, also of damaged ones."""

from __future__ import annotations

import json
import math
import struct
from pathlib import Path
from zlib import crc32

import pytest

from healthd.collectors.infiniband import IbPort, InfinibandSample
from healthd.collectors.pcie import PcieSample
from healthd.collectors.versions import VersionsSample
from healthd.daemon_status import Status
from healthd.findings.gpu_state import GpuState
from healthd.samples.nvml import GpuConstants, GpuReading, Inventory, Link
from healthd.samples.source import SourceReading, SourceState
from healthd.telemetry.evidence_bundle import STEPS_MIN, collect_evidence
from healthd.telemetry.telemetry_history import Telemetry
from healthd.trainer.beacons import beacon_page, step_ring
from healthd.trainer.beacons.beacon import Beacon, RankPlacement
from vocabulary.messages.evidence_bundle import EvidenceBundle, KernelLine, Series
from vocabulary.messages.wire import Gpu, decode_message, encode_message
from vocabulary.order import Order, OrderKind

NOW = 1_700_000_000.0
GPU = Gpu(0, "GPU-0", "0000:3b:00.0")
ORDER = Order(
    id="o1",
    kind=OrderKind.COLLECT_EVIDENCE,
    node="n1",
    issued_at=NOW,
    expires_at=NOW + 60,
    incident="inc-1",
    reason="r",
    injected=True,
)
QUIET = Telemetry(NOW, NOW - 900, None, (), ())


def present(source: str, sample: object = None) -> SourceReading:
    return SourceReading(source=source, state=SourceState.PRESENT, at=NOW, sample=sample)


def status(**more: object) -> Status:
    return Status(node="n1", boot_id="b", at=NOW, **more)  # type: ignore[arg-type]  # by name


def said_missing(bundle: EvidenceBundle) -> dict[str, str]:
    return {missing.what: missing.why for missing in bundle.missing}


def test_a_bundle_answers_its_order(tmp_path: Path) -> None:
    series, line = Series("power", "W", "gpu:GPU-0", ((NOW, 1.0),)), KernelLine(NOW, "a line", 7)
    bundle = collect_evidence(status(gpus=(GPU,)), Telemetry(NOW, NOW - 900, None, (series,), (line,)), tmp_path, ORDER)
    assert (bundle.order, bundle.incident, bundle.injected) == ("o1", "inc-1", True)
    assert (bundle.series, bundle.kernel_lines, bundle.gpus) == ((series,), (line,), (GPU,))
    assert (bundle.taken_at, bundle.from_at) == (NOW, NOW - 900)
    assert decode_message(encode_message(bundle), EvidenceBundle) == bundle


def test_versions_and_topology_come_from_what_was_sampled(tmp_path: Path) -> None:
    versions = VersionsSample("6.1", "Debian", "", "", "", "580.1", "", "", "")
    port = IbPort("mlx5_0", "1", "InfiniBand", "ACTIVE", "LinkUp", 400.0, "28.1", "MT1", "0000:3c:00.0", *[0] * 10)
    sources = {
        "versions": present("versions", versions),
        "pcie": present("pcie", PcieSample((), (("0000:00:01.0", "0000:3b:00.0"), ()))),
        "infiniband": present("infiniband", InfinibandSample((port,), {})),
    }
    latest = GpuReading(index=0, links=(Link(0, active=True, remote="0000:01:00.0", crc_errors=3), Link(1)))
    states = (GpuState(GPU, GpuConstants(index=0, vbios="96.00"), latest, latest),)
    inventory = Inventory("580.1", 1, (GPU,), cuda="13.0")
    bundle = collect_evidence(status(sources=sources, states=states, inventory=inventory), QUIET, tmp_path)
    wanted = {"kernel": "6.1", "os": "Debian", "driver": "580.1", "cuda": "13.0", "vbios of GPU 0": "96.00"}
    assert bundle.versions.items() >= wanted.items()
    assert "board" not in bundle.versions
    facts = {(fact.component, fact.name): fact.value for fact in bundle.topology}
    assert facts["pcie:0000:3b:00.0", "PCIe path"] == "0000:00:01.0 > 0000:3b:00.0"
    assert facts["nic_port:mlx5_0/1", "fabric port"].startswith("0000:3c:00.0 InfiniBand ACTIVE")
    assert facts["gpu:GPU-0", "NVLink 0"] == "active, to 0000:01:00.0, 3 CRC errors"
    assert facts["gpu:GPU-0", "NVLink 1"] == "state unknown"


def test_what_could_not_be_had_is_named_with_its_reason(tmp_path: Path) -> None:
    hung = SourceReading(source="nvml", state=SourceState.HUNG, at=NOW, reason="a call has not answered")
    sources = {"nvml": hung, "kernel_log": present("kernel_log")}
    bundle = collect_evidence(status(sources=sources), Telemetry(NOW, NOW - 900, NOW - 30, (), ()), tmp_path)
    missing = said_missing(bundle)
    assert missing["nvml"] == "hung: a call has not answered"
    assert missing["infiniband"] == "waiting"
    assert "kernel_log" not in missing
    assert missing["telemetry and kernel lines before 2023-11-14T22:12:50Z"] == "healthd started then"
    assert "training steps" in missing


def test_ranks_tell_their_last_steps_also_after_their_end(tmp_path: Path) -> None:
    beacon = Beacon.create(str(tmp_path), RankPlacement("job", 3, 5, 16, 5, "n1"))
    for step in range(100):
        beacon.begin_step(step)
        beacon.end_step()
    (alive,) = collect_evidence(status(), QUIET, tmp_path).ranks
    assert (alive.job, alive.attempt, alive.rank, alive.world, alive.alive) == ("job", 3, 5, 16, True)
    assert [step.step for step in alive.steps] == list(range(100))
    assert alive.steps[-1].seconds >= 0
    late = Telemetry(alive.at + 10_000, alive.at + 9_000, None, (), ())
    assert len(collect_evidence(status(), late, tmp_path).ranks[0].steps) == STEPS_MIN, (
        "of a rank that stopped long before"
    )
    path = next(tmp_path.glob("*.beacon"))
    content = bytearray(path.read_bytes())
    rewrite_identity(content, pid=2**22 + 1)
    beacon.close()
    path.write_bytes(content)
    (dead,) = collect_evidence(status(), QUIET, tmp_path).ranks
    assert (dead.alive, len(dead.steps), dead.step) == (False, 100, 99)


def test_a_damaged_page_is_named_and_hides_no_other(tmp_path: Path) -> None:
    beacon = Beacon.create(str(tmp_path), RankPlacement("job", 1, 0, 1, 0, "n1"))
    (tmp_path / "bad\udcff.beacon").write_bytes(b"nonsense")
    bundle = collect_evidence(status(), QUIET, tmp_path)
    assert len(bundle.ranks) == 1
    assert "has the size" in (why := said_missing(bundle)["page bad?.beacon"]) or "size" in why
    encode_message(bundle)
    beacon.close()


@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_a_loss_that_is_no_number_still_makes_a_bundle(tmp_path: Path, number: float) -> None:
    beacon = Beacon.create(str(tmp_path), RankPlacement("job", 1, 0, 1, 0, "n1"))
    told = step_ring.LOSS | step_ring.GRAD_NORM | step_ring.TOKENS | 0b10
    beacon.begin_step(0)
    beacon.end_measured_step(
        step_ring.EntryMeasurements(told, (0.0, 0.0, 0.25, 0.0, 0.0, 0.0, 0.0, 0.0), number, 2.0, 512)
    )
    beacon.begin_step(1)
    beacon.section(step_ring.StepSection.BACKWARD)
    bundle = collect_evidence(status(), QUIET, tmp_path)
    (rank,) = bundle.ranks
    (step,) = rank.steps
    assert (rank.phase, rank.section) == ("step", "backward")
    assert (step.sections, step.loss, step.grad_norm, step.tokens) == ({"forward": 0.25}, None, 2.0, 512)
    assert step.not_finite == ("loss",)
    assert decode_message(encode_message(bundle), EvidenceBundle) == bundle
    beacon.close()


@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_a_page_that_holds_no_number_and_no_text_still_makes_a_bundle(tmp_path: Path, number: float) -> None:
    for name in ("good", "text", "time"):
        beacon = Beacon.create(str(tmp_path), RankPlacement(name, 1, 0, 1, 0, "n1"))
        beacon.begin_step(0)
        beacon.end_step()
        beacon.close()
    good, text, time = (tmp_path / f"{name}.1.0.beacon" for name in ("good", "text", "time"))
    content = bytearray(text.read_bytes())
    rewrite_identity(content, job="\ud800")
    text.write_bytes(content)
    state = beacon_page.pack_checked(beacon_page.STATE.pack(9, 0, number, number, 1, 1, 0, 9))
    rewrite(time, beacon_page.STATE_AT, state)
    rewrite(good, beacon_page.RING_AT, step_ring.pack_entry(0, 0, number, 1.0, step_ring.EntryMeasurements()))
    bundle = collect_evidence(status(), QUIET, tmp_path)
    assert [(rank.job, rank.steps) for rank in bundle.ranks] == [("good", ())]
    assert "is a text that" in said_missing(bundle)[f"page {text.name}"]
    assert "an invalid time" in said_missing(bundle)[f"page {time.name}"]
    assert decode_message(encode_message(bundle), EvidenceBundle) == bundle


def rewrite(path: Path, at: int, block: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(block)


def rewrite_identity(content: bytearray, **changes: object) -> None:
    """What a user may do with his own page."""
    at = beacon_page.IDENTITY_AT
    sequence, document = beacon_page.unpack_frame("identity", bytes(content[at : at + beacon_page.IDENTITY_BYTES]))
    assert document is not None
    text = json.dumps(document | changes).encode()
    checksum = crc32(text, crc32(struct.pack("<QI", sequence, len(text))))
    frame = beacon_page.FRAME_HEAD.pack(sequence, len(text), checksum) + text
    content[at : at + len(frame)] = frame
