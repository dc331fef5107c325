"""The small pure parts of the demo: kill points, the screen, the telling, the pretend GPUs, Slurm's configuration."""

from __future__ import annotations

import io
import shlex
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from healthctl.demo.cluster_observer import (
    LaunchEvent,
    find_start_without_node,
    format_event,
    parse_launch_event,
    read_new_lines,
)
from healthctl.demo.demo_cluster import choose_node_names
from healthctl.demo.demo_command import DemoOutcome, StepsLost, format_conclusion, format_web_access
from healthctl.demo.scenario import POINTS, KillPoint, parse_kill
from healthctl.demo.simulated_gpus import SimulatedGpus, reset_simulated_gpu
from healthctl.demo.slurm_cluster import ClusterShape, render_slurm_conf
from healthctl.demo.timeline import Timeline, TrainingProgress, progress_line
from remediator.model.views import EventView
from vocabulary.identity import require_node_name


def test_a_kill_names_what_and_when() -> None:
    assert parse_kill("remediator@requeued") == KillPoint("remediator", "requeued", 2)
    assert parse_kill("healthd@abort-fault") == KillPoint("healthd", "abort-fault", 1)
    assert parse_kill("rank@training") == KillPoint("rank", "training", 2)
    assert parse_kill("rank:1@graceful-ordered") == KillPoint("rank", "graceful-ordered", 0)


@pytest.mark.parametrize("text", ["", "rank", "@", "rank@", "rank@noon", "slurm@training", "rank:9@training"])
def test_a_kill_that_makes_no_sense_lists_what_would(text: str) -> None:
    with pytest.raises(ValueError, match=next(iter(POINTS))):
        parse_kill(text)


@given(st.integers(-5, 500), st.integers(1, 400), st.integers(0, 200))
def test_the_progress_line_fits(step: int, steps: int, width: int) -> None:
    assert len(progress_line(TrainingProgress(step, steps, ("n1", "n2")), 1.5, width)) <= width


def test_a_finished_bar_is_full_and_an_unbegun_one_empty() -> None:
    assert "█" * 24 in progress_line(TrainingProgress(159, 160), 0.0, 120)
    assert "█" not in progress_line(TrainingProgress(-1, 160), 0.0, 120)


def test_the_screen_marks_what_was_injected_and_passes_no_control_characters() -> None:
    screen = io.StringIO()
    timeline = Timeline(screen)
    timeline.add("fault", "fault", "XID 79\x1b[2J", node="n1", at=timeline.began + 1.25, injected=True)
    timeline.progress(TrainingProgress(1, 2))  # no terminal: no redrawing
    assert screen.getvalue() == "   1.25 s * fault       n1        XID 79\\x1b[2J\n"
    assert timeline.entries[0].at_s == 1.25


def event(kind: str, text: str, **data: str | float) -> EventView:
    return EventView(seq=1, at=1.0, kind=kind, actor="remediator", text=text, node="n1", data=dict(data))


@pytest.mark.parametrize(
    ("told", "line"),
    [
        (event("node_joined", "n1 reported for the first time"), None),
        (event("token_issued", "a token of node n1 was issued"), None),
        (event("policy", "policy 0a1b (default.yaml) is in force"), None),
        (event("node_state", "n1: healthy → suspect (i1: r)"), None),
        (event("node_state", "n1: suspect → draining (i1: r)"), "node: suspect → draining"),
        (
            event("decision", "i1.d1 act: gpu-lost: xid/79 on GPU 3 of n1: why"),
            "decision: act: gpu-lost: xid/79 on GPU 3: why",
        ),
        (event("action_ended", "cordon of n1 done: by Slurm", verb="cordon"), "cordon done: by Slurm"),
        (EventView(1, 1.0, "token", "ann", "a token of operator ann was issued"), "a token of operator ann was issued"),
        (
            event("order_progress", "abort of n1 running: in the mailboxes", verb="abort", mailbox_at=1.0),
            "order 'abort' is in the ranks' mailboxes",
        ),
        (
            event("order_progress", "x", verb="checkpoint_then_eject", mailbox_at=1.0, agreed_step=47),
            "order 'save and leave': all ranks agree on step 47",
        ),
        (
            event("action_ended", "x of n1 succeeded: 1", verb="checkpoint_then_eject", saved_at=2.0, agreed_step=47),
            "order 'save and leave': the checkpoint is complete",
        ),
        (event("action_ended", "abort of n1 succeeded: 1 rank left", verb="abort"), None),
        (
            event("action_ended", "abort of n1 failed: rank 0 stayed", verb="abort", saved_at=2.0),
            "order 'abort' to n1 failed: rank 0 stayed",
        ),
    ],
)
def test_the_audit_log_is_told_in_few_words(told: EventView, line: str | None) -> None:
    assert format_event(told) == line


