from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result
from hypothesis import given
from hypothesis import strategies as st

from healthctl.xid_explanation.explanation import explain_xid, parse_xid_query
from healthctl.xid_explanation.explanation_page import render_explanation
from vocabulary.driver_log.injected_line import mark_injected_line
from vocabulary.driver_log.xid_line import KernelEventKind
from vocabulary.fault_catalogue.catalogue_file import load_catalogue

Run = Callable[..., Result]
CATALOGUE = load_catalogue()
CORPUS = (Path(__file__).parents[2] / "golden" / "xid" / "lines.log").read_text().splitlines()
LINE = "NVRM: Xid (PCI:0000:07:00): 79, pid=5, name=python3, GPU has fallen off the bus."

EXPLAINED = {
    "48": "48",
    "162": "162",
    "13_line": "NVRM: Xid (PCI:0000:07:00): 13, pid=9, name=x, Graphics SM Warp Exception on (GPC 2, TPC 5, SM 1): Out Of Range Address",
    "48_line": "NVRM: Xid (PCI:0000:07:00): 48, pid=9, name=x, An uncorrectable double bit error (DBE) has been detected on GPU in the framebuffer at physAddr 0xe9b9107e0 partition 3, subpartition 0.",
    "74_line": "NVRM: Xid (PCI:0000:07:00): 74, NVLink: fatal error detected on link 11(0x10001, 0x0, 0x0, 0x40000, 0x0, 0x0, 0x0)",
    "79_line": LINE,
    "94_line": "NVRM: Xid (PCI:0000:07:00): 94, pid=9, name=x, Contained: SM (0x1). RST: No, D-RST: Yes",
    "119_line": "NVRM: Xid (PCI:0000:07:00): 119, pid=9, name=x, Timeout after 45s of waiting for RPC response from GPU2 GSP! Expected function 76 (GSP_RM_CONTROL) (0x20800a4c 0x4).",
    "145_line": "NVRM: Xid (PCI:0000:07:00): 145, RLW_SRC_TRACK Nonfatal XC0 i0 Link 03 (0x00000007 0x00000004 0x0 0x0 0x0 0x0 0x0)",
    "145_line_without_row": "NVRM: Xid (PCI:0000:07:00): 145, RLW_NEW Fatal XC0 i0 Link 03 (0x0000007f 0x00000004 0x0 0x0 0x0 0x0 0x0)",
    "sxid_fatal_line": "nvidia-nvswitch3: SXid (PCI:0000:85:00.0): 22011, Fatal, Link 32 MINION EXTERR",
}


@pytest.mark.parametrize("name", EXPLAINED)
def test_what_is_explained(healthctl: Run, golden: Callable[[str, str], None], name: str) -> None:
    for output, suffix in (("table", "txt"), ("json", "json")):
        done = healthctl("xid", "explain", EXPLAINED[name], "-o", output)
        assert done.exit_code == 0, done.stderr
        golden(f"healthctl/explain_{name}.{suffix}", done.stdout)


@pytest.mark.parametrize(
    ("text", "kind", "code"),
    [
        ("79", "xid", 79),
        ("xid 79", "xid", 79),
        ("XID: 79", "xid", 79),
        ("Xid=79", "xid", 79),
        ("12028", "sxid", 12028),
        ("sxid 12028", "sxid", 12028),
        ("SXid 79", "sxid", 79),
        (LINE, "xid", 79),
        ("Xid (PCI:0000:07:00): 79, GPU has fallen off the bus.", "xid", 79),
        ("SXid (PCI:0000:85:00.0): 12028, Fatal, Link 32 x", "sxid", 12028),
        ("[  117.984502] " + LINE, "xid", 79),
        ("kern  :warn  : [Tue Mar  4 12:00:00 2025] " + LINE, "xid", 79),
        ("Mar  4 12:00:00 node-1 kernel: [  117.984502] " + LINE, "xid", 79),
        ("2025-03-04T12:00:00+0000 node-1 kernel: " + LINE, "xid", 79),
        ("4,362,34101472,c;" + LINE, "xid", 79),
        (mark_injected_line("n1", LINE), "xid", 79),
        ("GPU worker[991]: " + LINE, "xid", 79),  # a program quoted it: no evidence, but worth explaining
        (f'the log said "{LINE}"', "xid", 79),
        (json.dumps({"_TRANSPORT": "kernel", "MESSAGE": LINE}), "xid", 79),
        (json.dumps({"MESSAGE": list(LINE.encode())}), "xid", 79),
        ("NVRM: GPU 0000:01:00.0: GPU has fallen off the bus.", "fallen_off_bus", None),
        (
            "[Mar 04 2025 12:00:00] [ERROR] [tid 9] detected NVSwitch non-fatal error 12028 on fid 0",
            "sxid",
            12028,
        ),
    ],
)
def test_what_may_be_asked(text: str, kind: str, code: int | None) -> None:
    asked = parse_xid_query(text)
    assert asked is not None
    assert (asked.event.kind.value, asked.event.code) == (kind, code)


