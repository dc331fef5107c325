"""The command on files of every kind, as a person has them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from xml.dom import minidom

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner, Result
from pyarrow import csv, parquet

from bench.traces import Columns, Fault, Job, build_columns
from healthctl.main import cli

SICK = build_columns(Job(steps=40, dp=8, faults=(Fault(3, 0.2, 20),)), 1, "sick")
WELL = build_columns(Job(steps=40, dp=8), 2, "well")


def table(*jobs: Columns) -> pa.Table:
    return pa.table({name: pa.array(np.concatenate([job[name] for job in jobs]).tolist()) for name in jobs[0]})


def write(path: Path, rows: pa.Table) -> Path:
    if path.suffix == ".csv":
        csv.write_csv(rows, path)
    elif path.suffix == ".parquet":
        parquet.write_table(rows, path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows.to_pylist()))
    return path


def ask(path: Path, *more: str) -> Result:
    return CliRunner().invoke(cli, ["analyze", "stragglers", str(path), *more])


def answer(path: Path, *more: str) -> dict[str, Any]:
    done = ask(path, "-o", "json", *more)
    assert done.exit_code in (0, 1), done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_every_kind_of_file_gets_the_same_answer(tmp_path: Path, kind: str) -> None:
    found = answer(write(tmp_path / f"steps.{kind}", table(SICK, WELL)))
    sick, well = found["jobs"]
    assert set(sick) == {"job", "verdict", "culprits", "first_step", "confidence", "reasons"}
    assert (sick["job"], sick["verdict"], sick["first_step"]) == ("sick", "gpu", 20)
    assert [culprit["rank"] for culprit in sick["culprits"]] == [3]
    assert sick["culprits"][0]["node"] == "n0"
    assert sick["culprits"][0]["slowdown"] == pytest.approx(0.2, abs=0.03)
    assert (well["job"], well["verdict"], well["culprits"], well["first_step"]) == ("well", "nobody", [], None)
    assert all(isinstance(reason["value"], float) for job in (sick, well) for reason in job["reasons"])


def test_somebody_named_ends_with_one_and_nobody_with_zero(tmp_path: Path) -> None:
    assert ask(write(tmp_path / "a.csv", table(SICK))).exit_code == 1
    assert ask(write(tmp_path / "b.csv", table(WELL))).exit_code == 0


def test_the_four_columns_are_enough(tmp_path: Path) -> None:
    rows = table(SICK).select(["job", "step", "rank", "compute_s"])
    assert answer(write(tmp_path / "a.csv", rows))["jobs"][0]["culprits"][0]["rank"] == 3


def test_until_looks_no_further(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", table(SICK))
    assert answer(path, "--until", "25")["jobs"][0]["culprits"] == []


def test_people_get_a_page(tmp_path: Path) -> None:
    shown = ask(write(tmp_path / "a.csv", table(SICK, WELL))).stdout
    assert "rank 3 on n0 +" in shown
    assert "smallest slowdown visible" in shown


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("job,step,rank\na,1,2\n", "compute_s"),
        ("job,step,compute_s\na,1,2\n", "no column rank"),
        ("job,step,rank,compute_s\na,1,2,0.5\na,2,2,fast\n", "3: column 'compute_s': 'fast' is not a number"),
        ("job,step,rank,compute_s\na,1,2\n", ":2: 3 cells"),
    ],
)
def test_bad_input_is_named_by_its_place(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text(text)
    done = ask(path, "-o", "json")
    assert done.exit_code == 2
    assert said in done.stderr


def test_blank_and_odd_cells_are_holes(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", table(SICK))
    lines = path.read_text().splitlines()
    head = lines[0].replace('"', "").split(",")
    at = head.index("compute_s")
    for number, value in ((9, ""), (17, "nan"), (25, "-1"), (33, "0"), (41, "inf")):
        cells = lines[number].split(",")
        cells[at] = value
        lines[number] = ",".join(cells)
    path.write_text("\n".join(lines) + "\n")
    assert [culprit["rank"] for culprit in answer(path)["jobs"][0]["culprits"]] == [3]


@pytest.mark.parametrize(("rows", "words"), [("", "no data"), ("j,1,0,0.1\nj,1,1,0.1\n", "not analyzed: steps 1")])
def test_where_nothing_can_be_judged_that_is_no_good_news(tmp_path: Path, rows: str, words: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text(f"job,step,rank,compute_s\n{rows}")
    done = ask(path)
    assert (done.exit_code, words in done.stdout) == (3, True), done.output
    assert "nobody" not in done.stdout


@pytest.mark.parametrize("suffix", ["svg", "html"])
def test_the_picture_frames_the_culprit_and_runs_nothing(tmp_path: Path, suffix: str) -> None:
    hostile = {**SICK, "node": np.where(SICK["rank"] == 3, "<script>alert(1)</script>", "n1")}
    plot = tmp_path / f"a.{suffix}"
    ask(write(tmp_path / "a.csv", table(hostile, WELL)), "--plot", str(plot))
    drawn = plot.read_text()
    assert "<script" not in drawn
    assert drawn.count('stroke-width="2"') == 1
    assert ">3</text>" in drawn, "each square says its rank where there is room"
    assert "rank 3 on &lt;script&gt;" in drawn
    minidom.parseString(drawn[drawn.index("<svg") : drawn.index("</svg>") + 6])  # noqa: S318 - our own picture


def test_rows_too_long_for_numbers_say_from_which_rank_to_which(tmp_path: Path) -> None:
    plot = tmp_path / "a.svg"
    ask(write(tmp_path / "a.csv", table(build_columns(Job(dp=300, steps=15), 0))), "--plot", str(plot))
    drawn = plot.read_text()
    assert re.findall(r">(\d+–\d+)</text>", drawn) == ["0–201", "202–299"]
    assert ">7</text>" not in drawn


def test_a_png_is_refused_before_any_work(tmp_path: Path) -> None:
    done = ask(write(tmp_path / "a.csv", table(SICK)), "--plot", str(tmp_path / "a.png"))
    assert done.exit_code == 2
    assert "FILE.svg" in done.stderr
