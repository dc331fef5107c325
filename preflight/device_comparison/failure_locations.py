"""Converts locations of failures to names valid outside of this run: devices become UUIDs. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from preflight.check_context import Device
from preflight.results import Location, Outcome, Result

_ACCUSED = (Outcome.FAIL, Outcome.HANG)


def resolve_failure_locations(results: Sequence[Result], devices: Sequence[Device]) -> tuple[Result, ...]:
    """Replace names of `devices` by UUIDs, and add the device itself as location if it failed or hung without one."""
    uuids = {device.name: device.uuid or device.name for device in devices}
    return tuple(msgspec.structs.replace(result, locations=_resolve_locations(result, uuids)) for result in results)


def _resolve_locations(result: Result, uuids: dict[str, str]) -> tuple[Location, ...]:
    if not result.locations and result.outcome in _ACCUSED and result.device in uuids:
        return (Location(gpu=uuids[result.device]),)
    return tuple(msgspec.structs.replace(place, gpu=uuids.get(place.gpu, place.gpu)) for place in result.locations)
