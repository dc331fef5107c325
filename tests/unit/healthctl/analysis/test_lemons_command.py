from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.dom import minidom

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from healthctl.analysis.event_table import read_table
from healthctl.analysis.fleet_record import KIND_OF, build_fleet_record
from healthctl.main import cli
from remediator.detection.lemons import Kind

Row = dict[str, Any]
Ask = Callable[..., Result]
T0 = 1767225600.0  # 2026-01-01T00:00:00Z
DAY = 86400.0
AS_OF = "2026-01-29"


def ask(path: Path, *more: str, as_of: str = AS_OF) -> Result:
    return CliRunner().invoke(cli, ["analyze", "lemons", str(path), "--as-of", as_of, *more])


def answer(path: Path, *more: str, as_of: str = AS_OF) -> dict[str, Any]:
    done = ask(path, "-o", "json", *more, as_of=as_of)
    assert done.exit_code in (0, 1), done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def by_node(found: dict[str, Any]) -> dict[str, float]:
    return {node["node"]: node["probability"] for node in found["nodes"]}


def save(path: Path, rows: list[Row]) -> Path:
    names = list(dict.fromkeys(name for row in rows for name in row))
    if path.suffix == ".csv":
        lines = [",".join(names), *(",".join(str(row.get(name, "")) for name in names) for row in rows)]
        path.write_text("\n".join(lines) + "\n")
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        parquet.write_table(pa.Table.from_pylist([{name: row.get(name) for name in names} for row in rows]), path)
    return path


def fleet(sick_days: tuple[float, ...] = (2, 6, 11, 15, 19, 23, 26)) -> list[Row]:
    """n000 fails on those days; 40 of some 200 others fail once each."""
    rows: list[Row] = [{"node": "n000", "time": T0 + day * DAY, "kind": "failure"} for day in sick_days]
    others = [(f"n{i:03d}", 0.5 + 27 * i / 41) for i in range(1, 41)]
    return rows + [{"node": name, "time": T0 + day * DAY, "kind": "failure"} for name, day in others]


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_the_lemon_stands_first_in_every_format(tmp_path: Path, suffix: str) -> None:
    path = save(tmp_path / f"events{suffix}", fleet())
    found = answer(path)
    assert found["nodes"][0]["node"] == "n000"
    assert found["nodes"][0]["probability"] > 0.9
    assert found["nodes"][0]["action"] in {"test", "repair"}
    assert found["nodes"][0]["evidence"]["incidents"] == 7
    assert found["nodes"][1]["probability"] < 0.2
    assert set(found["nodes"][0]) == {"node", "probability", "evidence", "action"}
    assert ask(path).exit_code == 1


def test_nobody_is_an_answer(tmp_path: Path) -> None:
    done = ask(save(tmp_path / "e.csv", fleet(())))
    assert done.exit_code == 0
    assert "no lemon" in done.stdout


