"""The watchdogs' limits; `thresholds.yaml` gives the reason for each."""

from __future__ import annotations

import msgspec


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Section `training` of the thresholds. Steps are counts; `stall_*` are seconds unless they say otherwise."""

    warm_up_steps: int
    window_steps: int
    least_steps: int
    settle_steps: int
    stall_floor_s: float
    unsure_floor_s: float
    stall_spreads: float
    stall_times_usual: float
    stall_times_longest: float
    warm_up_floor_s: float
    pause_floor_s: float
    checkpoint_floor_s: float
    pause_times_longest: float
    stall_clear_steps: int
    rank_idle_s: float
    rank_idle_cpu_percent: float
    loss_clear_steps: int
    loss_spreads: float
    loss_spread_floor_percent: float
    loss_steps: int
    excursion_times: float
    excursion_times_longest: float
    excursion_half_life_steps: int
    gradient_times_usual: float
    gradient_steps: int
    overflow_steps: int
    overflow_start_steps: int
    spike_clear_steps: int
    slowdown_percent: float
    steps_per_false_alarm: float
    throughput_percent: float
    throughput_clear_percent: float
    communication_points: float
    communication_clear_points: float
    recent_steps: int
    recent_clear_steps: int
    report_window_s: float
