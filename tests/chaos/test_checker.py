"""The checker on histories made by hand: it says nothing of a good one, and names what is wrong with each bad one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.chaos.checker.history import History, Line, traceback_in
from tests.chaos.checker.invariants import INVARIANTS
from tests.chaos.good_history import BEGAN, PCI, action, good_history, line, seal, step

Spoil = Callable[[History], object]
OURS = "gpu-healthd: inc-2 gpu-lost"


def said(history: History, subject: str, **what: object) -> None:
    history.journal.setdefault(subject, []).append(line(10, **what))


def first(history: History, table: str) -> dict[str, object]:
    body: dict[str, object] = history.store[table][0]["body"]
    return body


def on_postgresql(history: History, since: float, until: float) -> None:
    """With two centres, and its server away for a while."""
    history.plan["world"].update(database="postgresql")
    what = {"disaster": "database_crash", "target": "database", "at_s": since}
    history.journal["disasters"] = [line(since, event="struck", **what), line(until, event="undone", **what)]


def damaged(history: History, since: float, until: float) -> None:
    """Its SQLite, until a copy is in place."""
    what = {"disaster": "corrupt_database", "target": "centre-0", "at_s": since}
    history.journal["disasters"] = [line(since, event="struck", **what), line(until, event="undone", **what)]


def ends(history: History, after_s: float, code: int, subject: str = "processes") -> None:
    """A centre ends by itself."""
    told = history.journal.setdefault(subject, [])
    told.append(line(after_s, daemon="centre-0", event="ended", code=code, ours=False))


def event(history: History, kind: str) -> Line:
    """The launcher's first one of a kind."""
    return next(line for line in history.journal["launcher"] if line["event"] == kind)


def gives_up(history: History, text: str) -> None:
    """The launcher replaces nobody, and says why."""
    event(history, "rank_replaced").update(event="swap_impossible", text=text)
    history.journal["launcher"].remove(event(history, "swapped"))


