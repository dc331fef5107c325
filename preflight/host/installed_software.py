"""Records of a node's installed software and settings."""

from __future__ import annotations

import msgspec


class InstalledGpu(msgspec.Struct, frozen=True, kw_only=True):
    """Modes and versions of one GPU. None if the GPU or its driver lacks the property."""

    index: int
    product: str = ""
    vbios: str = ""
    inforom: str = ""
    ecc: bool | None = None
    ecc_after_reset: bool | None = None
    mig: bool | None = None
    persistence: bool | None = None
    compute_mode: int | None = None
    bar1_mib: int | None = None
    memory_mib: int | None = None
    power_limit_w: int | None = None
    power_limit_default_w: int | None = None
    fabric_state: int | None = None
    fabric_status: int | None = None


class InstalledSoftware(msgspec.Struct, frozen=True, kw_only=True):
    """All of it. `machine` holds simple facts by name; `fabric_manager` is None if its process is not visible."""

    machine: dict[str, str | int]
    gpus: tuple[InstalledGpu, ...] = ()
    gpus_on_bus: int = 0
    switches_on_bus: int = 0
    fabric_manager: bool | None = None
    no_driver: str = ""
    driver_mismatch: bool = False
