"""CUDA through torch: events as marks, and copies to pinned memory; nothing in here waits for the GPU."""

from __future__ import annotations

import torch

from healthd.trainer.beacons.rank_placement import RankGpu


class Pinned:
    """A number on its way, in a slot of pinned memory. The slot goes back with `read`."""

    def __init__(self, slot: torch.Tensor, slots: list[torch.Tensor]) -> None:
        self._slot, self._slots = slot, slots

    def read(self) -> float:
        """The number."""
        value = float(self._slot)
        self._slots.append(self._slot)
        return value


class Cuda:
    """The current CUDA device. Marks go into the stream that is current when they are made."""

    def __init__(self) -> None:
        self._events: list[torch.cuda.Event] = []
        self._slots: dict[torch.dtype, list[torch.Tensor]] = {}

    def gpu(self) -> RankGpu:
        """Which one it is; what this torch does not know stays empty."""
        properties = torch.cuda.get_device_properties(torch.cuda.current_device())
        uuid = str(getattr(properties, "uuid", ""))
        bus = getattr(properties, "pci_bus_id", None)
        if bus is None:
            return RankGpu(uuid and f"GPU-{uuid}")
        pci = f"{properties.pci_domain_id:04x}:{bus:02x}:{properties.pci_device_id:02x}.0"
        return RankGpu(uuid and f"GPU-{uuid}", pci)

    def mark(self) -> torch.cuda.Event:
        """An event, recorded in the current stream."""
        event = self._events.pop() if self._events else torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def passed(self, mark: torch.cuda.Event) -> bool:
        """Whether the stream has come past it."""
        return bool(mark.query())

    def between(self, earlier: torch.cuda.Event, later: torch.cuda.Event) -> float:
        """Seconds."""
        return float(earlier.elapsed_time(later)) / 1e3

    def free(self, marks: list[torch.cuda.Event]) -> None:
        """For the next steps."""
        self._events += marks

    def hand_over(self, value: object) -> Pinned | None:
        """Copy a CUDA scalar, in stream order, so that what the loop does to it later does no harm.

        Raises:
            Exception: whatever torch says of a tensor that holds more than one number.
        """
        if not isinstance(value, torch.Tensor) or not value.is_cuda:
            return None
        free = self._slots.setdefault(value.dtype, [])  # of the same type: then it is one copy, and no kernel before it
        slot = free.pop() if free else torch.empty((), dtype=value.dtype, pin_memory=True)
        slot.copy_(value.detach().reshape(()), non_blocking=True)
        return Pinned(slot, free)
