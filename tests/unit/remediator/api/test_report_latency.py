from __future__ import annotations

from remediator.api.latency_histogram import BOUNDS_S, make_report_times


def test_each_report_is_in_every_bucket_that_it_was_quick_enough_for() -> None:
    times = make_report_times()
    for took_s in (0.0, 0.001, 0.0011, 9.0, 99.0):
        times.count(took_s)
    found = {sample.labels.get("le", sample.name.rpartition("_")[2]): sample.value for sample in times.family().samples}
    assert [found[str(bound)] for bound in BOUNDS_S] == [2.0, *[3.0] * (len(BOUNDS_S) - 2), 4.0]
    assert (found["+Inf"], found["count"], round(found["sum"], 4)) == (5.0, 5.0, 108.0021)
