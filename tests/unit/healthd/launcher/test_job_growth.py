from __future__ import annotations

from healthd.launcher.process_groups.job_growth import ASK_AGAIN_SECONDS, PAUSE_SECONDS, RESUMES_MAX, JobGrowth


def test_the_ranks_are_asked_once_and_again_only_where_nothing_came_of_it() -> None:
    growth = JobGrowth()
    assert growth.request(0.0, 3, possible=False) == ""
    assert growth.request(0.0, 3, possible=True) == "grow-3-1"
    assert growth.request(ASK_AGAIN_SECONDS, 3, possible=True) == ""
    assert growth.request(ASK_AGAIN_SECONDS + 1, 3, possible=True) == "grow-3-2"
    growth.clear()
    assert growth.request(ASK_AGAIN_SECONDS + 2, 4, possible=True) == "grow-4-3"


def test_the_next_generation_waits_for_all_ranks_to_pause_but_not_for_ever() -> None:
    growth = JobGrowth()
    assert not growth.resumes(0.0, [0, 1])
    growth.note_paused(0, 5.0)
    assert not growth.resumes(5.0 + PAUSE_SECONDS, [0, 1])
    assert growth.resumes(5.1 + PAUSE_SECONDS, [0, 1])
    growth.clear()
    assert not growth.resumes(99.0, [0, 1])
    growth.note_paused(0, 5.0)
    growth.note_paused(1, 6.0)
    assert growth.resumes(6.0, [0, 1])
    growth.clear()
    assert not growth.resumes(99.0, [0, 1])


def test_generations_that_do_no_step_are_not_formed_again_for_ever() -> None:
    growth = JobGrowth()

    def resumes() -> bool:
        growth.clear()
        growth.note_paused(0, 1.0)
        return growth.resumes(1.0, [0])

    assert [resumes() for _ in range(RESUMES_MAX + 1)] == [True] * RESUMES_MAX + [False]
    growth.note_advanced()
    assert resumes()
