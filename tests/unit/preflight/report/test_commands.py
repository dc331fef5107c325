"""The commands as a person has them, behind `healthctl preflight`."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click.testing
import msgspec
import pytest

from healthctl.main import cli
from preflight.check_context import Device
from preflight.commands.command_table import COMMANDS
from preflight.commands.tests_command import read_test_summary
from preflight.document_schema import schema_text
from preflight.group.group_records import GroupDocument, Named
from preflight.plan import SPECS
from preflight.report.document_reader import parse_document
from preflight.results import Document, Figure, Outcome, Result, Verdict

Ask = Callable[..., click.testing.Result]
Kept = Callable[..., str]


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch) -> Ask:
    for name in ("HEALTHD_PREFLIGHT_BASELINE", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)

    def invoke(*words: str, stdin: str = "") -> click.testing.Result:
        return click.testing.CliRunner().invoke(cli, ["preflight", *words], input=stdin, prog_name="healthctl")

    return invoke


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    """Write a document down, perhaps changed; its file."""

    def keep(document: Document, **changed: object) -> str:
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.json"
        path.write_bytes(msgspec.json.encode(msgspec.structs.replace(document, **changed)))
        return str(path)

    return keep


def slower(document: Document, device: str, share: float) -> tuple[Result, ...]:
    """Its results with every rate of one device at `share`."""

    def braked(figure: Figure) -> Figure:
        return msgspec.structs.replace(figure, value=figure.value * share) if "/s" in figure.unit else figure

    return tuple(
        msgspec.structs.replace(result, figures=tuple(map(braked, result.figures))) if result.device == device else result
        for result in document.results
    )  # fmt: skip


@pytest.mark.parametrize(
    "command", [(name,) for name in COMMANDS] + [("baseline", name) for name in ("learn", "show", "check", "forget")]
)
def test_every_command_has_its_help(ask: Ask, command: tuple[str, ...]) -> None:
    done = ask(*command, "--help")
    assert done.exit_code == 0
    assert f"Usage: healthctl preflight {' '.join(command)}" in done.stdout


def test_the_schema_is_printed_as_it_is_published(ask: Ask) -> None:
    assert ask("schema").stdout == schema_text()


def test_every_test_says_what_it_proves_without_being_imported(ask: Ask) -> None:
    listed = json.loads(ask("tests", "-o", "json").stdout)
    assert [row["test"] for row in listed] == list(SPECS)
    assert all(row["proves"].endswith((".", ":")) and row["levels"] for row in listed)
    text = ask("tests").stdout
    assert all(f"--inject {test}:" in text for test in SPECS)


def test_a_test_without_a_file_proves_nothing() -> None:
    assert not read_test_summary("no_such_test")


@pytest.mark.parametrize(("form", "begins"), [("text", "gpu-node-17: FAIL"), ("json", '{\n  "version": 2'), ("junit", "<?xml"), ("html", "<!DOCTYPE html>")])  # fmt: skip
def test_a_report_in_each_form_on_the_terminal_and_in_a_file(
    ask: Ask, kept: Kept, failing: Document, tmp_path: Path, form: str, begins: str
) -> None:
    name, target = kept(failing), tmp_path / "report"
    printed = ask("report", name, "-o", form)
    assert printed.exit_code == 0
    assert printed.stdout.startswith(begins)
    written = ask("report", name, "-o", form, "-f", str(target))
    assert written.exit_code == 0
    assert not written.stdout
    assert target.read_text() == printed.stdout
    assert target.stat().st_mode & 0o777 == 0o644


def test_several_documents_and_standard_input(ask: Ask, kept: Kept, failing: Document, passing: Document) -> None:
    one = kept(failing)
    done = ask("report", one, "-", "-o", "json", stdin=msgspec.json.encode(passing).decode())
    assert [json.loads(line)["verdict"] for line in done.stdout.splitlines()] == ["fail", "pass"]


def test_no_colour_goes_into_a_file_or_a_pipe(ask: Ask, kept: Kept, failing: Document) -> None:
    assert "\x1b" not in ask("report", kept(failing)).stdout


@pytest.mark.parametrize("said", ["", "[]", '{"version": 99}'])
def test_a_file_that_is_no_document_is_named_and_nothing_is_known(ask: Ask, tmp_path: Path, said: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(said)
    for words in (("report", str(path)), ("compare", str(path), str(path)), ("baseline", "check", str(path))):
        done = ask(*words)
        assert done.exit_code == 3
        assert done.stderr.startswith(f"preflight: {path}: ")
        assert done.stderr.count("\n") == 1


def test_a_file_that_is_not_there_or_cannot_be_written_is_named(
    ask: Ask, kept: Kept, passing: Document, tmp_path: Path
) -> None:
    missing = ask("report", str(tmp_path / "none"))
    assert missing.exit_code == 3
    assert "cannot be read: No such file or directory" in missing.stderr
    refused = ask("report", kept(passing), "-f", str(tmp_path / "no" / "folder"))
    assert refused.exit_code == 3
    assert "cannot be written" in refused.stderr


def test_a_run_that_was_slower_is_found_and_named(ask: Ask, kept: Kept, huge: Document) -> None:
    before = kept(huge)
    same = ask("compare", before, before)
    assert same.exit_code == 0
    assert "64 figures in both: 0 worse, 0 otherwise changed" in same.stdout
    now = kept(huge, results=slower(huge, "cuda:4", 0.8))
    found = ask("compare", before, now)
    assert found.exit_code == 1
    assert {line.split()[0] for line in found.stdout.splitlines() if line.endswith("worse")} == {"cuda:4"}
    better = ask("compare", now, before)
    assert better.exit_code == 0
    assert "0 worse, 6 otherwise changed" in better.stdout
    rows = json.loads(ask("compare", before, now, "-o", "json").stdout)["figures"]
    assert {row["device"] for row in rows if row["worse"]} == {"cuda:4"}


def test_a_node_that_fails_now_or_lost_a_device_is_worse(ask: Ask, kept: Kept, huge: Document) -> None:
    before = kept(huge)
    first = next(result for result in huge.results if result.device == "cuda:3")
    bad = msgspec.structs.replace(first, outcome=Outcome.FAIL, reason="bit 3")
    results = tuple(bad if result is first else result for result in huge.results)
    failed = ask("compare", before, kept(huge, results=results, verdict=Verdict.FAIL, injected=("x:y",)))
    assert failed.exit_code == 1
    assert f"worse: {first.test} on cuda:3 was pass, is fail: bit 3" in failed.stdout
    assert "fail at " in failed.stdout
    assert "injected: x:y" in failed.stdout
    rest = tuple(result for result in huge.results if result.device != "cuda:3")
    lost = ask(
        "compare", before, kept(huge, results=rest, devices=tuple(d for d in huge.devices if d.name != "cuda:3"))
    )
    assert lost.exit_code == 1
    assert "worse: cuda:3 was there, is gone" in lost.stdout


def test_documents_without_anything_in_common_are_not_the_same(
    ask: Ask, kept: Kept, huge: Document, passing: Document
) -> None:
    done = ask("compare", kept(huge), kept(passing))
    assert done.exit_code == 3
    assert "nothing to compare" in done.stderr


def cards(document: Document, number: int) -> tuple[Device, ...]:
    """Another node's: a machine is known by its cards."""
    return tuple(msgspec.structs.replace(device, uuid=f"GPU-{number}-{device.index}") for device in document.devices)


