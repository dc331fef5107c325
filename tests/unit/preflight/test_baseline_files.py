"""The files: what is read, what is written, and what happens when a file is no good."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import msgspec
import pytest

from preflight import baseline_files
from preflight.baseline_files import (
    BASELINE,
    HISTORY,
    LOCK,
    PRODUCTS,
    BaselineError,
    append_history,
    load_knowledge,
    read_baseline,
    read_history,
    update_baseline,
    write_baseline_file,
)
from preflight.expectations.baseline_learning import learn_baseline
from preflight.expectations.fleet_baseline import Baseline
from preflight.expectations.product_table import find_product
from preflight.results import Verdict
from tests.unit.preflight.expect.runs import document, rate

SITE = """
version: 1
products:
  - product: H200 of ours
    names: [NVIDIA H200]
    memory: 4800
    power: 600
    source: measured here
    rows:
      - {test: matmul_repeat, figure: product_rate, setting: "bf16 *", unit: TFLOP/s, usual: 600, worst: 550, source: measured here}
"""


def test_an_empty_folder_is_no_fault(tmp_path: Path) -> None:
    known = load_knowledge(tmp_path / "none", "n1", {})
    assert known.remarks == ()
    assert known.table.products
    assert not (tmp_path / "none").exists()


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    learned = learn_baseline(document(f"n{i}", [790.0, 791.5]) for i in range(4))
    write_baseline_file(tmp_path / "deep" / BASELINE, learned)
    assert read_baseline(tmp_path / "deep" / BASELINE) == learned
    assert [path.name for path in (tmp_path / "deep").iterdir()] == [BASELINE]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "not a baseline"),
        ("[]", "not a baseline"),
        ('{"version": 2, "entries": []}', "version 2"),
        ('{"version": 1, "entries": [{"product": 1}]}', "not a baseline"),
        ('{"version": 1, "entries": [{}]}', "not a baseline"),
        ("\udcff", "not a baseline"),
        ('{"version": 1, "x": ' + "[" * 100_000, "not a baseline"),
    ],
)
def test_a_bad_file_is_told_of_and_the_run_goes_on(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / BASELINE
    path.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(BaselineError, match=says):
        read_baseline(path)
    known = load_knowledge(tmp_path, "n1", {})
    assert str(path) in known.remarks[0]
    assert "continues without the fleet" in known.remarks[0]
    assert path.exists()


def test_files_that_cannot_be_reached_are_told_of(tmp_path: Path) -> None:
    """Root may enter everywhere, so a name that no file can have stands for the folder that others may not enter."""
    remarks = load_knowledge(tmp_path / ("x" * 300), "n1", {}).remarks
    assert ["cannot be read: File name too long" in remark for remark in remarks] == [True] * 3


@pytest.mark.parametrize("name", [BASELINE, HISTORY, PRODUCTS])
def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / name)
    assert f"{name}: not a plain file; move it away" in load_knowledge(tmp_path, "n1", {}).remarks[0]


def test_a_folder_in_the_place_of_a_file_is_told_of(tmp_path: Path) -> None:
    (tmp_path / HISTORY).mkdir()
    assert "Is a directory" in load_knowledge(tmp_path, "n1", {}).remarks[0]


def test_a_sites_products_come_first(tmp_path: Path) -> None:
    (tmp_path / PRODUCTS).write_text(SITE)
    table = load_knowledge(tmp_path, "n1", {}).table
    mine = find_product(table, "NVIDIA H200")
    assert mine
    assert mine.product == "H200 of ours"
    other = find_product(table, "NVIDIA B200")
    assert other
    assert other.product == "B200"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (":", "not a product table"),
        ("version: 1\nproducts: [{}]", "product"),
        (SITE.replace("worst: 550", "worst: 650"), "worst 650 is better than usual 600"),
        (SITE.replace("usual", "usally"), "usally"),
        (SITE.replace("version: 1", "version: 9"), "version 9 is not known to this program, which reads version 1"),
        (SITE.replace("version: 1", "version: " + "9" * 5000), "version 99999999999999999999 is not known"),
        (SITE.replace("4800", "2026-02-30"), "Expected `float`"),
        (SITE.replace("4800", "9" * 5000), "not a product table"),
        (SITE.replace("usual: 600", "usual: .inf"), "Expected `float`"),
        (SITE.replace("usual: 600", "usual: inf"), "usual and worst must be numbers above zero"),
        ("version: 1\nproducts: " + "[" * 3000 + "]" * 3000, "not a product table"),
        (SITE + " " * (1 << 20), "larger than 1 MiB"),
    ],
)
def test_a_bad_table_leaves_the_shipped_one(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / PRODUCTS).write_text(text)
    known = load_knowledge(tmp_path, "n1", {})
    assert says in known.remarks[0]
    assert find_product(known.table, "NVIDIA H200")


def test_history_grows_run_by_run(tmp_path: Path) -> None:
    for run in range(3):
        append_history(tmp_path, document("n1", [790.0], float(run + 1)))
    (past,) = read_history(tmp_path / HISTORY).pasts
    assert past.first == (790.0, 790.0, 790.0)


@pytest.mark.parametrize("spoilt", [{"verdict": Verdict.FAIL}, {"injected": ("matmul_repeat:nan",)}])
def test_only_a_clean_pass_is_remembered(tmp_path: Path, spoilt: dict[str, Any]) -> None:
    append_history(tmp_path, document("n1", [790.0], **spoilt))
    assert not (tmp_path / HISTORY).exists()


def test_a_bad_history_is_not_written_over(tmp_path: Path) -> None:
    (tmp_path / HISTORY).write_text("{")
    with pytest.raises(BaselineError, match="move it away"):
        append_history(tmp_path, document("n1", [790.0]))
    assert (tmp_path / HISTORY).read_text() == "{"


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    write_baseline_file(tmp_path / BASELINE, learn_baseline([document("n1", [1.0])]))
    before = (tmp_path / BASELINE).read_bytes()
    (tmp_path / "file").write_text("")
    with pytest.raises(BaselineError, match="cannot be written"):
        write_baseline_file(tmp_path / "file" / BASELINE, learn_baseline([]))
    assert (tmp_path / BASELINE).read_bytes() == before


def test_the_usual_folder_is_made_only_where_healthd_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = tmp_path / "gpu-healthd" / "preflight"
    monkeypatch.setattr(baseline_files, "FOLDER", usual)
    append_history(usual, document("n1", [790.0]))
    assert not usual.parent.exists()
    usual.parent.mkdir()
    append_history(usual, document("n1", [790.0]))
    assert (usual / HISTORY).exists()


def test_the_environment_names_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(baseline_files.VARIABLE, str(tmp_path))
    assert baseline_files.resolve_baseline_folder() == tmp_path
    assert baseline_files.resolve_baseline_folder("elsewhere") == Path("elsewhere")
    monkeypatch.delenv(baseline_files.VARIABLE)
    assert baseline_files.resolve_baseline_folder() == baseline_files.FOLDER


def test_a_file_is_readable_by_others(tmp_path: Path) -> None:
    write_baseline_file(tmp_path / BASELINE, learn_baseline([document("n1", [1.0])]))
    assert os.stat(tmp_path / BASELINE).st_mode & 0o777 == 0o644  # noqa: PTH116 - the mode is what is asked for
    assert msgspec.json.decode((tmp_path / BASELINE).read_bytes())["version"] == 1


def _remembers(at: Path, run: int) -> None:
    append_history(at, document("n1", [790.0], float(run), figure=rate(1.0, setting=f"type {run}")))


def _teaches(at: Path, node: int) -> None:
    update_baseline(at, lambda old: learn_baseline([document(f"n{node}", [790.0])], old))


@pytest.mark.parametrize("change", [_remembers, _teaches])
def test_who_changes_a_file_at_once_loses_nothing(tmp_path: Path, change: Callable[[Path, int], None]) -> None:
    with ProcessPoolExecutor(4, get_context("spawn")) as pool:
        list(pool.map(change, [tmp_path] * 24, range(1, 25)))
    known = read_baseline(tmp_path / BASELINE).entries
    assert sum(len(entry.nodes) for entry in known) + len(read_history(tmp_path / HISTORY).pasts) == 24


def test_a_folder_that_another_holds_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(baseline_files, "LOCK_WAIT_S", 0.0)
    with (tmp_path / LOCK).open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(BaselineError, match="held by another program"):
            append_history(tmp_path, document("n1", [790.0]))
    append_history(tmp_path, document("n1", [790.0]))
    assert (tmp_path / HISTORY).exists()


def test_what_changes_nothing_writes_nothing(tmp_path: Path) -> None:
    assert update_baseline(tmp_path, lambda old: old) == (Baseline(), Baseline())
    assert not (tmp_path / BASELINE).exists()
