from __future__ import annotations

import pytest

from preflight.check_context import Device
from preflight.device_comparison.failure_locations import resolve_failure_locations
from preflight.results import Location, Outcome, Result

DEVICES = (
    Device(name="cuda:0", torch_name="cuda:0", index=0, label="", uuid="GPU-a"),
    Device(name="cpu:1", torch_name="cpu", index=1, label=""),
)


def places(outcome: Outcome, device: str, *locations: Location) -> tuple[Location, ...]:
    (result,) = resolve_failure_locations(
        [Result(test="t", outcome=outcome, device=device, locations=locations)], DEVICES
    )
    return result.locations


@pytest.mark.parametrize(
    ("outcome", "device", "gpu"),
    [
        (Outcome.FAIL, "cuda:0", "GPU-a"),
        (Outcome.HANG, "cuda:0", "GPU-a"),
        (Outcome.FAIL, "cpu:1", "cpu:1"),
        (Outcome.FAIL, "", ""),
        (Outcome.FAIL, "mlx5_0/1", ""),
        (Outcome.PASS, "cuda:0", ""),
        (Outcome.ERROR, "cuda:0", ""),
        (Outcome.NOT_RUN, "cuda:0", ""),
    ],
)
def test_only_a_device_that_failed_or_hung_is_a_location_by_itself(outcome: Outcome, device: str, gpu: str) -> None:
    assert [place.gpu for place in places(outcome, device)] == [gpu] * bool(gpu)


def test_what_a_test_knows_more_finely_stays_under_the_uuid() -> None:
    known = (Location(gpu="cuda:0", link=4, peer="cpu:1"), Location(gpu="GPU-a", sm=3), Location(nic="mlx5_0/1"))
    assert places(Outcome.FAIL, "cuda:0", *known) == (Location(gpu="GPU-a", link=4, peer="cpu:1"), *known[1:])
