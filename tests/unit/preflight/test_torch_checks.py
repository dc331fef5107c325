from __future__ import annotations

import pytest

from preflight.check_context import Device

pytestmark = pytest.mark.torch

SMALL = Device(name="cpu:0", torch_name="cpu", index=0, label="host memory and processor", memory_bytes=1 << 20)


def quiet(_: str) -> None:
    pass
