from __future__ import annotations

from pathlib import Path

import pytest

from vocabulary.fault_catalogue.catalogue import Catalogue
from vocabulary.fault_catalogue.catalogue_entry import Advice, ErrorReach
from vocabulary.fault_catalogue.catalogue_file import load_catalogue
from vocabulary.finding import Severity

SHIPPED = Path(__file__).parents[3] / "playbooks" / "catalogue" / "sxid.yaml"
ALWAYS_FATAL = (10003, 12020, 22011, *range(23002, 23017, 2))
POTENTIALLY_FATAL = (
    *(10001, 11001, 11013, 11019, 12001, 12022, 12025, 12027, 12031, 14017, 15006, 15010, 15013, 19048),
    *(19056, 19060, 19063, 19066, 19069, 20034, 24004, 24006),
)
NOT_FATAL = (11004, 11021, 11023, 12023, 15011, 19055, 19059, 19065, 19071, 19084, 20001, 20009, 20012, 24002)
HARMLESS = (11012, 11022, 12021, 15008, 19049, 19057, 19062, 19068, 22013, 24001, 24003)
RESET_FABRIC = (10006, 10007, 10008, 22003, 23001, 23003, 23005, 23007, 23011, 23013, 23015, *range(26001, 26008))


@pytest.fixture(scope="module")
def catalogue() -> Catalogue:
    return load_catalogue()


@pytest.mark.parametrize(
    ("codes", "severity"),
    [
        (ALWAYS_FATAL, Severity.FATAL),
        (RESET_FABRIC, Severity.FATAL),
        (POTENTIALLY_FATAL, Severity.ERROR),
        (NOT_FATAL, Severity.WARNING),
        (HARMLESS, Severity.INFO),
        ((10004, 10005, 12028, 28001), Severity.WARNING),
        ((12032, 24007, 28003, 28005), Severity.ERROR),
        ((28006,), Severity.UNCLASSIFIED),
    ],
)
def test_without_a_word_in_the_line_the_table_says_how_bad_it_is(
    catalogue: Catalogue, codes: tuple[int, ...], severity: Severity
) -> None:
    assert {code: catalogue.sxid_entry(code).severity for code in codes} == dict.fromkeys(codes, severity)


def test_every_entry_is_whole(catalogue: Catalogue) -> None:
    assert all(entry.meaning and entry.sources for entry in catalogue.sxids.values())
    assert {code for code, entry in catalogue.sxids.items() if not entry.mnemonic} == {28006}  # it changed its meaning
    assert all(entry.mnemonic.startswith("NVSWITCH_ERR_HW_") for entry in catalogue.sxids.values() if entry.mnemonic)
    assert [code for code, entry in catalogue.sxids.items() if entry.others and not entry.why] == []
    names = [entry.mnemonic for entry in catalogue.sxids.values()]
    assert len(set(names)) == len(names)


def test_no_block_stands_twice_in_the_file() -> None:
    headings = [line for line in SHIPPED.read_text().splitlines() if line[:2] == "  " and line[2:-1].isdigit()]
    assert len(headings) == len(set(headings)) == 85


def test_what_concerns_the_whole_switch_asks_for_the_whole_fabric(catalogue: Catalogue) -> None:
    assert catalogue.sxid_effects[ErrorReach.SWITCH].fatal is Advice.RESET_FABRIC
    assert catalogue.sxid_effects[ErrorReach.PORT].fatal is Advice.RESET_GPU
    for entry in catalogue.sxids.values():
        if entry.severity is Severity.FATAL:
            assert entry.action is catalogue.sxid_effects[entry.effect].fatal, entry.code


def test_a_number_nobody_described_is_never_fine(catalogue: Catalogue) -> None:
    entry = catalogue.sxid_entry(98765)
    assert (entry.severity, entry.action, entry.sources) == (Severity.UNCLASSIFIED, Advice.TRIAGE, ())
