from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vocabulary.driver_log.xid_line import KernelEvent, KernelEventKind, parse_live_record
from vocabulary.fault_catalogue.catalogue_entry import Advice
from vocabulary.fault_catalogue.catalogue_file import load_catalogue
from vocabulary.fault_catalogue.line_reading import Basis, Reading
from vocabulary.fault_catalogue.reading_rules import read_by_rules
from vocabulary.finding import Severity

CATALOGUE = load_catalogue()
CORPUS = (Path(__file__).parents[2] / "golden" / "xid" / "lines.log").read_text().splitlines()

LINES = {
    13: [
        "Graphics SM Warp Exception on (GPC 2, TPC 5, SM 1): Out Of Range Address",
        "Graphics Exception: ESR 0x505730=0x201000e 0x505734=0x24",
    ],
    31: [
        "MMU Fault: ENGINE GRAPHICS GPC0 GPCCLIENT_T1_0 faulted @ 0x7f2a_00000000. Fault is of type FAULT_PDE x",
        "MMU Fault: ENGINE CE3 HUBCLIENT_CE1 faulted @ 0x7f_0. Fault is of type FAULT_RO_VIOLATION ACCESS_TYPE_VIRT_WRITE",
        "MMU Fault: ENGINE CE3 HUBCLIENT_CE1 faulted @ 0x7f_0. Fault is of type FAULT_INFO_TYPE_POISONED x",
    ],
    43: ["Ch 8"],
    45: ["Ch 1, caused by previous Xid 94", "Ch 1"],
    48: [
        "An uncorrectable double bit error (DBE) has been detected on GPU in the framebuffer at physAddr 0xe9b9107e0 partition 3, subpartition 0.",
        "An uncorrectable double bit error (DBE) has been detected on GPU in the framebuffer at partition 4, subpartition 1",
        "An uncorrectable double bit error (DBE) has been detected on GPU in the SM L1 cache.",
    ],
    63: [
        "Row Remapper: New row (0x0000000001a6f3) marked for remapping, reset gpu to activate.",
        "Dynamic Page Retirement: New page retired, reboot to activate (0x00000000000f3c3e).",
    ],
    64: ["Row Remapper: Error recording row (0x1a6f3)", "Dynamic Page Retirement: Page retired twice (0x1a6f3)"],
    92: ["High single-bit ECC error rate"],
    94: [
        "Contained: SM (0x1). RST: No, D-RST: No",
        "Contained: DRAM (0x1, 0x2). physAddr: 0x18f31d80 RST: No, D-RST: Yes",
        "Contained: CE User Channel (0x9). RST: Yes, D-RST: No",
        "Contained: LTC DATA (0x1,0x2). RST: No, D-RST: No",
        "Uncontained: LTC TAG (0x1,0x2). RST: No, D-RST: No",
    ],
    95: [
        "Uncontained: LTC TAG (0x2,0x0). RST: Yes, D-RST: No",
        "Uncontained: FBHUB. RST: No, D-RST: No",
        "Uncontained: DRAM (0x1, 0x2). physAddr: 0x18f31d80 RST: Yes, D-RST: No",
    ],
    119: [
        "Timeout after 45s of waiting for RPC response from GPU2 GSP! Expected function 76 (GSP_RM_CONTROL) (0x20800a4c 0x4).",
        "Timeout after 45s of waiting for RPC response from GPU2 GSP! Expected function 76",
    ],
    120: ["GSP task exception: load access page fault (cause:0xd) @ pc:0x13636b2, partition:2#0, task:3, gfid: 0"],
    171: ["GDDR, Uncorrectable DRAM error in FBPA 3 subpartition 0 physAddr 0xe9b9107e0"],
    172: ["Uncorrectable SRAM error"],
}


def event(code: int, text: str) -> KernelEvent:
    found = parse_live_record(f"NVRM: Xid (PCI:0000:07:00): {code}, pid=1, name=x, {text}")
    assert found is not None
    return found


def read(code: int, text: str) -> Reading:
    return CATALOGUE.reading(event(code, text))


def test_every_rule_of_the_file_fits_some_line() -> None:
    """So that no misspelled part or value sleeps there for ever."""
    assert set(LINES) == {code for code, entry in CATALOGUE.xids.items() if entry.reads}
    for code, lines in LINES.items():
        for rule in CATALOGUE.entry(code).reads:
            alone = msgspec.structs.replace(CATALOGUE.entry(code), reads=(rule,))
            assert any(read_by_rules(event(code, line), alone).says for line in lines), rule