def test_a_baseline_is_learned_shown_and_held_against_a_node(
    ask: Ask, kept: Kept, huge: Document, failing: Document, tmp_path: Path
) -> None:
    at = ("--baseline", str(tmp_path / "kept"))
    noise = random.Random(5)  # noqa: S311 - noise
    good = [
        kept(huge, node=f"node{n}", devices=cards(huge, n), results=slower(huge, "cuda:0", 1 - noise.random() / 100))
        for n in range(4)
    ]
    assert "no baseline yet" in ask("baseline", "show", *at).stdout
    assert ask("baseline", "check", good[0], *at).exit_code == 3
    learned = ask("baseline", "learn", *good, kept(failing), *at)
    assert learned.exit_code == 0
    assert "learned 4 documents of 4 nodes" in learned.stdout
    assert "was not learned: gpu-node-17: the verdict is fail" in learned.stderr
    shown = json.loads(ask("baseline", "show", "-o", "json", *at).stdout)
    assert {row["nodes"] for row in shown} == {4}
    assert ask("baseline", "show", *at).stdout.count("NVIDIA H200") == len(shown)
    assert ask("baseline", "check", good[1], *at).exit_code == 0
    slow = ask("baseline", "check", kept(huge, results=slower(huge, "cuda:2", 0.7)), *at)
    assert slow.exit_code == 1
    assert "cuda:2" in slow.stdout
    failed = ask("baseline", "check", kept(huge, verdict=Verdict.FAIL, reason="bit 3"), *at)
    assert failed.exit_code == 1
    assert "worse: the run was to pass, is fail: bit 3" in failed.stdout


def test_a_baseline_that_taught_nothing_is_as_it_was(ask: Ask, kept: Kept, failing: Document, tmp_path: Path) -> None:
    done = ask("baseline", "learn", kept(failing), "--baseline", str(tmp_path / "kept"))
    assert done.exit_code == 3
    assert "nothing was learned" in done.stderr
    assert not (tmp_path / "kept").exists()


