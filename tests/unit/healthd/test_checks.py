from __future__ import annotations

from collections.abc import Sequence

import pytest

from healthd.checks import gpu_presence_checks, kernel_log_checks, nvml_liveness_checks
from healthd.checks.beacon_checks import PAGES_MAX, BeaconCheck
from healthd.checks.xid_checks import XidCheck
from healthd.findings.facts import Clear, Fact, LevelFact, Raise
from healthd.kernel_log.record_authenticity import RecordAuthenticator
from healthd.samples.kernel_record import KernelGap, KernelRecord
from healthd.samples.nvml import GpuReading, Inventory, NvmlHang, NvmlUnavailable, Sweep
from healthd.samples.rank_steps import Beacons
from vocabulary.driver_log.injected_line import mark_injected_line
from vocabulary.fault_catalogue.catalogue_file import load_catalogue
from vocabulary.finding import Severity
from vocabulary.identity import ComponentKind
from vocabulary.messages.wire import Gpu

GPUS = {i: Gpu(index=i, uuid=f"GPU-{i}", pci=f"0000:1{i}:00.0") for i in range(4)}
BY_PCI = {gpu.pci: gpu for gpu in GPUS.values()}
LINE = "NVRM: Xid (PCI:0000:13:00): 79, pid=42, name=python3, GPU has fallen off the bus."
CATALOGUE = load_catalogue()


def judge(text: str, facility: int = 0, *, accept: bool = False) -> Raise | None:
    check = XidCheck(RecordAuthenticator("n1", accept_injected=accept), CATALOGUE)
    return check.judge(KernelRecord("boot", 7, 1.0, facility, text), BY_PCI)


def said(facts: Sequence[Fact | LevelFact]) -> list[tuple[str, str, int | None]]:
    return [(type(f).__name__, f"{f.check}/{f.code}", f.component.index) for f in facts]


def sweep(*readings: GpuReading) -> Sweep:
    return Sweep(1.0, 0.001, readings)


def test_the_kernel_is_a_witness() -> None:
    fact = judge(LINE)
    assert fact is not None
    assert (fact.check, fact.code, fact.severity, fact.event, fact.injected) == (
        "xid",
        "79",
        Severity.FATAL,
        True,
        False,
    )
    assert (fact.component.index, fact.component.name) == (3, "GPU-3")
    assert fact.origin == "boot:7"
    assert fact.evidence == {
        "line": LINE,
        "pid": 42,
        "process": "python3",
        "advice": "isolate_replace",
        "burst_first": "79",
        "burst_position": 1,
    }


@pytest.mark.parametrize("facility", [1, 3, 16])
def test_a_process_is_none_whatever_it_writes(facility: int) -> None:
    assert judge(LINE, facility) is None
    assert judge(LINE, facility, accept=True) is None


def test_a_marked_fault_counts_only_where_allowed_and_meant_and_stays_marked() -> None:
    assert judge(mark_injected_line("n1", LINE), 1) is None
    assert judge(mark_injected_line("n2", LINE), 1, accept=True) is None
    fact = judge(mark_injected_line("n1", LINE), 1, accept=True)
    assert fact is not None
    assert (fact.code, fact.injected) == ("79", True)


@pytest.mark.parametrize(
    ("text", "kind", "severity"),
    [
        ("NVRM: Xid (PCI:0000:13:00): 4999, something new", "xid/4999", Severity.UNCLASSIFIED),
        ("NVRM: GPU 0000:13:00.0: GPU has fallen off the bus.", "xid/fallen_off_bus", Severity.FATAL),
        (
            "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30 LTSSM Fault Up",
            "sxid/20034",
            Severity.FATAL,
        ),
    ],
)
def test_other_words_of_the_driver(text: str, kind: str, severity: Severity) -> None:
    fact = judge(text)
    assert fact is not None
    assert (f"{fact.check}/{fact.code}", fact.severity) == (kind, severity)


@pytest.mark.parametrize(
    "text",
    ["", "usb 1-1: new device", "NVRM: loading NVIDIA UNIX Kernel Module", "Xid", "NVRM: Xid (PCI:nonsense): 79, x"],
)
def test_everything_else_is_no_evidence(text: str) -> None:
    assert judge(text) is None


def test_a_gap_in_the_log_is_a_warning_with_its_size() -> None:
    fact = kernel_log_checks.judge_gap(KernelGap("boot", 100, 1.0, 40))
    assert (fact.severity, fact.event, fact.evidence["lost"]) == (Severity.WARNING, True, 40)