@pytest.mark.parametrize(
    ("text", "severity", "action"),
    [
        (LINES[94][0], Severity.ERROR, Advice.DRAIN_RESET),
        (LINES[94][1], Severity.ERROR, Advice.DRAIN_RESET),
        (LINES[94][2], Severity.FATAL, Advice.RESET_GPU),  # the driver asks for it
        (LINES[94][4], Severity.FATAL, Advice.RESET_GPU),  # its own words outrank its number
        ("words nobody knows", Severity.ERROR, Advice.DRAIN_RESET),
    ],
)
def test_94_is_as_bad_as_the_driver_s_own_flags_say(text: str, severity: Severity, action: Advice) -> None:
    reading = read(94, text)
    assert (reading.severity, reading.action) == (severity, action)
    assert CATALOGUE.severity_of(event(94, text)) is severity


def test_a_unit_that_met_an_error_is_not_taken_for_its_place() -> None:
    said = " ".join(read(94, LINES[94][0]).says)
    assert "Met by SM" in said
    assert "no row can be remapped" not in said
    assert "SRAM, where no row can be remapped" in " ".join(read(94, LINES[94][3]).says)
    assert "DRAM, at 0x18f31d80" in " ".join(read(94, LINES[94][1]).says)


def test_dram_and_sram_of_48_are_told_apart() -> None:
    dram, partition, sram = (" ".join(read(48, line).says) for line in LINES[48])
    assert "DRAM, at 0xe9b9107e0" in dram
    assert "DRAM: 63 or 64" in partition
    assert "SRAM threshold flag" in sram
    assert "SRAM threshold flag" not in dram + partition


def test_memory_is_told_with_what_each_state_of_the_row_remapper_means() -> None:
    for code in (48, 63, 64, 92, 94, 95):
        said = " ".join(read(code, "x").says)
        assert "pending" in said, code
        assert "failure" in said, code


def test_45_with_a_cause_is_followed_to_it() -> None:
    reading = read(45, "Ch 1, caused by previous Xid 94")
    assert (reading.follow, reading.severity) == (94, Severity.INFO)
    assert reading.says[0] == "A consequence: follow Xid 94, which came first."
    assert reading.says[-1].startswith("Xid 94 ROBUST_CHANNEL_CONTAINED_ERROR: ")
    assert read(45, "Ch 1").follow is None


def test_a_silent_gsp_is_told_with_what_it_did_not_do() -> None:
    said = " ".join(read(119, LINES[119][0]).says)
    assert "waited 45 s" in said
    assert "GSP_RM_CONTROL (function 76)" in said
    assert "nor on Blackwell" in said


def test_a_poisoned_page_is_no_program_s_fault() -> None:
    assert "not by the program" in " ".join(read(31, LINES[31][2]).says)


def test_the_value_of_154_decides_and_a_fallen_gpu_is_79() -> None:
    assert read(154, "GPU recovery action changed from 0x0 (a) to 0x4 (b)").action is Advice.DRAIN_RESET
    fallen = CATALOGUE.reading(KernelEvent(kind=KernelEventKind.FALLEN_OFF_BUS))
    assert (fallen.severity, fallen.action) == (Severity.FATAL, Advice.ISOLATE_REPLACE)


@pytest.mark.parametrize(
    ("text", "severity", "action", "basis"),
    [
        ("12028, Fatal, Link 32 x", Severity.FATAL, Advice.RESET_GPU, Basis.LINE),
        ("12020, Non-fatal, Link 32 x", Severity.WARNING, Advice.WATCH, Basis.LINE),
        ("22011, Fatal, Link 32 x", Severity.FATAL, Advice.RESET_FABRIC, Basis.LINE),
        ("26006, SOE HALTED", Severity.FATAL, Advice.RESET_FABRIC, Basis.ENTRY),
        ("98765, Data {0x0}", Severity.UNCLASSIFIED, Advice.TRIAGE, Basis.ENTRY),
    ],
)
def test_a_line_of_a_switch(text: str, severity: Severity, action: Advice, basis: Basis) -> None:
    found = parse_live_record(f"nvidia-nvswitch3: SXid (PCI:0000:85:00.0): {text}")
    assert found is not None
    reading = CATALOGUE.reading(found)
    assert (reading.severity, reading.action, reading.basis) == (severity, action, basis)


def test_what_a_user_named_a_process_is_never_a_template() -> None:
    reading = read(31, "MMU Fault: ENGINE {unit.__class__} x faulted @ 0x1")
    assert any("{unit.__class__}" in line for line in reading.says)


@given(st.sampled_from([*(line for line in CORPUS if "id" in line)]), st.integers(0, 400))
def test_the_quick_answer_and_the_long_one_agree_on_lines_that_were_cut(line: str, at: int) -> None:
    found = parse_live_record(line[:at])
    if found is not None:
        assert CATALOGUE.reading(found).severity is CATALOGUE.severity_of(found)


@given(st.sampled_from(sorted(LINES)), st.text(max_size=200), st.integers(0, 200))
def test_the_quick_answer_and_the_long_one_agree_on_any_words(code: int, tail: str, at: int) -> None:
    found = KernelEvent(kind=KernelEventKind.XID, code=code, detail=LINES[code][0][:at] + tail)
    assert CATALOGUE.reading(found).severity is CATALOGUE.severity_of(found)
