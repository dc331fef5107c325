from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vocabulary.driver_log.xid_line import KernelEvent, KernelEventKind, parse_live_record
from vocabulary.fault_catalogue.catalogue_entry import Advice
from vocabulary.fault_catalogue.catalogue_file import load_catalogue
from vocabulary.fault_catalogue.line_reading import Basis
from vocabulary.fault_catalogue.nvlink_tables import read_nvlink_event
from vocabulary.finding import Severity

CATALOGUE = load_catalogue()
TABLES = CATALOGUE.nvlink
WORD = st.integers(0, 0xFFFF_FFFF)


def event(code: int, text: str) -> KernelEvent:
    found = parse_live_record(f"NVRM: Xid (PCI:0000:07:00): {code}, pid=1, name=x, {text}")
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("code", "text", "unit", "layout", "severity", "action", "basis"),
    [
        (144, "SAW_MVB Fatal XC0 i0 Link 03 (0x00000021 0x2 0x0)", "SAW_MVB", "v1", "fatal", "reset_gpu", "table"),
        (144, "SAW_MVB Fatal XC0 i0 Link 03 (0x00000001 0x00000002", "SAW_MVB", "v2", "fatal", "reset_gpu", "table"),
        (144, "SAW_MVB Nonfatal XC0 i0 Link 03 (0x00000001 0x4 0x0)", "SAW_MVB", "v2", "info", "none", "table"),
        (144, "SAW_MVB Nonfatal XC0 i0 Link 03 (0x00000001 0x1 0x0)", "SAW_MVB", "v2", "warning", "watch", "table"),
        # 154 or the job, and never this GPU's fault.
        (145, "RLW_SRC_TRACK Nonfatal XC0 i0 Link 3 (0x7 0x4 0x0)", "RLW_SRC_TRACK", "v2", "warning", "restart_job", "table"),
        # Bit 10, or 7, raises it.
        (145, "RLW_RXPIPE Nonfatal XC0 i0 Link 3 (0xc2 0x1 0x0)", "RLW_RXPIPE", "v1", "warning", "watch", "table"),
        (145, "RLW_RXPIPE Fatal XC0 i0 Link 3 (0x4c2 0x1 0x0)", "RLW_RXPIPE", "v1", "fatal", "reset_gpu", "table"),
        (145, "RLW_RXPIPE Fatal XC0 i0 Link 3 (0x86 0x1 0x0)", "RLW_RXPIPE", "v2", "fatal", "reset_gpu", "table"),
        (146, "TLW_RX_PIPE1 Nonfatal XC0 i0 Link 3 (0xb 0x1 0x0)", "TLW_RX_PIPE1", "v2", "info", "none", "table"),
        (146, "TLW_RX Fatal XC0 i0 Link 3 (0x143 0x4 0x0)", "TLW_RX", "v1", "fatal", "reset_gpu", "table"),
        (149, "NETIR_LINK_DOWN Fatal XC0 i0 Link 7 (0x2300011 0x9 0x0)", "NETIR_LINK_DOWN", "v2", "fatal", "reset_gpu", "table"),
        # The driver's word is worse than the row: it counts.
        (145, "RLW_RXPIPE Fatal XC0 i0 Link 3 (0xc2 0x1 0x0)", "RLW_RXPIPE", "v1", "fatal", "reset_gpu", "table"),
        # Milder words count only where the sheet says so.
        (149, "NETIR_MFDE_EVENT Nonfatal XC0 i0 Link 3 (0x14 0x1 0x0)", "NETIR_MFDE_EVENT", "v2", "warning", "watch", "table"),
        (146, "TLW_RX Nonfatal XC0 i0 Link 3 (0x143 0x4 0x0)", "TLW_RX", "v1", "fatal", "reset_gpu", "table"),
        # Two words, and both layouts say the same.
        (150, "MSE Degraded Fatal XC1 i0 Link -1 (0x0 0xffffffff 0x0)", "MSE Degraded", "v1 or v2", "fatal", "reset_gpu", "table"),
        (150, "MSE_WATCHDOG Fatal XC1 i0 Link -1 (0x0 0x0 0x0)", "MSE_WATCHDOG", "v1 or v2", "fatal", "reset_gpu", "table"),
        # No row.
        (144, "SAW_MVB Nonfatal XC0 i0 Link 03 (0x00000001 0x3 0x0)", "SAW_MVB", "v2", "warning", "watch", "line"),
        (148, "NEW_UNIT Fatal XC0 i0 Link 03 (0x0000007f 0x3 0x0)", "NEW_UNIT", "", "fatal", "reset_gpu", "line"),
        (145, "RLW_SRC_TRACK Nonfatal XC0 i0 Link 03", "RLW_SRC_TRACK", "", "warning", "watch", "line"),
        # Cut: the status may have had more digits, the unit may not.
        (144, "SAW_MVB Nonfatal XC0 i0 Link 03 (0x00000001 0x4", "SAW_MVB", "v2", "warning", "watch", "line"),
        (144, "SAW_MVB Nonfatal XC0 i0 Link 03 (0x0000000", "SAW_MVB", "", "warning", "watch", "line"),
    ],
)  # fmt: skip
def test_a_line_of_nvlink_5(
    code: int, text: str, unit: str, layout: str, severity: str, action: str, basis: str
) -> None:
    reading = read_nvlink_event(event(code, text), TABLES)
    assert reading is not None
    found = (reading.unit, reading.layout, reading.severity.value, reading.action.value, reading.basis.value)
    assert found == (unit, layout, severity, action, basis)
    assert CATALOGUE.severity_of(event(code, text)) is reading.severity