@pytest.mark.parametrize("name", ["nothing.csv", "nothing.jsonl"])
def test_a_file_without_a_line_is_nothing_to_judge_and_no_good_news(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("")
    done = ask(tmp_path / name)
    assert (done.exit_code, "no data" in done.stdout) == (3, True)
    assert json.loads(ask(tmp_path / name, "-o", "json").stdout)["nodes"] == []


def test_names_and_kinds_may_be_spelt_in_many_ways(tmp_path: Path) -> None:
    plain = answer(save(tmp_path / "a.csv", fleet()))
    rows = fleet()
    spelt = [
        {"Host": name, "TimeStamp": row["time"], "Event-Type": kind}
        for i, row in enumerate(rows)
        for name in [row["node"].upper() if i % 2 else f" {row['node']} "]
        for kind in [("Failure", "NODE_FAILURE", "node failure", "failed")[i % 4]]
    ]
    varied = answer(save(tmp_path / "b.csv", spelt))
    assert list(by_node(varied).values()) == list(by_node(plain).values())


def test_rows_told_twice_change_nothing(tmp_path: Path) -> None:
    once = answer(save(tmp_path / "a.csv", fleet()))
    twice = answer(save(tmp_path / "b.csv", fleet() + fleet()))
    assert once == twice


def test_unknown_kinds_are_counted_shown_and_accuse_nobody(tmp_path: Path) -> None:
    rows = fleet(()) + [{"node": "odd", "time": T0 + day * DAY, "kind": "fan noise"} for day in range(25)]
    path = save(tmp_path / "e.csv", rows)
    found = answer(path)
    assert found["unknown_kinds"] == {"fan_noise": 25}
    assert by_node(found)["odd"] < 0.05
    assert "fan_noise (25)" in ask(path).stdout


def test_rows_without_a_node_or_a_time_are_passed_over_and_counted(tmp_path: Path) -> None:
    rows = [*fleet(), {"node": "", "time": T0, "kind": "failure"}, {"node": "n1", "time": "", "kind": "failure"}]
    found = answer(save(tmp_path / "e.csv", rows))
    assert found["skipped_rows"] == 2


def test_a_list_of_nodes_shares_the_blame(tmp_path: Path) -> None:
    crowd = [f"n{i:03d}" for i in range(100, 132)]
    rows: list[Row] = [
        {"node": crowd[0], "time": T0 + day * DAY, "kind": "failure", "job": f"j{day}", "nodes": crowd}
        for day in (3, 8, 13, 18, 23)
    ]
    for suffix in (".jsonl", ".parquet"):
        assert max(by_node(answer(save(tmp_path / f"e{suffix}", fleet(()) + rows))).values()) < 0.3
    text = [row | {"nodes": "n[100-131]"} for row in rows]
    found = answer(save(tmp_path / "e.jsonl", fleet(()) + text))
    assert crowd[-1] in by_node(found)
    assert max(by_node(found).values()) < 0.3


def test_test_faults_accuse_nobody(tmp_path: Path) -> None:
    rows = [row | {"injected": row["node"] == "n000"} for row in fleet()]
    assert "n000" not in by_node(answer(save(tmp_path / "e.jsonl", rows)))


def test_more_is_known_of_a_fleet_whose_size_is_told(tmp_path: Path) -> None:
    path = save(tmp_path / "e.csv", fleet())
    assert answer(path, "--nodes", "200")["fleet"]["nodes"] == 200
    assert 60 < answer(path)["fleet"]["nodes"] < 4000


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("node,kind\na,failure\n", "no column time"),
        ("node,time\na,1\n", "no column kind"),
        ("time,kind\n1,failure\n", "no column node"),
        ("node,time,kind\na,soon,failure\n", "e.csv:2: column 'time': 'soon' is not a time"),
        ("node,time,kind,duration\na,1,failure,long\n", "e.csv:2: column 'duration': 'long' is not a duration"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "e.csv"
    path.write_text(text)
    done = ask(path)
    assert done.exit_code == 2
    assert says in done.stderr


def test_a_moment_that_is_none_is_wrong_usage(tmp_path: Path) -> None:
    done = ask(save(tmp_path / "e.csv", fleet()), as_of="tomorrow")
    assert done.exit_code == 2
    assert "--as-of" in done.stderr


@pytest.mark.parametrize("suffix", [".svg", ".html"])
def test_a_plot_shows_the_suspects_and_lets_no_name_do_harm(tmp_path: Path, suffix: str) -> None:
    rows = [row | {"node": row["node"].replace("n000", "<script>x")} for row in fleet()]
    rows.append({"node": "<script>x", "time": T0 + 3 * DAY, "kind": "removed", "end": T0 + 4 * DAY})
    plot = tmp_path / f"plot{suffix}"
    ask(save(tmp_path / "e.jsonl", rows), "--plot", str(plot))
    drawn = plot.read_text()
    assert "&lt;script&gt;x" in drawn
    assert "<script" not in drawn
    assert drawn.count("translate(") > 30
    if suffix == ".svg":
        assert minidom.parseString(drawn).documentElement.tagName == "svg"  # noqa: S318 - our own text


def test_a_plot_of_another_kind_is_refused_before_any_work(tmp_path: Path) -> None:
    assert ask(save(tmp_path / "e.csv", fleet()), "--plot", "x.gif").exit_code == 2


def test_every_kind_has_words() -> None:
    assert set(KIND_OF.values()) == set(Kind) - {Kind.OTHER}


def test_intervals_by_end_and_by_duration_are_the_same(tmp_path: Path) -> None:
    ends = [{"node": "a", "time": T0, "kind": "removed", "end": T0 + 7200}]
    lasts = [{"node": "a", "time": T0, "kind": "removed", "duration": 7200}]
    words = [{"node": "a", "start": "2026-01-01T00:00:00Z", "kind": "removed", "duration": "2h"}]
    found = [
        build_fleet_record(read_table(save(tmp_path / f"{i}.csv", rows)), 1e12).history
        for i, rows in enumerate((ends, lasts, words))
    ]
    assert [(h.time[0], h.end[0]) for h in found] == [(T0, T0 + 7200)] * 3


@settings(deadline=None, max_examples=12)
@given(st.integers(0, 1000), st.integers(2, 26))
def test_nothing_after_the_moment_changes_the_answer(
    tmp_path_factory: pytest.TempPathFactory, seed: int, day: int
) -> None:
    rng = np.random.default_rng(seed)
    as_of = T0 + day * DAY
    kinds = ["failure", "removed", "repaired", "ticket", "xid", "job", "test_failed", "job_excluded", "cordoned"]
    rows: list[Row] = []
    for row in fleet():
        start = float(row["time"])
        end = start + float(rng.exponential(3 * DAY))
        extra = {"node": f"n{rng.integers(0, 30):03d}", "time": start, "kind": str(rng.choice(kinds)), "end": end}
        rows += [row, extra | {"job": f"j{rng.integers(0, 5)}", "code": int(rng.integers(13, 120))}]
    folder = tmp_path_factory.mktemp("t")
    before = answer(save(folder / "a.jsonl", rows), as_of=str(as_of))
    changed: list[Row] = []
    for row in rows:
        if float(row["time"]) > as_of:
            changed.append(row | {"node": "late", "kind": "failure", "job": "other", "code": 79})
        elif float(row.get("end", 0)) > as_of:
            changed.append(row | {"end": None if rng.random() < 0.5 else as_of + 1 + float(rng.random()) * DAY})
        else:
            changed.append(row)
    changed.append({"node": "later", "time": as_of + 60, "kind": "failure"})
    assert answer(save(folder / "b.jsonl", changed), as_of=str(as_of)) == before
