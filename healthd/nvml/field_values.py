"""Several of NVML's numbered field values in one call, which is far cheaper than separate calls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pynvml

from healthd.nvml.gpu_reading import ABSENT, Ask, NvmlReading

# The driver's answer to an unknown field number differs between releases.
_UNKNOWN = frozenset(
    {
        pynvml.NVML_ERROR_NOT_SUPPORTED,
        pynvml.NVML_ERROR_INVALID_ARGUMENT,
        pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        pynvml.NVML_ERROR_NOT_FOUND,
        pynvml.NVML_ERROR_DEPRECATED,
    }
)
_MEMBERS = {
    pynvml.NVML_VALUE_TYPE_DOUBLE: "dVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_INT: "uiVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG: "ulVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG: "ullVal",
    pynvml.NVML_VALUE_TYPE_SIGNED_LONG_LONG: "sllVal",
    pynvml.NVML_VALUE_TYPE_SIGNED_INT: "siVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_SHORT: "usVal",
}


class FieldValues:
    """Field names, each with its candidate numbers, best first. Remembers what this GPU does not have.

    `scope` is the part of the GPU that the number is about, such as a link.
    """

    def __init__(self, fields: Mapping[str, tuple[int, ...]], scope: int = 0) -> None:
        self._scope = scope
        self._asked = [(name, number) for name, numbers in fields.items() for number in numbers]

    def __call__(self, handle: Any) -> dict[str, Any]:
        """Return the known values by name, as integers.

        Raises:
            NVMLError: the GPU is lost, or the whole call failed.
        """
        if not self._asked:
            return {}
        try:
            values = pynvml.nvmlDeviceGetFieldValues(handle, [(number, self._scope) for _, number in self._asked])
        except ABSENT:  # the driver lacks the call
            self._asked = []
            return {}
        answer: dict[str, Any] = {}
        errors: dict[str, str] = {}
        kept = []
        for asked, value in zip(self._asked, values, strict=True):
            name = asked[0]
            if value.nvmlReturn in _UNKNOWN or name in answer:
                continue
            kept.append(asked)
            if value.nvmlReturn == pynvml.NVML_SUCCESS:
                answer[name] = int(getattr(value.value, _MEMBERS.get(value.valueType, "ullVal")))
            elif value.nvmlReturn == pynvml.NVML_ERROR_GPU_IS_LOST:
                raise pynvml.NVMLError(value.nvmlReturn)
            else:
                errors[name] = str(pynvml.NVMLError(value.nvmlReturn))
        self._asked = kept
        return answer | {"errors": errors} if errors else answer

    def or_else(self, calls: Mapping[str, Ask]) -> list[NvmlReading]:
        """Return readings that follow this one and make an older call for each name without a field number."""
        return [NvmlReading(name, self._unless_asked(name, call)) for name, call in calls.items()]

    def _unless_asked(self, name: str, call: Ask) -> Ask:
        return lambda handle: {} if any(name == asked for asked, _ in self._asked) else call(handle)
