"""What a test is given: the device it is about, how long it may take, and whom to tell what it is doing."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

Note = Callable[[str], None]


class Device(msgspec.Struct, frozen=True, kw_only=True):
    """One device of this node.

    `name` is what results say (`cuda:0`, `cpu:1`), `torch_name` what torch takes (`cuda:0`, `cpu`). A node without a GPU stands
    for two devices, each with half of the processor's threads, so that what needs a peer has one.
    """

    name: str
    torch_name: str
    index: int
    label: str
    uuid: str = ""
    product: str = ""
    memory_bytes: int = 0  # what a test may use of it

    @property
    def on_host(self) -> bool:
        """Not a GPU: then host memory and the processor are what is tested."""
        return self.torch_name == "cpu"


class Context(msgspec.Struct, frozen=True, kw_only=True):
    """One test about to run in this process.

    `device` is None for a test of the whole node. `devices` are all of the node, in order; a test of peers finds torch's default
    process group over them, rank for index. `fault` is what to commit, here and in no other process, "" for none. `seconds` is
    about how long the test should take at this level. `note` is called before every step that could hang.
    """

    device: Device | None
    devices: tuple[Device, ...]
    level: str
    seconds: float
    fault: str
    note: Note
