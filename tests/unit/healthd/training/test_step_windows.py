"""Steps into windows that the controller can lay side by side, whichever rank made them."""

from __future__ import annotations

from healthd.samples.rank_steps import RankSteps, StepFacts
from healthd.training.step_windows import KEPT, SIZE_MAX, StepWindows
from vocabulary.messages.wire import StepWindow, decode_message, encode_message


def rank(*new: StepFacts, pid: int = 1) -> RankSteps:
    return RankSteps("j", 0, 0, 4, pid, alive=True, step=0, completed=0, phase="step", new=new)


def steps(first: int, last: int, seconds: float, **more: float) -> list[StepFacts]:
    return [StepFacts(n, n, float(n), seconds, **more) for n in range(first, last)]


def test_long_steps_are_told_one_by_one_and_saving_is_no_part_of_them() -> None:
    windows = StepWindows(4.0)
    told = windows.take(rank(StepFacts(0, 7, 0.0, 9.0, checkpoint_s=4.0, forward_s=2.0, tokens=10.0)))
    assert told == (StepWindow(7, 1, 1, step_s=5.0, forward_s=2.0, tokens=10.0),)
    assert windows.take(rank()) == told


def test_two_ranks_whose_processes_began_at_different_steps_make_the_same_windows() -> None:
    one, other = StepWindows(4.0), StepWindows(4.0)
    a = one.take(rank(*steps(0, 400, 0.5, forward_s=0.2)))
    b = other.take(rank(*steps(133, 400, 0.5, forward_s=0.2)))
    assert a == b == tuple(StepWindow(8 * n, 8, 8, 0.5, 0.2) for n in range(50 - KEPT, 50))


def test_a_window_that_became_a_little_longer_stays_and_one_that_became_much_longer_shrinks() -> None:
    windows = StepWindows(4.0)
    windows.take(rank(*steps(0, 64, 0.5)))
    assert windows.take(rank(*steps(64, 96, 1.9)))[-1].size == 8
    assert windows.take(rank(*steps(96, 160, 2.1)))[-1].size == 2


def test_what_a_loop_leaves_out_in_some_steps_is_not_told_and_a_step_back_begins_anew() -> None:
    windows = StepWindows(4.0)
    (told,) = windows.take(rank(*steps(0, 1, 9.0, data_s=0.5)))
    assert (told.data_s, told.forward_s) == (0.5, None)
    windows.take(rank(*steps(1, 40, 2.0)))
    assert windows.take(rank(*steps(10, 12, 2.0)))[-1].first == 10
    assert windows.take(rank(StepFacts(0, -1, 0.0, 1.0)))[-1].first == 10
    (half,) = StepWindows(1.0).take(rank(*steps(0, 1, 0.3), *steps(2, 3, 0.3), *steps(4, 5, 0.3)))[1:]
    assert half == StepWindow(0, 4, 1, 0.3)


def test_a_loop_faster_than_any_page_has_a_longest_window_and_a_process_is_forgotten() -> None:
    windows = StepWindows(4.0)
    assert windows.take(rank(*steps(0, 4000, 1e-6)))[-1].size == SIZE_MAX
    windows.end_look()
    windows.end_look()
    assert windows.take(rank()) == ()
    assert windows.take(rank(pid=2)) == ()


def test_a_window_is_a_short_list_on_the_wire_and_a_newer_node_may_add_to_it() -> None:
    window = StepWindow(96, 4, 4, 1.0, forward_s=0.5)
    assert encode_message(window) == b"[96,4,4,1.0,0.5,null,null,null,null]"
    assert decode_message(b"[96,4,4,1.0,0.5]", StepWindow) == window
    assert decode_message(b'[96,4,4,1.0,0.5,null,null,null,null,"more"]', StepWindow) == window
