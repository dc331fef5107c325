"""A driver library in Python: what pynvml calls, it finds here under the names of the real one. And a call page."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator
from typing import Any

import pynvml
import pytest

from healthd.supervision.child_call_page import CALL_PAGE_BYTES, ChildCallPage

Field = tuple[int, int | float]  # an nvmlReturn_t, and the value


class Driver:
    """`calls` are the entry points there are; `fields` the values by (number, scope). `asked` is what was asked for."""

    def __init__(self) -> None:
        self.calls: dict[str, Callable[..., int]] = {"nvmlDeviceGetFieldValues": self._field_values}
        self.fields: dict[tuple[int, int], Field] = {}
        self.asked: list[str | tuple[int, int]] = []

    def __getattr__(self, name: str) -> Callable[..., int]:
        try:
            call = self.calls[name]
        except KeyError:
            raise AttributeError(name) from None

        def noted(*arguments: Any) -> int:
            self.asked.append(name)
            return call(*arguments)

        return noted

    def answers(self, name: str, *values: Any, result: int = 0) -> None:
        """Let the entry point write the values through its last pointers, and return `result`."""

        def call(*arguments: Any) -> int:
            for argument, value in zip(arguments[len(arguments) - len(values) :], values, strict=True):
                if result == 0:
                    argument._obj.value = value
            return result

        self.calls[name] = call

    def answers_everything(self) -> None:
        """Every entry point there could be says 1, and so does every field."""
        self.__class__ = _Talkative

    def _field_values(self, _handle: Any, _count: Any, values: Any) -> int:
        for value in values._obj:
            self.asked.append((value.fieldId, value.scopeId))
            value.nvmlReturn, number = self.fields.get((value.fieldId, value.scopeId), (3, 0))
            value.valueType = pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG
            value.value.ullVal = int(number)
        return 0


class _Talkative(Driver):
    def __getattr__(self, name: str) -> Callable[..., int]:
        return self._say_one

    def nvmlDeviceGetFieldValues(self, _handle: Any, _count: Any, values: Any) -> int:  # noqa: N802 - NVML's name
        _fill(values._obj)
        return 0

    def _say_one(self, *arguments: Any) -> int:
        for argument in arguments:
            to = getattr(argument, "_obj", argument)
            if isinstance(to, (ctypes.Structure, ctypes.Array)):
                _fill(to)
            elif to is not argument and hasattr(to, "value"):
                to.value = 1
        sizing = arguments[-1] is None  # asked with no room, NVML says how much is needed
        return pynvml.NVML_ERROR_INSUFFICIENT_SIZE if sizing else 0


def _fill(to: Any) -> None:
    if isinstance(to, ctypes.Structure):
        for name, *_ in to._fields_:
            if isinstance(getattr(to, name), (ctypes.Structure, ctypes.Array)):
                _fill(getattr(to, name))
            elif isinstance(getattr(to, name), (int, float)):
                setattr(to, name, 0 if name == "nvmlReturn" else 1)
    elif to._type_ is ctypes.c_char:
        to.value = b"1"
    else:
        for number, item in enumerate(to):
            if isinstance(item, ctypes.Structure):
                _fill(item)
            else:
                to[number] = 1


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    """Loaded instead of libnvidia-ml."""
    driver = Driver()
    monkeypatch.setattr(pynvml, "nvmlLib", driver)
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    return driver


@pytest.fixture
def call_page() -> Iterator[ChildCallPage]:
    descriptor = os.memfd_create("call_page")
    os.ftruncate(descriptor, CALL_PAGE_BYTES)
    call_page = ChildCallPage(descriptor)
    os.close(descriptor)
    yield call_page
    call_page.close()
