"""NVLink readings: state, remote end, traffic and errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pynvml

from healthd.nvml.field_values import FieldValues
from healthd.nvml.pci_address import format_pci_address

# NVLink 5 uses other field numbers than its predecessors (NVML header, "NVLink specific"); the newer number first.
_COUNTERS = {
    "crc_errors": (pynvml.NVML_FI_DEV_NVLINK_COUNT_SYMBOL_ERRORS, pynvml.NVML_FI_DEV_NVLINK_ERROR_DL_CRC),
    "replay_errors": (pynvml.NVML_FI_DEV_NVLINK_ERROR_DL_REPLAY,),
    "recovery_errors": (
        pynvml.NVML_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_EVENTS,
        pynvml.NVML_FI_DEV_NVLINK_ERROR_DL_RECOVERY,
    ),
    "rx_bytes": (pynvml.NVML_FI_DEV_NVLINK_COUNT_RCV_BYTES,),
    "tx_bytes": (pynvml.NVML_FI_DEV_NVLINK_COUNT_XMIT_BYTES,),
    "rx_kib": (pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX,),
    "tx_kib": (pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX,),
}
# A sleeping link wakes up with traffic; a link whose traffic is disabled is trained but carries nothing.
_UP = {
    pynvml.NVML_NVLINK_STATE_INACTIVE: False,
    pynvml.NVML_NVLINK_STATE_ACTIVE: True,
    pynvml.NVML_NVLINK_STATE_SLEEP: True,
    pynvml.NVML_NVLINK_STATE_ACTIVE_TRAFFIC_DISABLED: False,
}
_NO_SUCH_LINK = (pynvml.NVMLError_NotSupported, pynvml.NVMLError_InvalidArgument)


class NvLinks:
    """The links of one GPU; found once."""

    def __init__(self) -> None:
        self._links: list[_NvLink] | None = None

    def __call__(self, handle: Any) -> list[dict[str, Any]]:
        """Return one dictionary per link.

        Raises:
            NVMLError: this GPU has no links (not supported), is lost, or does not answer for them.
        """
        if self._links is None:
            self._links = [
                _NvLink(number) for number in range(pynvml.NVML_NVLINK_MAX_LINKS) if _link_exists(handle, number)
            ]
        if not self._links:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return [link.read(handle) for link in self._links]


class _NvLink:
    def __init__(self, number: int) -> None:
        self._number = number
        self._counters = FieldValues(_COUNTERS, number)
        self._state: int | None = None
        self._remote = ""

    def read(self, handle: Any) -> dict[str, Any]:
        state = _call_link(pynvml.nvmlDeviceGetNvLinkState, handle, self._number)
        if state != self._state:  # a link may report as unsupported while down what it has when up
            self._state, self._counters = state, FieldValues(_COUNTERS, self._number)
        if state and not self._remote:
            info = _call_link(pynvml.nvmlDeviceGetNvLinkRemotePciInfo, handle, self._number)
            self._remote = "" if info is None else format_pci_address(info)
        values = {name: value for name, value in self._counters(handle).items() if name != "errors"}
        for name in ("rx", "tx"):
            carried = values.pop(f"{name}_bytes", None)
            if carried is not None:
                values[f"{name}_kib"] = carried // 1024
        return {
            "link": self._number,
            "active": _UP.get(state),
            "traffic_disabled": None if state is None else state == pynvml.NVML_NVLINK_STATE_ACTIVE_TRAFFIC_DISABLED,
            "remote": self._remote,
            **values,
        }


def _link_exists(handle: Any, number: int) -> bool:
    try:
        pynvml.nvmlDeviceGetNvLinkState(handle, number)
    except _NO_SUCH_LINK:
        return False
    return True


def _call_link(call: Callable[[Any, int], Any], handle: Any, number: int) -> Any:
    """Return None where one link does not answer, as in some virtual machines; the other links are still read."""
    try:
        return call(handle, number)
    except pynvml.NVMLError_GpuIsLost:
        raise
    except pynvml.NVMLError:
        return None