def test_the_line_of_the_fabric_manager_tells_word_place_and_port() -> None:
    asked = parse_xid_query(
        "detected NVSwitch fatal error 20034 on fid 0 on NVSwitch pci bus id 00000000:86:00.0 physical id 3 port 61"
    )
    assert asked is not None
    assert (asked.event.word, asked.event.pci, asked.event.link) == ("Fatal", "0000:86:00.0", 61)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Xid",
        "sxid",
        "123456",
        "79 80",
        "-79",
        "٧٩",
        "Xid (PCI:0000:07:00): ",
        "{",
        '{"MESSAGE": null}',
        "[1]",
        "{}",
        "Xid (",
    ],
)
def test_what_is_neither_number_nor_message(healthctl: Run, text: str) -> None:
    done = healthctl("xid", "explain", "--", text)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith("healthctl: neither an Xid number nor a driver's message")


def test_a_switch_s_number_that_nobody_described_is_known_as_that(healthctl: Run) -> None:
    for text in ("98765", "sxid 98765", "SXid 79"):
        done = healthctl("xid", "explain", text)
        assert done.exit_code == 3
        assert done.stdout.startswith("SXid ")


def test_a_site_s_own_file_is_heard(healthctl: Run, tmp_path: Path) -> None:
    site = tmp_path / "site.yaml"
    site.write_text("version: site-1\nxid: {79: {ours: {action: reboot_node}, why: Ours come back.}}\n")
    done = healthctl("xid", "explain", "79", "--catalogue", str(site), "-o", "json")
    found = json.loads(done.stdout)
    assert (found["action"], found["why"], found["catalogue"]) == ("reboot_node", "Ours come back.", "2026-09, site-1")
    site.write_text("version: site-1\nxid: {79: {ours: {action: pray}}}\n")
    done = healthctl("xid", "explain", "79", "--catalogue", str(site))
    assert done.exit_code == 2
    assert "site.yaml: xid 79" in done.stderr


def test_every_number_has_a_page_that_argues_where_others_act_otherwise() -> None:
    for code in (*CATALOGUE.xids, *CATALOGUE.sxids):
        found = explain_xid(str(code), CATALOGUE)
        assert found is not None
        assert found.known
        shown = render_explanation(found)
        assert bool(found.others) <= ("\nwhy " in shown), code
        assert max(map(len, shown.splitlines())) < 130


def test_a_line_and_its_reading_agree() -> None:
    for line in CORPUS:
        found = explain_xid(line, CATALOGUE)
        if found is None:
            assert line.startswith("#")
            continue
        assert found.event is not None
        assert found.reading is not None
        assert found.severity is CATALOGUE.severity_of(found.event)


@given(st.text(max_size=200) | st.builds(lambda tail: LINE[:30] + tail, st.text(max_size=60)))
def test_any_text_is_explained_or_not(text: str) -> None:
    found = explain_xid(text, CATALOGUE)
    if found is not None:
        assert all(line.isprintable() for line in render_explanation(found).splitlines())


def test_a_number_alone_is_no_line() -> None:
    asked = parse_xid_query("45")
    assert asked is not None
    assert (asked.is_line, asked.event.kind) == (False, KernelEventKind.XID)
    found = explain_xid("45", CATALOGUE)
    assert found is not None
    assert found.reading is None