def test_a_lost_gpu_and_one_that_answers_and_one_that_only_errs() -> None:
    readings = (
        GpuReading(index=0, lost=True),
        GpuReading(index=1, temperature_c=40),
        GpuReading(index=2, errors={"handle": "Unknown Error"}),
    )
    assert said(gpu_presence_checks.judge_lost_gpus(sweep(*readings), GPUS)) == [
        ("Raise", "gpu_presence/lost", 0),
        ("Clear", "gpu_presence/lost", 1),
    ]


def test_a_gpu_that_vanished_was_replaced_or_is_only_silent() -> None:
    swapped = Gpu(index=0, uuid="GPU-new", pci=GPUS[0].pci)
    there = Inventory("d", 2, (swapped, GPUS[1]))
    assert said(gpu_presence_checks.judge_gpu_inventory(there, [GPUS[0], GPUS[1], GPUS[2]], 1.0)) == [
        ("Raise", "gpu_presence/changed", 0),
        ("Clear", "gpu_presence/vanished", 0),
        ("Clear", "gpu_presence/vanished", 1),
        ("Raise", "gpu_presence/vanished", 2),
    ]
    silent = Inventory("d", 3, (GPUS[0], GPUS[1]))
    assert "Raise" not in str(said(gpu_presence_checks.judge_gpu_inventory(silent, GPUS.values(), 1.0)))


def test_a_gpu_that_is_new_or_another_is_noted_and_is_no_fault() -> None:
    def notes(before: list[Gpu], *now: Gpu) -> list[tuple[str, str, str]]:
        facts = gpu_presence_checks.judge_gpu_inventory(Inventory("d", len(now), now), before, 1.0)
        return [(f.code, f.severity.value, f.summary) for f in facts if isinstance(f, Raise)]

    def gpu(uuid: str, serial: str = "") -> Gpu:
        return Gpu(index=0, uuid=uuid, pci="0000:10:00.0", serial=serial)

    assert notes([], gpu("GPU-a"), GPUS[1]) == [], "before anything was known nothing is new"
    assert notes([gpu("GPU-a")], gpu("GPU-a", "7")) == [], "a serial number that was not known before is no other one"
    assert notes([gpu("GPU-a", "7")], gpu("GPU-a", "8")) == [
        ("changed", "info", "GPU 0 at 0000:10:00.0 is another one than before: serial 7 -> 8")
    ]
    assert notes([gpu("GPU-a")], gpu("GPU-a"), GPUS[1]) == [
        ("appeared", "info", "GPU 1 (GPU-1) is new at 0000:11:00.0")
    ]


def test_a_hang_names_gpu_and_call_and_a_whole_sweep_disproves_it() -> None:
    once = NvmlHang(1.0, 2, "temperature_c", 6.2)
    slow = nvml_liveness_checks.judge_hang(once, GPUS, once)
    assert (slow.code, slow.severity, slow.component.index) == ("slow", Severity.WARNING, 2), "it may only be busy"
    known = nvml_liveness_checks.judge_hang(NvmlHang(32.8, None, "nvmlInit", 30.0), GPUS, once)
    assert (known.code, known.severity, known.component.index) == ("hang", Severity.FATAL, 2)
    assert known.summary == "NVML hangs in temperature_c on GPU 2: no answer for 38 s", "where it began"
    pretended = NvmlHang(1.0, 2, "x", 6.2, injected=True)
    assert nvml_liveness_checks.judge_hang(pretended, GPUS, pretended).code == "hang"
    early = NvmlHang(1.0, None, "nvmlInit", 31.0)
    nowhere = nvml_liveness_checks.judge_hang(early, GPUS, early)
    assert nowhere.component.kind is ComponentKind.HOST
    facts = nvml_liveness_checks.judge_completed_sweep(sweep(GpuReading(index=2)), GPUS)
    cleared = {(fact.code, fact.component.key) for fact in facts if isinstance(fact, Clear)}
    assert cleared == {
        *(("slow", place) for place in ("host:all", "gpu:GPU-2")),
        *(("hang", place) for place in ("host:all", "gpu:GPU-2")),
        ("unavailable", "host:all"),
    }
    assert nvml_liveness_checks.judge_unavailable(NvmlUnavailable(1.0, "no library")).severity is Severity.WARNING


def test_a_broken_page_is_raised_until_it_is_gone_also_over_a_restart() -> None:
    check = BeaconCheck({"old.beacon"})
    facts = check.judge(Beacons(1.0, (), {"a.beacon": "beacon a: size: 3 bytes"}))
    assert [(type(f).__name__, f.component.name) for f in facts] == [("Clear", "old.beacon"), ("Raise", "a.beacon")]
    assert said(check.judge(Beacons(2.0, (), {}))) == [("Clear", "beacon/corrupt", None)]
    rubbish = {f"{i:04}.beacon": "rubbish" for i in range(1000)}
    assert len(check.judge(Beacons(3.0, (), rubbish))) == PAGES_MAX