BAD: list[tuple[str, str, Spoil]] = [
    ("1 findings kept", "1 lines, the store has 0", lambda h: h.store["findings"].pop(0)),
    ("1 findings kept", "2 lines, the store has 1", lambda h: h.journal["kernel"].append(h.journal["kernel"][0])),
    ("1 findings kept", "the kernel said 1", lambda h: first(h, "findings").update(count=2)),
    ("1 findings kept", "the kernel said 0", lambda h: h.journal["kernel"][0].update(author="trainer")),
    ("2 deeds once", "no decision", lambda h: h.store["decisions"].clear()),
    ("2 deeds once", "names no policy", lambda h: first(h, "decisions").update(policy="")),
    ("2 deeds once", "names no findings", lambda h: first(h, "decisions").update(findings=[])),
    ("2 deeds once", "names no guards", lambda h: first(h, "decisions").update(guards=[])),
    ("2 deeds once", "begun 2 times", lambda h: h.journal["deeds"].insert(1, h.journal["deeds"][0])),
    ("2 deeds once", "held by us 1 times, for 0", lambda h: h.store["actions"].pop(0)),
    ("2 deeds once", "taken 2 times", lambda h: h.journal["received"].append(h.journal["received"][0])),
    (
        "2 deeds once",
        "under different keys",
        lambda h: h.journal["received"].append({**h.journal["received"][0], "key": "k2"}),
    ),
    (
        "3 budget kept",
        "were out at once",
        lambda h: h.journal["scheduler"].insert(1, line(7, node="n2", held=True, reason=OURS)),
    ),
    ("3 budget kept", "within the hour", lambda h: h.plan["world"].update(per_hour=0)),
    (
        "3 budget kept",
        "between two isolations",
        lambda h: (
            h.store["decisions"].append({**h.store["decisions"][0], "id": "inc-2.d1", "at": BEGAN + 6.1}),
            h.store["actions"].append(action("cordon", "n2", "inc-2.d1")),
        ),
    ),
    ("4 application blamed", "alone", lambda h: first(h, "findings").update(code="13")),
    ("5 returned tested", "no preflight passed", lambda h: h.journal["deeds"][1].update(verdict="fail")),
    ("5 returned tested", "no preflight passed", lambda h: h.journal["deeds"][0].update(mono=5.0)),
    ("5 returned tested", "no preflight passed", lambda h: h.journal["deeds"][1].update(mono=9.5)),
    ("5 returned tested", "not on probation", lambda h: (h.store["audit"].pop(), seal(h))),
    ("6 slowness alone", "alone", lambda h: first(h, "findings").update(check="straggler", code="compute")),
    ("7 credentials held", "was answered 200", lambda h: h.journal["intrusions"][0].update(answered=200)),
    ("7 credentials held", "what an intruder said", lambda h: first(h, "findings").update(x="said-by-an-intruder")),
    ("8 training goes on", "neither ended", lambda h: h.end.update(job="stuck")),
    ("8 training goes on", "although n1, n2 are well", lambda h: h.end.update(job="waits for nodes")),
    ("8 training goes on", "nobody had ordered", lambda h: h.store["actions"].pop(1)),
    ("8 training goes on", "holds 1 of 2", lambda h: h.saves["step-000000024"].pop()),
    ("8 training goes on", "not exactly the steps", lambda h: h.saves["step-000000024"][1].update(chain="0")),
    ("losses kept", "undisturbed it is", lambda h: h.steps[3].update(loss=h.steps[1]["loss"])),
    ("losses kept", "nobody has trained step 1", lambda h: (h.steps.pop(2), h.steps.pop(2))),
    ("losses kept", "rank 1 went from step 0 to 2", lambda h: h.steps.pop(3)),
    ("losses kept", "its last one is 9", lambda h: h.journal["last_step"][0].update(step=9)),
    ("losses kept", "trains 1 again", lambda h: h.steps.extend(step(3.5, 2, rank, 1) for rank in (0, 1))),
    ("losses kept", "no rank has it", lambda h: event(h, "swapped").update(generation=2)),
    ("swaps go on", "nothing had befallen it", lambda h: event(h, "rank_lost").update(node="n2")),
    ("swaps go on", "order abort on n1 has expired", lambda h: h.store["actions"][1].update(state="expired")),
    ("swaps go on", "waited on n3", lambda h: gives_up(h, "0 spare processes are available for rank 0")),
    ("swaps go on", "although n2, n3 were well", lambda h: gives_up(h, "it cannot go on with fewer ranks: so")),
    ("9 unknown recorded", "is not in the store", lambda h: h.store["findings"].pop(1)),
    ("9 unknown recorded", "counts as fatal", lambda h: h.store["findings"][1]["body"].update(severity="fatal")),
    (
        "9 unknown recorded",
        "ended by itself",
        lambda h: (
            said(h, "kernel", node="n1", author="kernel", code=0, pci=PCI),
            said(h, "processes", daemon="healthd-n1", event="ended", code=1, ours=False),
        ),
    ),
    ("nothing stuck", "did not settle", lambda h: h.end.update(unsettled="n1 has not reported")),
    (
        "nothing stuck",
        "ended by itself",
        lambda h: said(h, "processes", daemon="centre-0", event="ended", code=1, ours=False),
    ),
    ("nothing stuck", "did not end well", lambda h: said(h, "ends", daemon="centre-0", code=None)),
    ("nothing stuck", "did not end well", lambda h: (on_postgresql(h, 30, 31), ends(h, 10, 1, "ends"))),
    ("nothing stuck", "did not end well", lambda h: ends(h, 10, -15, "ends")),
    ("nothing stuck", "ended by itself with 1", lambda h: (on_postgresql(h, 30, 31), ends(h, 10, 1))),
    ("nothing stuck", "ended by itself with 1", lambda h: (on_postgresql(h, 2, 3), ends(h, 60, 1))),
    ("nothing stuck", "ended by itself with -6", lambda h: (on_postgresql(h, 2, 3), ends(h, 4, -6))),
    ("nothing stuck", "ended by itself with 1", lambda h: (damaged(h, 2, 3), ends(h, 3.5, 1))),
    ("nothing stuck", "traceback: KeyError: 1", lambda h: h.tracebacks.update({"centre-0": "KeyError: 1"})),
    ("audit chain", "is missing", lambda h: h.store["audit"].pop(0)),
    ("audit chain", "not what was sealed", lambda h: h.store["audit"][1].update(epoch=2)),
    ("audit chain", "its head says", lambda h: h.store["audit"].pop()),
    (
        "hands respected",
        "nobody had said so",
        lambda h: h.journal["scheduler"].extend(
            [
                line(10, node="n2", held=True, reason="a fan is changed"),
                line(11, node="n2", held=False, reason=""),
            ]
        ),
    ),
]


@pytest.mark.parametrize("invariant", INVARIANTS)
def test_nothing_is_said_of_a_good_history(invariant: str) -> None:
    assert INVARIANTS[invariant](good_history()) == []


@pytest.mark.parametrize(("invariant", "words", "spoil"), BAD, ids=[f"{name}: {words}" for name, words, _ in BAD])
def test_what_is_wrong_is_named(invariant: str, words: str, spoil: Spoil) -> None:
    history = good_history()
    spoil(history)
    found = INVARIANTS[invariant](history)
    assert any(words in each for each in found), found


def test_every_invariant_is_spoilt_at_least_once() -> None:
    assert {name for name, _, _ in BAD} == set(INVARIANTS)