def test_a_broken_baseline_is_named(ask: Ask, kept: Kept, huge: Document, tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "baseline.json").write_text("{")
    for words in (("show",), ("check", kept(huge)), ("learn", kept(huge))):
        done = ask("baseline", *words, "--baseline", str(tmp_path / "kept"))
        assert done.exit_code == 3
        assert "baseline.json" in done.stderr


@pytest.mark.parametrize(
    ("form", "begins"), [("text", ""), ("json", "{"), ("junit", "<?xml"), ("html", "<!DOCTYPE html>")]
)
def test_a_run_ends_as_its_verdict_says_in_every_form(ask: Ask, tmp_path: Path, form: str, begins: str) -> None:
    target, at = tmp_path / "report", str(tmp_path / "known")
    done = ask(
        "run", "--only", "gpu_state", "--inject", "gpu_state:crash", "--baseline", at, "-o", form, "-f", str(target)
    )
    assert done.exit_code != 0
    assert not done.stdout
    assert "preflight: gpu_state" in done.stderr
    written = target.read_text()
    assert written.startswith(begins)
    assert "gpu_state:crash" in written
    assert form != "json" or parse_document(written.encode()).verdict.exit_code == done.exit_code


def test_a_run_whose_report_cannot_be_written_is_not_known_to_be_good(ask: Ask, tmp_path: Path) -> None:
    done = ask("run", "--only", "gpu_state", "--baseline", str(tmp_path), "-f", str(tmp_path / "no" / "folder"))
    assert done.exit_code == 3
    assert "cannot be written" in done.stderr


def test_wrong_usage_of_a_run_ends_with_two_and_runs_nothing(ask: Ask, tmp_path: Path) -> None:
    for words in (("--level", "bogus"), ("--only", "bogus"), ("--inject", "gpu_state:bogus"), ("-o", "bogus")):
        assert ask("run", *words, "-f", str(tmp_path / "report")).exit_code == 2
    assert not (tmp_path / "report").exists()


def test_a_link_stays_and_what_it_leads_to_is_written(ask: Ask, kept: Kept, passing: Document, tmp_path: Path) -> None:
    target, link = tmp_path / "real" / "node.html", tmp_path / "latest.html"
    target.parent.mkdir()
    target.write_text("old")
    link.symlink_to(target)
    assert ask("report", kept(passing), "-o", "html", "-f", str(link)).exit_code == 0
    assert link.is_symlink()
    assert target.read_text().startswith("<!DOCTYPE html>")


def test_standard_output_by_its_name_is_written_to(kept: Kept, passing: Document, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "preflight", "report", kept(passing), "-o", "json", "-f", "/dev/stdout"]
    with (tmp_path / "out.json").open("wb") as out:
        subprocess.run(command, stdout=out, check=True)
    assert json.loads((tmp_path / "out.json").read_text())["verdict"] == "pass"
    assert Path("/dev/stdout").is_symlink()


def test_one_file_that_is_none_stops_no_learning(ask: Ask, kept: Kept, huge: Document, tmp_path: Path) -> None:
    broken = tmp_path / "broken.json"
    broken.write_text('{"version": 2, ')
    done = ask("baseline", "learn", kept(huge), str(broken), "--baseline", str(tmp_path / "kept"))
    assert done.exit_code == 0
    assert "learned 1 document of 1 node" in done.stdout
    assert f"not learned: {broken}" in done.stderr


def test_a_group_is_shown_again_as_text(ask: Ask, kept: Kept, passing: Document, tmp_path: Path) -> None:
    named = Named(kind="node", where=("n2\x1b[2J",), score=0.0, evidence=("wrong data",))
    file = tmp_path / "group.json"
    file.write_bytes(msgspec.json.encode(group_document(culprits=(named,))))
    done = ask("report", str(file))
    assert done.exit_code == 0
    assert "group of 0: FAIL" in done.stdout
    assert "\x1b" not in done.stdout
    for words in (("-o", "html"), (kept(passing),)):
        refused = ask("report", str(file), *words)
        assert refused.exit_code == 3
        assert "only be shown as text" in refused.stderr


def group_document(culprits: tuple[Named, ...]) -> GroupDocument:
    return GroupDocument(
        version=1,
        level="group",
        verdict=Verdict.FAIL,
        reason="n2",
        reasons=("n2",),
        remarks=(),
        injected=(),
        coordinator="n0",
        launcher="slurm",
        backend="gloo",
        unit="GB/s",
        compared=True,
        started_at=0.0,
        seconds=1.0,
        rounds=3,
        culprits=culprits,
        suspects=(),
        cleared=(),
        unknown=(),
        exclude=(),
        nodes=(),
        pairs=(),
    )
