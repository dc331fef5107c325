"""Rates under noise, by the code that judges them: healthy devices do not fail, and a dead NVLink is named."""

from __future__ import annotations

import pytest

from bench.preflight_noise import LEAST_OF_FIVE, count_figure_verdicts, count_link_verdicts

NOISES = (0.01, 0.02, 0.03, 0.05)


@pytest.mark.parametrize("noise", NOISES)
def test_a_dead_nvlink_is_named_and_healthy_pairs_pass(noise: float) -> None:
    found = count_link_verdicts(noise, LEAST_OF_FIVE, 60, faulty=True)
    assert found["right"] >= 0.95 * 60, found
    assert count_link_verdicts(noise, LEAST_OF_FIVE, 60, faulty=False) == {"right": 0, "wrong": 0, "inconclusive": 0}


@pytest.mark.parametrize("scatter", NOISES)
def test_eight_healthy_devices_fail_by_none_of_their_figures(scatter: float) -> None:
    assert count_figure_verdicts(scatter, 2, 20, measured=True) == {"failed": 0, "inconclusive": 0}
    assert count_figure_verdicts(scatter, 1, 20, measured=False)["failed"] == 0
