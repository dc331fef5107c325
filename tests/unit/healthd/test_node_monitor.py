from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import pytest

from healthd.checks.kernel_message_checks import KernelMessageCheck
from healthd.checks.training_checks import Limits, TrainingCheck
from healthd.checks.xid_checks import XidCheck
from healthd.collectors.beacons import BeaconCollector
from healthd.collectors.pcie import PcieHop, PcieSample
from healthd.findings.facts import Moment
from healthd.findings.finding_ledger import FindingLedger
from healthd.gpu_monitoring.gpu_monitor import GpuMonitor
from healthd.gpu_monitoring.simulated_gpus import SimulatedGpus
from healthd.kernel_log.message_patterns.pattern_families import FAMILIES
from healthd.kernel_log.record_authenticity import RecordAuthenticator
from healthd.kernel_log.xid_corroboration import XidCorroborator
from healthd.node_monitor import NodeMonitor
from healthd.samples.kernel_record import KernelRecord
from healthd.samples.nvml import GpuReading, Inventory, NvmlUnavailable, Sweep, XidEvent
from healthd.samples.rank_steps import Beacons, RankSteps, StepFacts
from healthd.samples.source import SourceReading, SourceState
from healthd.thresholds import load_thresholds
from vocabulary.fault_catalogue.catalogue_file import load_catalogue
from vocabulary.finding import Finding, Severity
from vocabulary.messages.wire import Gpu, decode_message, encode_message

NOW = Moment(1_700_000_000.0, 5.0)


def make_watch(findings: Iterable[Finding] = ()) -> NodeMonitor:
    ledger, witness = FindingLedger("n1", "b", findings), RecordAuthenticator("n1", accept_injected=False)
    gpus = GpuMonitor(ledger, [Gpu(3, "GPU-3", "0000:13:00.0")], {}, SimulatedGpus(ledger, {}))
    xids, messages = XidCheck(witness, load_catalogue()), KernelMessageCheck(witness, FAMILIES)
    trainings = TrainingCheck(load_thresholds().section("training", Limits))
    return NodeMonitor(ledger, xids, messages, gpus, XidCorroborator("b"), {}, trainings)


def hear(watch: NodeMonitor, *lines: str) -> bool:
    records = [KernelRecord("b", number, NOW.wall, 0, line) for number, line in enumerate(lines)]
    return watch.take_kernel(records, [], NOW)


@pytest.mark.parametrize(
    ("line", "found", "look"),
    [
        ("NVRM: Xid (PCI:0000:13:00): 79, GPU has fallen off the bus.", ["xid/79"], True),
        ("NVRM: GPU 0000:13:00.0: RmInitAdapter failed! (0x26:0x56:1463)", ["nvidia_driver/init_failed"], True),
        ("NVRM: _issueRpcAndWait: rpcRecvPoll timedout for fn 76!", ["nvidia_driver/gsp"], True),
        (
            "nvidia 0000:13:00.0: PCIe Bus Error: severity=Uncorrected (Non-Fatal), type=Transaction Layer, (Requester ID)",
            ["pcie_aer/nonfatal"],
            True,
        ),
        ("nvidia 0000:13:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)", [], False),
        ("nvme nvme1: controller is down; will reset: CSTS=0xffffffff", ["nvme_log/down"], False),
        ("nfs: server fs1 OK", [], False),
        ("docker0: port 1(veth2e8c6f1) entered blocking state", [], False),
    ],
)
def test_a_line_is_judged_by_one_check_and_those_about_gpus_call_for_a_look(
    line: str, found: list[str], *, look: bool
) -> None:
    watch = make_watch()
    assert hear(watch, line) is look
    assert [f"{finding.check}/{finding.code}" for finding in watch.ledger.active] == found


def hear_record(watch: NodeMonitor, text: str, *, attested: bool = True, now: Moment = NOW) -> None:
    watch.take_kernel([KernelRecord("b", 1, now.wall, 0, text, attested=attested)], [], now)


def kinds(watch: NodeMonitor) -> list[str]:
    return [f"{finding.check}/{finding.code}" for finding in watch.ledger.active]


