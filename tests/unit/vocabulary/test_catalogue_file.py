from __future__ import annotations

from pathlib import Path

import pytest

from vocabulary.fault_catalogue.catalogue_entry import Advice
from vocabulary.fault_catalogue.catalogue_file import FOLDER, SHIPPED, CatalogueError, load_catalogue
from vocabulary.finding import Severity


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("severity: fatal, action: isolate_replace", "severity: awful, action: isolate_replace", r"xid 79: .*severity"),
        (
            "process: dies, severity: fatal, action: iso",
            "process: maybe, severity: fatal, action: iso",
            "xid 79: .*process",
        ),
        ("meaning: The GPU no longer answers", "meanin: The GPU no longer answers", "xid 79: .*meanin"),
        ("causes: [pcie, gpu, th", "causes: [pcie, gremlins, gpu, th", "xid 79: .*gremlins"),
        ("aws: EKS replaces", "neighbour: EKS replaces", "xid 63: others: neighbour not described"),
        ("hopper: As Ampere", "hoppper: As Ampere", "xid 63: .*hoppper"),
        ("sources: [CAT, HDR]", "sources: [CAT, RUMOUR]", "sources: RUMOUR"),
        ("version: 2026-09", "version: [", "not YAML"),
        ("version: 2026-09", "version: {}", "version: missing, or not text"),
        ("0: {meaning:", "0: {meannig:", "recovery action 0"),
        (
            "severity: error, action: triage, effect: port",
            "severity: error, action: triage, effect: moon",
            "sxid 11001",
        ),
        (
            "immediate: IGNORE, later: CONTACT_SUPPORT",
            "immediate: SHRUG, later: CONTACT_SUPPORT",
            "nvlink5 144: .*SHRUG",
        ),
        ("others: {gpud: potentially fatal", "others: {gpud2: potentially fatal", "sxid 10001: others: gpud2"),
        ("sources: [SWH, FMG]", "sources: [SWH, RUMOUR]", "sxid 10001: sources: RUMOUR"),
        ("fatal: reset_gpu", "fatal: reset_moon", "sxid_effects"),
    ],
)
def test_an_error_names_the_file_the_code_and_the_field(tmp_path: Path, old: str, new: str, says: str) -> None:
    text = next(text for text in ((FOLDER / name).read_text() for name in SHIPPED) if old in text)
    broken = tmp_path / "mine.yaml"
    broken.write_text(text.replace(old, new, 1) if "version:" in text else "version: '1'\n" + text.replace(old, new, 1))
    with pytest.raises(CatalogueError, match=says) as caught:
        load_catalogue(broken)
    assert "mine.yaml" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("- xid\n", "holds no sections"),
        ("version: site-1\nxids: {}\n", "xids"),
        ("version: site-1\nxid: {4711: {meaning: x}}\n", "xid 4711: .*`name`"),
        ("version: site-1\nxid: {79: null}\n", "xid 79"),
        ("version: site-1\nxid: []\n", "xid"),
        ("version: site-1\nxid: {43: {reads: [{says: x, severity: info}]}}\n", "xid 43: .*come together"),
        ("version: site-1\nxid: {43: {reads: [{says: 'pid {pid}'}]}}\n", "xid 43: .*pid in braces, but not under when"),
        ("version: site-1\nxid: {43: {reads: [{says: '{pid.real}', when: {pid: any}}]}}\n", "xid 43: .*not a part"),
        ("version: site-1\nxid: {43: {reads: [{says: '{', when: {pid: any}}]}}\n", "xid 43: .*reads"),
        ("xid: {79: {note: x}}\n", "version: missing"),
        ("version: site-1\nsxid_effects: {}\nsxid: {12020: {ours: {effect: nowhere}}}\n", "sxid 12020"),
    ],
)
def test_what_a_site_writes_wrongly_is_named(tmp_path: Path, text: str, says: str) -> None:
    mine = tmp_path / "mine.yaml"
    mine.write_text(text)
    with pytest.raises(CatalogueError, match=says) as caught:
        load_catalogue(mine)
    assert "mine.yaml" in str(caught.value)


def test_a_site_changes_one_field_and_keeps_the_rest(tmp_path: Path) -> None:
    mine = tmp_path / "site.yaml"
    mine.write_text(
        "version: site-3\n"
        "sources: {US: our own experience}\n"
        "xid:\n"
        "  79: {ours: {action: reboot_node}, sources: [US]}\n"
        "  4711:\n"
        "    name: OURS\n"
        "    meaning: Known here only.\n"
        "    causes: [host]\n"
        "    ours: {blame: host, process: unknown, severity: info, action: none}\n"
        "    nvidia: {immediate: '', investigatory: ''}\n"
        "    sources: [US]\n"
        "sxid: {12028: {ours: {severity: info}}}\n"
    )
    shipped, changed = load_catalogue(), load_catalogue(mine)
    assert changed.version == f"{shipped.version}, site-3"
    assert changed.entry(79).action is Advice.REBOOT_NODE
    assert changed.entry(79).severity is shipped.entry(79).severity
    assert changed.entry(79).why == shipped.entry(79).why
    assert changed.entry(4711).mnemonic == "OURS"
    assert changed.sxid_entry(12028).severity is Severity.INFO
    assert {code for code in shipped.xids if changed.entry(code) != shipped.entry(code)} == {79}


def test_a_missing_file_says_so(tmp_path: Path) -> None:
    with pytest.raises(CatalogueError, match=r"none\.yaml: cannot be read"):
        load_catalogue(tmp_path / "none.yaml")


def test_the_example_in_the_docs_works(tmp_path: Path) -> None:
    text = (Path(__file__).parents[3] / "docs" / "reference" / "catalogue.md").read_text()
    example = next(part for part in text.split("```") if part.startswith("yaml\nversion: site-1"))
    mine = tmp_path / "site.yaml"
    mine.write_text(example.removeprefix("yaml\n"))
    changed = load_catalogue(mine)
    assert changed.entry(92).action is Advice.DRAIN_RESET
    assert changed.entry(4711).mnemonic == "SOMETHING_NEW"
