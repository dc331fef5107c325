"""The driver's library (NVML), opened with this run's settings. Missing properties are None, never an error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from preflight.host.nvml_library import NoDriverError, load_nvml, read_field_value
from preflight.results import Outcome


class NvmlDriver:
    """An opened library. Every call may hang: note the query before it."""

    def __init__(self, note: Callable[[str], None] = lambda _: None) -> None:
        """Load and initialise it.

        Raises:
            NoDriverError: the library is missing, or does not start; the message says which.
        """
        try:
            self.library: Any = load_nvml(note)
        except ModuleNotFoundError as error:
            reason = "the module pynvml is not installed; install it: pip install nvidia-ml-py"
            raise NoDriverError(Outcome.NOT_RUN, reason, misconfigured=True) from error

    def ask(self, name: str, *arguments: Any) -> Any:
        """The result of ``nvml<name>(*arguments)``; None if unsupported or unavailable."""
        call: Callable[..., Any] | None = getattr(self.library, f"nvml{name}", None)
        if call is None:
            return None
        try:
            return call(*arguments)
        except self.library.NVMLError:
            return None

    def number(self, name: str, *arguments: Any) -> int | None:
        """The same as an integer."""
        value = self.ask(name, *arguments)
        return None if value is None else int(value)

    def text(self, name: str, *arguments: Any) -> str:
        """The same as text; empty for None."""
        value = self.ask(name, *arguments)
        return "" if value is None else value.decode(errors="replace") if isinstance(value, bytes) else str(value)

    def gpus(self) -> list[Any]:
        """A handle for each GPU by index; None where the driver gives none."""
        return [self.ask("DeviceGetHandleByIndex", index) for index in range(self.number("DeviceGetCount") or 0)]

    def gpu(self, uuid: str) -> Any | None:
        """The GPU with that UUID, whatever its index; None if there is none."""
        return next((gpu for gpu in self.gpus() if gpu is not None and self.text("DeviceGetUUID", gpu) == uuid), None)

    def address(self, gpu: Any) -> str:
        """``dddd:bb:dd.0`` on the PCI bus, as the kernel writes it; empty if unknown."""
        info = self.ask("DeviceGetPciInfo", gpu)
        return "" if info is None else f"{info.domain:04x}:{info.bus:02x}:{info.device:02x}.0"

    def field(self, gpu: Any, number: int) -> int | None:
        """A numbered field value (NVML_FI_…) as an unsigned integer; None if unsupported."""
        values = self.ask("DeviceGetFieldValues", gpu, [number])
        if not values or values[0].nvmlReturn != self.library.NVML_SUCCESS:
            return None
        return int(read_field_value(self.library, values[0]))