ELSEWHERE = "NVRM: Xid (PCI:0000:99:00): 79, GPU has fallen off the bus."
OURS = "NVRM: Xid (PCI:0000:13:00): 79, GPU has fallen off the bus."


@pytest.mark.parametrize(
    ("text", "attested"),
    [
        (ELSEWHERE, True),
        ("NVRM: GPU has fallen off the bus.", True),
        ("nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30 LTSSM Fault Up", True),
        (OURS, False),
        ("NVRM: GPU 0000:13:00.0: RmInitAdapter failed! (0x26:0x56:1463)", False),
        ("Kernel panic - not syncing: Fatal exception", False),
        ("EXT4-fs (sda1): Remounting filesystem read-only", False),
    ],
)
def test_what_does_not_prove_itself_is_counted_and_shown_and_does_not_act(text: str, *, attested: bool) -> None:
    watch = make_watch()
    hear_record(watch, text, attested=attested)
    assert kinds(watch) == []
    assert [count.count for count in watch.ledger.events.rows] == [1]
    (finding,) = watch.ledger.changed.values()
    assert (finding.severity, finding.active) == (Severity.INFO, False)
    assert "recorded only" in finding.summary


def test_the_drivers_event_makes_it_act_about_the_gpu_that_it_names() -> None:
    watch = make_watch()
    hear_record(watch, ELSEWHERE)
    watch.take_nvml(XidEvent(at=NOW.wall, index=3, code=79), NOW)
    (finding,) = watch.ledger.active
    assert (finding.kind, finding.severity, finding.component.name) == ("xid/79", Severity.FATAL, "GPU-3")
    later = Moment(NOW.wall + 60, NOW.monotonic + 60)
    watch.take_late_events(later)
    assert len(watch.ledger.active) == 1, "the event says nothing a second time"
    assert [count.count for count in watch.ledger.events.rows] == [1]


@pytest.mark.parametrize("text", [ELSEWHERE, "NVRM: GPU has fallen off the bus."])
def test_a_driver_that_does_not_answer_makes_it_act(text: str) -> None:
    watch = make_watch()
    hear_record(watch, text)
    watch.take_nvml(NvmlUnavailable(NOW.wall, "Driver Not Loaded"), NOW)
    watch.take_late_events(NOW)
    assert "fatal" in {finding.severity.value for finding in watch.ledger.active if finding.check == "xid"}


@pytest.mark.parametrize("text", [ELSEWHERE, "NVRM: GPU has fallen off the bus."])
@pytest.mark.parametrize("others", [(), (Gpu(4, "GPU-4", "0000:14:00.0"),)])
def test_a_gpu_that_is_left_out_makes_it_act(text: str, others: tuple[Gpu, ...]) -> None:
    watch = make_watch()
    watch.take_nvml(Inventory("d", 1 + len(others), others, left_out=(3,)), NOW)
    watch.take_nvml(Sweep(NOW.wall, 0.1, tuple(GpuReading(index=gpu.index) for gpu in others)), NOW)
    hear_record(watch, text)
    watch.take_late_events(NOW)
    assert "fatal" in {finding.severity.value for finding in watch.ledger.active if finding.check == "xid"}


def test_gpus_that_are_all_left_out_and_never_told_their_address_make_it_act() -> None:
    watch = make_watch()
    watch.take_nvml(Inventory("d", 1, (), left_out=(0,)), NOW)
    watch.take_nvml(Sweep(NOW.wall, 0.1, ()), NOW)
    hear_record(watch, ELSEWHERE)
    watch.take_late_events(NOW)
    assert "xid/79" in kinds(watch)


def test_a_gpu_on_the_bus_is_this_nodes_although_the_driver_never_came_up() -> None:
    watch = make_watch()
    hear_record(watch, ELSEWHERE)
    hop = PcieHop("0000:99:00.0", "gpu", 16, 16, 32.0, 32.0, 0, 0, 0)
    reading = SourceReading(
        source="pcie", state=SourceState.PRESENT, at=NOW.wall, sample=PcieSample((hop,), (("0000:99:00.0",),))
    )
    watch.take_source(reading, NOW)
    watch.take_late_events(NOW)
    assert kinds(watch) == ["xid/79"]
    second = make_watch()
    second.take_source(reading, NOW)
    hear_record(second, ELSEWHERE)
    assert kinds(second) == ["xid/79"]