def test_an_operator_may_give_a_node_back_untested_and_lift_any_hold() -> None:
    history = good_history()
    history.journal["deeds"].clear()
    history.store["actions"] = [row for row in history.store["actions"] if row["verb"] != "run_preflight"]
    history.journal["commands"] = [line(8.5, who="ann", words=["nodes", "uncordon", "n1"], node="n1")]
    assert {name: judge(history) for name, judge in INVARIANTS.items() if judge(history)} == {}


@pytest.mark.parametrize("said_so", [True, False])
def test_an_operator_may_hold_a_node_that_has_just_come_back(*, said_so: bool) -> None:
    """Seed 58: a fault came up while it was given back, and before it was taken out again somebody held it."""
    history = good_history()
    history.store["audit"][1]["body"]["data"]["to"] = "operator-held"
    seal(history)
    words = ["nodes", "hold", "n1", "a fan is changed", "--for", "1h"]
    history.journal["commands"] = [line(9.5, who="ann", words=words, node="n1")] if said_so else []
    assert (INVARIANTS["5 returned tested"](history) == []) is said_so


@pytest.mark.parametrize("ended_s", [6.5, 5.8])
def test_a_command_counts_as_long_as_it_runs(ended_s: float) -> None:
    """Seed 63: on a busy machine it was begun before the node was taken out, and given to the controller after that."""
    history = good_history()
    history.journal["deeds"].clear()
    words = ["nodes", "uncordon", "n1"]
    history.journal["commands"] = [line(5.5, who="ann", words=words, node="n1", index=0)]
    history.journal["commands_ended"] = [line(ended_s, index=0)]
    assert (INVARIANTS["5 returned tested"](history) == []) is (ended_s > 6)


def test_two_ranks_may_be_replaced_for_one_that_was_reported_lost() -> None:
    """Seed 228: their node was condemned. When one more rank died, no spare was left."""
    history = good_history()
    also = event(history, "rank_replaced") | {"rank": 1}
    dead = line(6.6, event="rank_lost", attempt=1, generation=1, rank=1, node="n3", text="its process has died")
    gives_up = line(6.6, event="swap_impossible", attempt=1, text="0 spare processes are available for rank 1")
    history.journal["launcher"][3:3] = [also]
    history.journal["launcher"][-1:-1] = [dead, gives_up]
    history.journal["signals"] = [line(6.5, daemon="rank-1", node="n3")]
    assert INVARIANTS["swaps go on"](history) == []


def test_a_centre_whose_database_was_away_may_end_and_one_just_started_may_end_by_the_signal() -> None:
    history = good_history()
    on_postgresql(history, 2, 3)
    ends(history, 4, 1)
    history.journal["processes"].append(line(9.5, daemon="centre-0", event="started", pid=9))
    ends(history, 10, -15, "ends")
    assert INVARIANTS["nothing stuck"](history) == []


def test_a_centre_may_end_as_long_as_its_database_is_damaged() -> None:
    history = good_history()
    damaged(history, 2, 5)
    ends(history, 4, 1)
    assert INVARIANTS["nothing stuck"](history) == []


@pytest.mark.parametrize("least", [0, 2])
def test_a_launcher_may_give_up_once_its_spare_was_killed(least: int) -> None:
    history = good_history()
    history.plan["world"].update(least=least)
    gives_up(
        history, "0 spare processes are available for rank 0" + "; it cannot go on with fewer ranks: so" * bool(least)
    )
    history.journal["signals"] = [line(5, daemon="ranks-of-n3", signal="SIGKILL", pid=3, node="n3")]
    assert INVARIANTS["swaps go on"](history) == []


def test_a_swap_may_say_what_it_lost_or_that_it_does_not_know() -> None:
    for lost in (1, None):
        history = good_history()
        history.steps += [step(3.5, 2, rank, 1) for rank in (0, 1)]
        event(history, "swapped").update(lost=lost)
        assert INVARIANTS["losses kept"](history) == []


def test_the_last_error_of_a_log_is_found_below_its_traceback() -> None:
    log = 'INFO all is well\nTraceback (most recent call last):\n  File "x"\n    boom()\nOSError: no'
    assert traceback_in(log + "\nINFO on it goes\n") == "OSError: no"
    assert traceback_in("Error: epoch 1 is over\n") == ""


def test_lines_that_a_node_with_a_damaged_database_reads_again_may_count_again_but_not_be_lost() -> None:
    history = good_history()
    history.plan["strikes"] = [{"disaster": "corrupt_outbox", "target": "healthd-n1"}]
    first(history, "findings").update(count=2)
    assert INVARIANTS["1 findings kept"](history) == []
    history.store["findings"].pop(0)
    assert INVARIANTS["1 findings kept"](history) != []
