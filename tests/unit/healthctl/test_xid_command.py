from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from vocabulary.driver_log.injected_line import mark_injected_line

Run = Callable[..., Result]
CORPUS = Path(__file__).parents[2] / "golden" / "xid"

EXPLAINED = {
    "63": ["63"],
    "79": ["79"],
    "94": ["Xid", "94"],
    "119": ["119"],
    "154_line": ["NVRM: Xid (PCI:0000:07:00): 154, pid=9, name=x, GPU recovery action changed from 0x0 (a) to 0x2 (b)"],
    "45_line": ["NVRM: Xid (PCI:0000:07:00 GPU-I:05): 45, pid=9, name=py, Ch 1, caused by previous Xid 94"],
    "fallen": ["[ 1.000000] NVRM: GPU 0000:01:00.0: GPU has fallen off the bus."],
    "sxid_line": ["nvidia-nvswitch3: SXid (PCI:0000:85:00.0): 12028, Non-fatal, Link 32 egress error (First)"],
    "sxid": ["12020"],
}


@pytest.mark.parametrize("name", EXPLAINED)
def test_explain(healthctl: Run, golden: Callable[[str, str], None], name: str) -> None:
    for output, suffix in (("table", "txt"), ("json", "json")):
        done = healthctl("xid", "explain", *EXPLAINED[name], "-o", output)
        assert done.exit_code == 0, done.stderr
        golden(f"healthctl/explain_{name}.{suffix}", done.stdout)


def test_a_number_nobody_described_is_explained_as_that_and_is_not_ok(
    healthctl: Run, golden: Callable[[str, str], None]
) -> None:
    done = healthctl("xid", "explain", "4711")
    assert done.exit_code == 3
    golden("healthctl/explain_4711.txt", done.stdout)


@pytest.mark.parametrize("text", ["seventy-nine", "-", "123456", "²", "NVRM: Xid", "\x1b[2J"])
def test_what_is_neither_number_nor_line_is_wrong_usage(healthctl: Run, text: str) -> None:
    done = healthctl("xid", "explain", text)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith("healthctl: neither an Xid number nor a driver's message")
    assert done.stderr.rstrip("\n").isprintable()


def test_what_a_line_says_cannot_steer_the_terminal(healthctl: Run) -> None:
    done = healthctl("xid", "explain", "NVRM: Xid (PCI:0000:07:00): 13, pid=9, name=\x1b]0;x\x07, de\x1b[2Jtail")
    assert done.exit_code == 0
    assert all(line.isprintable() for line in done.stdout.splitlines())


KEYS = ["line_no", "kind", "xid", "sxid", "pci", "pid", "process", "detail", "injected"]
KEYS_OF_OURS = ["mig", "caused_by", "recovery_action", "meaning", "live"]


def test_parse_says_something_of_every_line(healthctl: Run) -> None:
    near = (CORPUS / "near_misses.log").read_text().splitlines()
    lines = (CORPUS / "lines.log").read_text().splitlines()
    done = healthctl("xid", "parse", "-", stdin="\n".join(near + lines) + "\n")
    assert done.exit_code == 0
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [record["line_no"] for record in found] == list(range(1, len(near + lines) + 1))
    assert all(list(record) == KEYS + KEYS_OF_OURS for record in found)
    faults = [record["line_no"] for record in found if record["kind"] in ("xid", "sxid", "fallen_off_bus")]
    assert faults == [number for number, line in enumerate(near + lines, 1) if number > len(near) and line[0] != "#"]


def test_a_record_of_parse(healthctl: Run, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(
        b"\xff\xfe garbage\r\n"
        b"[    1.500000] NVRM: Xid (PCI:0000:07:00): 13, pid=9, name=py\xff, Graphics \x1b Exception\r\n"
        + mark_injected_line("n1", "NVRM: Xid (PCI:0000:07:00): 79, GPU has fallen off the bus.").encode()
    )
    done = healthctl("xid", "parse", str(log))
    assert done.exit_code == 0
    nothing, first, second = (json.loads(line) for line in done.stdout.splitlines())
    absent = dict.fromkeys(("xid", "sxid", "pci", "pid", "caused_by", "recovery_action"))
    texts = dict.fromkeys(("process", "detail", "mig", "meaning", "live"), "")
    assert nothing == {"line_no": 1, "kind": "none", "injected": False} | absent | texts
    assert first == absent | texts | {
        "line_no": 2,
        "kind": "xid",
        "xid": 13,
        "pci": "0000:07:00.0",
        "pid": 9,
        "process": "py\\xff",
        "detail": "Graphics \x1b Exception",
        "injected": False,
        "live": "xid/13",
    }
    assert (second["line_no"], second["xid"], second["injected"]) == (3, 79, True)
    assert "\x1b" not in done.stdout


def test_what_is_no_xid_is_explained_as_healthd_would(healthctl: Run) -> None:
    log = (
        "[ 1.5] nvme nvme1: controller is down; will reset: CSTS=0xffffffff\n[ 1.6] NVRM: Xid:  13, Channel 00000001\n"
    )
    disk, old = (json.loads(line) for line in healthctl("xid", "parse", "-", stdin=log).stdout.splitlines())
    assert (disk["kind"], disk["meaning"], disk["live"]) == ("nvme", "a disk's controller is down", "nvme_log/down")
    assert (old["kind"], old["xid"], old["live"]) == ("xid", 13, "")


def test_a_marked_line_counts_behind_any_transport(healthctl: Run) -> None:
    line = mark_injected_line("n1", "NVRM: Xid (PCI:0000:07:00): 79, x")
    for prefix in ("12,5,1,-;", "[ 1.000000] ", "Mar  4 12:00:00 h kernel: ", "Mar  4 12:00:00 h healthctl[7]: "):
        done = healthctl("xid", "parse", "-", stdin=prefix + line)
        assert json.loads(done.stdout)["injected"] is True


def test_a_line_without_an_end_fills_no_memory_and_hides_nothing(healthctl: Run) -> None:
    log = b"x" * 3_000_000 + b"\nNVRM: Xid (PCI:0000:07:00): 79, y\n" + b"\0" * 1_000_000
    done = healthctl("xid", "parse", "-", stdin=log)
    assert [json.loads(line)["kind"] for line in done.stdout.splitlines()] == ["none", "xid", "none"]


def test_an_empty_log_has_no_lines(healthctl: Run, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.touch()
    done = healthctl("xid", "parse", str(log))
    assert (done.exit_code, done.stdout) == (0, "")


@pytest.mark.parametrize("file", ["/nowhere/log", "/"])
def test_a_file_that_cannot_be_read_is_named(healthctl: Run, file: str) -> None:
    done = healthctl("xid", "parse", file)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith(f"healthctl: {file}: cannot be read: ")
    assert done.stderr.count("\n") == 1
