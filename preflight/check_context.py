"""The input of a test: its device, its time limit, and the callback for progress."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

Note = Callable[[str], None]


class Device(msgspec.Struct, frozen=True, kw_only=True):
    """One device of this node.

    `name` is used in results (`cuda:0`, `cpu:1`), `torch_name` by torch (`cuda:0`, `cpu`). A node without a GPU counts as two
    devices, each with half of the processor's threads, so that pair tests have a peer.
    """

    name: str
    torch_name: str
    index: int
    label: str
    uuid: str = ""
    product: str = ""
    memory_bytes: int = 0  # how much a test may use

    @property
    def on_host(self) -> bool:
        """Not a GPU: then host memory and processor are tested."""
        return self.torch_name == "cpu"


class Context(msgspec.Struct, frozen=True, kw_only=True):
    """One test about to run in this process.

    `device` is None for a test of the whole node. `devices` are all devices of the node, in order; a test of peers finds
    torch's default process group over them, with rank = index. `fault` is the fault to inject in this process, "" for none.
    `seconds` is the intended duration at this level. Call `note` before every step that could hang.
    """

    device: Device | None
    devices: tuple[Device, ...]
    level: str
    seconds: float
    fault: str
    note: Note