def test_a_reset_takes_the_pending_remap_of_one_gpu_into_effect(tmp_path: Path) -> None:
    gpus = SimulatedGpus(tmp_path / "node" / "nvml", "n2", 2)
    gpus.all_well()
    well = gpus.scenario.read_text()
    gpus.remap_pending(3)
    gpus.remap_pending(1)
    reset_simulated_gpu(gpus.scenario, "GPU-n2-0003")
    assert "pending.1 1" in gpus.scenario.read_text()
    assert "pending.3" not in gpus.scenario.read_text()
    gpus.hang(1)
    reset_simulated_gpu(gpus.scenario, "all")
    assert gpus.scenario.read_text() == well + "hang 1\n"
    assert gpus.pci(3) == "0002:13:00.0"


def test_names_are_new_each_time_and_valid() -> None:
    names = {name for _ in range(20) for name in choose_node_names()}
    assert len(names) > 90
    assert all(require_node_name(name) for name in names)


def test_slurm_conf_gives_every_node_a_port_and_shortens_the_credential(tmp_path: Path) -> None:
    text = render_slurm_conf(ClusterShape(nodes=("a1", "a2")), tmp_path, "host", [1, 2, 3])
    assert "NodeName=a1 NodeHostname=host NodeAddr=127.0.0.1 Port=2 " in text
    assert "NodeName=a2 NodeHostname=host NodeAddr=127.0.0.1 Port=3 " in text
    assert "cred_expire=5" in text
    with pytest.raises(ValueError, match="shorter"):
        render_slurm_conf(ClusterShape(nodes=("a1", "a2")), tmp_path, "host", [1, 2])


def test_the_launchers_journal_is_followed_by_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "launcher.jsonl"
    assert read_new_lines(path, 0) == []
    path.write_bytes(b'{"at": 1.0, "event": "gate", "text": "t"}\n{"at": 2.0, "ev')
    (line,) = read_new_lines(path, 0)
    assert parse_launch_event(line) == LaunchEvent(at=1.0, event="gate", text="t")
    assert read_new_lines(path, len(line)) == []
    assert parse_launch_event(b'{"at": 2.0}\n') is None
    assert parse_launch_event(b"\xff\n") is None


def events(*told: tuple[str, int, str]) -> list[LaunchEvent]:
    """``("start", 1, "a b")``, ``("end", 1, "condemned")``, ``("requeued", 0, "")``."""
    found = []
    for what, attempt, nodes in told:
        names = tuple(nodes.split())
        if what == "start":
            found.append(LaunchEvent(1.0, "attempt_started", "", attempt, nodes=names))
        elif what == "end":
            found.append(LaunchEvent(1.0, "attempt_ended", "", attempt, condemned=names))
        else:
            found.append(LaunchEvent(1.0, what, ""))
    return found


@pytest.mark.parametrize(
    ("told", "last"),
    [
        ([], None),
        ([("start", 1, "a b")], None),
        ([("start", 1, "a b"), ("end", 1, "")], None),
        ([("start", 1, "a b"), ("end", 1, "a")], 1),
        ([("start", 1, "a b"), ("end", 1, ""), ("start", 2, "b c")], 1),
        ([("start", 1, "a b"), ("end", 1, ""), ("start", 2, "a c")], None),
        ([("start", 1, "a b"), ("end", 1, ""), ("start", 2, "a c"), ("end", 2, ""), ("requeued", 0, "")], 2),
        ([("start", 1, "a b"), ("end", 1, "a"), ("start", 2, "b c"), ("end", 2, ""), ("start", 3, "a b")], 1),
        ([("start", 1, "b c"), ("end", 1, ""), ("start", 2, "b c")], None),
    ],
)
def test_a_node_has_left_when_the_job_goes_on_without_it(told: list[tuple[str, int, str]], last: int | None) -> None:
    assert find_start_without_node(events(*told), "a") == (None if last is None else (last, 0))


def test_a_node_has_left_when_a_spare_has_the_place_of_its_rank() -> None:
    def replaced(generation: int, before: str) -> LaunchEvent:
        return LaunchEvent(2.0, "rank_replaced", "", 1, generation=generation, before=before)

    told = [*events(("start", 1, "a b")), replaced(1, "b")]
    assert find_start_without_node(told, "a") is None
    assert find_start_without_node([*told, replaced(2, "a")], "a") == (1, 1)
    assert find_start_without_node([*told, replaced(2, "a")], "b") == (1, 0)


def test_the_last_words_name_the_price_of_the_abort_and_claim_no_more() -> None:
    def words(*, ok: bool) -> str:
        return format_conclusion(DemoOutcome(ok, [], [], {}, StepsLost(0, 10)))

    assert "steps trained twice: 0 on the graceful exit, 10 on the abort" in words(ok=True)
    assert "lost" not in words(ok=True)
    assert words(ok=False).startswith("FAILED")


def test_whoever_watches_the_demo_is_told_where_its_pages_are_and_what_to_type(tmp_path: Path) -> None:
    token = tmp_path / "a place" / "operator"
    page, command = format_web_access("http://127.0.0.1:4711", token).splitlines()
    assert "http://127.0.0.1:4711/ " in page
    assert page.endswith(str(token))
    typed = shlex.split(command.partition(": ")[2])
    assert typed[:2] == ["HEALTHCTL_SERVER=http://127.0.0.1:4711", f"HEALTHCTL_TOKEN_FILE={token}"]
    assert Path(typed[2]).exists()
    assert typed[3:] == ["status"]