def test_a_fallback_says_that_it_is_one() -> None:
    reading = read_nvlink_event(event(144, "SAW_MVB Nonfatal XC0 i1 Link 3 (0x1 0x3 0x0)"), TABLES)
    assert reading is not None
    assert reading.says == (
        "Unit SAW_MVB is known, but not with this status: the severity in the line decides, nonfatal.",
    )


def test_what_the_driver_injected_is_named() -> None:
    reading = read_nvlink_event(event(144, "SAW_MVB Nonfatal XC0 i1 Link 3 (0x1 0x1 0x0)"), TABLES)
    assert reading is not None
    assert reading.says[-1] == "The driver marks it as injected."


@pytest.mark.parametrize(
    ("registers", "severity", "action"),
    [
        ("(0x800001, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)", "info", "none"),  # all to be ignored
        ("(0x800003, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)", "warning", "watch"),
        ("(0x10001, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)", "error", "hands_on"),
        ("(0x1, 0x0, 0x40, 0x0, 0x100000, 0x0, 0x0)", "error", "drain_reset"),
        ("(0x1, 0x0, 0x2000, 0x40000, 0x0, 0x0, 0x0)", "error", "reset_fabric"),
        ("(0x4, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)", "error", "triage"),  # nobody describes bit 2
        ("(0x1, 0xffffffff, 0x0, 0x0, 0x0, 0x2, 0x80000000)", "info", "none"),  # registers without a meaning
        ("(0x10000, 0x0", "error", "hands_on"),
    ],
)
def test_the_registers_of_74_and_the_worst_bit_wins(registers: str, severity: str, action: str) -> None:
    line = event(74, f"NVLink: fatal error detected on link 11{registers}")
    reading = read_nvlink_event(line, TABLES)
    assert reading is not None
    assert (reading.severity.value, reading.action.value, reading.basis) == (severity, action, Basis.TABLE)
    assert CATALOGUE.severity_of(line) is reading.severity


@pytest.mark.parametrize(
    "text",
    [
        "NVLink: failed to train link 3 to remote PCI:0000:85:00",
        "NVLink: fatal error detected on link 11(0x0, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)",
        "NVLink: fatal error detected on link 11(0x800001, 0x0, 0x0",  # harmless so far, then cut
        "NVLink: fatal error detected on link 11(0x1",
    ],
)
def test_a_74_without_a_readable_bit_keeps_what_is_known_of_the_number(text: str) -> None:
    assert read_nvlink_event(event(74, text), TABLES) is None
    reading = CATALOGUE.reading(event(74, text))
    assert (reading.severity, reading.action, reading.basis) == (Severity.ERROR, Advice.DECODE, Basis.ENTRY)


def test_every_bit_is_described_once() -> None:
    listed = [(row.register, bit) for row in TABLES.bits for bit in row.bits]
    assert len(listed) == len(set(listed))
    assert {register for register, _ in listed} == set(TABLES.other_bits.registers)


def test_no_first_word_fits_both_layouts_except_of_150_whose_rows_agree() -> None:
    """Two pairs of mask and value have a word in common if they agree where both look."""
    both = {
        code
        for code, units in TABLES.units.items()
        for one, other in product(units, units)
        if not (one.v1[1] ^ other.v2[1]) & one.v1[0] & other.v2[0]
    }
    assert both == {150}
    assert {row.immediate for unit in TABLES.units[150] for row in unit.rows} == {"RESET_GPU"}


def test_all_rows_of_the_sheet_are_here_and_each_is_found_by_its_own_words() -> None:
    assert sum(len(unit.rows) for units in TABLES.units.values() for unit in units) == 71 + 1  # one is raised by a bit
    for code, units in TABLES.units.items():
        for unit, layout in product(units, ("v1", "v2")):
            first = unit.v1[1] if layout == "v1" else unit.v2[1]
            for row in unit.rows:
                status = row.status[-1] if row.status else 0x1234
                text = f"{unit.unit} {'Nonfatal' if row.printed == 'Non-fatal' else 'Fatal'} XC0 i0 Link 1 (0x{first:08x} 0x{status:08x} 0x0)"
                reading = read_nvlink_event(event(code, text), TABLES)
                assert reading is not None
                assert reading.basis is Basis.TABLE
                assert layout in reading.layout
                assert (reading.immediate, reading.later) == (row.immediate, row.later)


@given(st.integers(144, 150), WORD, WORD, st.sampled_from(["Fatal", "Nonfatal", "Non-fatal"]))
def test_any_words_are_read_and_only_150_in_two_layouts(code: int, first: int, status: int, word: str) -> None:
    text = f"RLW_CTRL {word} XC0 i0 Link 1 (0x{first:08x} 0x{status:08x} 0x0)"
    reading = read_nvlink_event(event(code, text), TABLES)
    assert reading is not None
    assert " or " not in reading.layout or code == 150
    assert reading.says
    if word == "Fatal":
        assert reading.severity.rank >= Severity.WARNING.rank


@given(st.lists(WORD, min_size=1, max_size=9))
def test_any_registers_are_read(registers: list[int]) -> None:
    text = f"NVLink: error on link 3({', '.join(f'0x{word:x}' for word in registers)})"
    reading = read_nvlink_event(event(74, text), TABLES)
    assert reading is None or reading.severity is CATALOGUE.severity_of(event(74, text))


@given(st.integers(0, 200), st.text(max_size=300))
def test_any_text_does_no_harm(code: int, text: str) -> None:
    line = KernelEvent(kind=KernelEventKind.XID, code=code, detail=text)
    assert CATALOGUE.reading(line).severity is CATALOGUE.severity_of(line)