def test_a_flood_is_one_finding_with_a_count_and_the_evidence_of_its_first_line() -> None:
    watch = make_watch()
    hear(watch, *(f"nvme nvme1: I/O {number} QID 7 timeout, aborting" for number in range(1000)))
    (finding,) = watch.ledger.active
    assert finding.count == 1000
    assert finding.evidence["line"] == "nvme nvme1: I/O 0 QID 7 timeout, aborting"


def test_the_cause_of_a_burst_stays_the_first_however_often_it_is_repeated() -> None:
    watch = make_watch()
    codes = (79, 119, 79, 45, 45, 154)
    hear(watch, *(f"NVRM: Xid (PCI:0000:13:00): {code}, x" for code in codes))
    told = {f.code: (f.count, f.evidence["burst_first"], f.evidence["burst_position"]) for f in watch.ledger.active}
    assert (told["79"], told["119"]) == ((2, "79", 1), (1, "79", 2))
    assert {first for _, first, _ in told.values()} == {"79"}


def steps(ordinal: int, loss: float) -> RankSteps:
    done = StepFacts(ordinal, ordinal, 1e9 + ordinal, 0.9, loss=loss)
    return RankSteps("train", 0, 0, 1, 7, True, ordinal + 1, ordinal + 1, "step", new=(done,))


def test_training_that_goes_astray_is_a_finding_until_it_is_well_again_or_over() -> None:
    watch = make_watch()
    watch.take_beacons(Beacons(NOW.wall, (), {}, (steps(0, float("nan")),)), NOW)
    assert [f.kind for f in watch.ledger.active] == ["training/loss_not_finite"]
    watch.take_beacons(Beacons(NOW.wall, (), {}), NOW)
    assert watch.ledger.active == ()


def test_a_check_that_fails_on_a_page_blinds_no_other() -> None:
    watch = make_watch()
    broken = steps(0, 1.0)._replace(new=(None,))  # type: ignore[arg-type]  # what no reader makes
    watch.take_beacons(Beacons(NOW.wall, (), {"a.beacon": "short"}, (broken,)), NOW)
    assert {f.kind for f in watch.ledger.active} == {"beacon/corrupt", "check/failed"}


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        (b"evil\xff.0.0.beacon", "evil\\xff.0.0.beacon"),
        ("caf\N{LATIN SMALL LETTER E WITH ACUTE}.0.0.beacon".encode(), None),
    ],
)
def test_a_page_whose_name_is_no_text_is_one_finding_until_it_is_gone(
    tmp_path: Path, name: bytes, shown: str | None
) -> None:
    page = os.path.join(os.fsencode(tmp_path), name)  # noqa: PTH118 - a name in bytes
    os.close(os.open(page, os.O_CREAT, 0o600))
    watch, collector = make_watch(), BeaconCollector(tmp_path)
    watch.take_beacons(collector.read(NOW.wall), NOW)
    (finding,) = watch.ledger.active
    assert (finding.kind, finding.component.name) == ("beacon/corrupt", shown or name.decode())
    assert finding.component.name in finding.summary
    assert decode_message(encode_message(finding), Finding) == finding
    again = make_watch(watch.ledger.active)
    again.take_beacons(BeaconCollector(tmp_path).read(NOW.wall), NOW)
    assert again.ledger.active == (finding,), "a restart finds the same"
    os.unlink(page)  # noqa: PTH108 - same
    again.take_beacons(collector.read(NOW.wall + 1), NOW)
    assert again.ledger.active == ()


def test_a_beacon_check_that_fails_blinds_no_other() -> None:
    watch = make_watch()
    broken = {None: "what no reader makes", "a.beacon": "short"}
    watch.take_beacons(Beacons(NOW.wall, (), broken, (steps(0, float("nan")),)), NOW)  # type: ignore[arg-type]  # same
    assert {f.kind for f in watch.ledger.active} == {"training/loss_not_finite", "check/failed"}
