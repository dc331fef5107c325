"""Records the raw answers of the driver's library, and replays them as a driver: any reader of preflight runs on both.

A file of `preflight day` carries the answers of a GPU that nobody here has: `ReplayedNvml` makes it a test fixture.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Sequence
from types import SimpleNamespace
from typing import Any

import msgspec

_FIELD_VALUES = "nvmlDeviceGetFieldValues"  # recorded field by field: readers ask for different ones
_HANDLES = "nvmlDeviceGetHandleBy"


class NvmlAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One query and the driver's first answer to it.

    `gpu` is the queried GPU as numbered by the driver, "" for the driver itself. `code` is NVML's return code, 0 for success.
    `written` is the structure that the driver filled in. Structures carry their members by name, unions as hexadecimal bytes.
    """

    call: str
    gpu: str = ""
    arguments: tuple[Any, ...] = ()
    code: int = 0
    value: Any = None
    written: Any = None


class NvmlRecording(msgspec.Struct, frozen=True, kw_only=True, tag="nvml"):
    """All answers of a driver. `failures` say which reader ended early, and why."""

    answers: tuple[NvmlAnswer, ...] = ()
    failures: tuple[str, ...] = ()


class RecordingNvml:
    """The module `pynvml`, with every answer recorded. Not for threads."""

    def __init__(self, library: Any) -> None:
        self._library = library
        self._names: dict[int | None, str] = {}
        self._answers: dict[bytes, NvmlAnswer] = {}

    @property
    def answers(self) -> tuple[NvmlAnswer, ...]:
        """Everything recorded so far, in order."""
        return tuple(self._answers.values())

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._library, name)
        if not name.startswith("nvml") or isinstance(value, type) or not callable(value):
            return value
        return lambda *arguments: self._call(name, value, arguments)

    def __setattr__(self, name: str, value: object) -> None:
        if name.startswith("_"):
            super().__setattr__(name, value)
        else:
            setattr(self._library, name, value)

    def _call(self, name: str, function: Callable[..., Any], arguments: Sequence[Any]) -> Any:
        gpu, rest = self._split(arguments)
        try:
            value = function(*arguments)
        except self._library.NVMLError as error:
            self._keep(name, gpu, rest, code=int(error.value))
            raise
        if _is_handle(value):
            label = f"GPU {rest[0]}" if not gpu else f"{gpu} MIG {rest[0]}"
            self._names.setdefault(_read_address(value), label)
        written = [self._encode(target) for each in arguments if (target := _find_target(each)) is not None]
        if name == _FIELD_VALUES:
            for field, answer in zip(rest[0], value, strict=True):
                self._keep(name, gpu, ([field],), value=self._encode(answer))
        else:
            self._keep(name, gpu, rest, value=self._encode(value), written=written[0] if written else None)
        return value

    def _split(self, arguments: Sequence[Any]) -> tuple[str, tuple[Any, ...]]:
        if arguments and _is_handle(arguments[0]):
            return self._encode(arguments[0])["handle"], tuple(map(self._encode, arguments[1:]))
        return "", tuple(map(self._encode, arguments))

    def _keep(self, call: str, gpu: str, arguments: tuple[Any, ...], **answered: Any) -> None:
        answer = NvmlAnswer(call=call, gpu=gpu, arguments=arguments, **answered)
        self._answers.setdefault(_build_key(call, gpu, arguments), answer)

    def _encode(self, value: Any) -> Any:
        """`value` as JSON."""
        if value is None or isinstance(value, bool | int | float | str):
            return value
        if isinstance(value, bytes):
            return {"bytes": value.hex()}
        if _is_handle(value):
            return {"handle": self._names.get(_read_address(value), "unknown")}
        if (target := _find_target(value)) is not None:
            return {"out": type(target).__name__}
        if isinstance(value, ctypes.Structure):
            return {"struct": type(value).__name__, "members": dict(_read_members(value))}
        if isinstance(value, list | tuple | ctypes.Array):
            return [self._encode(each) for each in value]
        return {"object": {name: self._encode(each) for name, each in vars(value).items()}}


class ReplayedNvml:
    """The module `pynvml` of a recorded driver. A query that was not recorded is one that this driver does not know.

    `unknown` lists those queries.
    """

    def __init__(self, library: Any, answers: Iterable[NvmlAnswer]) -> None:
        """`library` is the real module, for its constants and types."""
        self._library = library
        self._answers = {_build_key(each.call, each.gpu, each.arguments): each for each in answers}
        self.unknown: list[str] = []

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._library, name)
        if not name.startswith("nvml") or isinstance(value, type) or not callable(value):
            return value
        return lambda *arguments: self._call(name, arguments)

    def _call(self, name: str, arguments: Sequence[Any]) -> Any:
        gpu, rest = "", list(arguments)
        if rest and isinstance(rest[0], _ReplayedHandle):
            gpu = rest.pop(0).name
        if name == _FIELD_VALUES:
            values = [self._answer(name, gpu, ([field],)).value for field in rest[0]]
            return [self._decode(value) for value in values]
        answer = self._answer(name, gpu, tuple(map(_encode_argument, rest)))
        for each in rest:
            if (target := _find_target(each)) is not None and answer.written is not None:
                _write_members(target, answer.written["members"])
        return self._decode(answer.value)

    def _answer(self, call: str, gpu: str, arguments: tuple[Any, ...]) -> NvmlAnswer:
        found = self._answers.get(_build_key(call, gpu, arguments))
        if found is None:
            self.unknown.append(f"{call} {gpu} {arguments}")
            raise self._library.NVMLError(self._library.NVML_ERROR_FUNCTION_NOT_FOUND)
        if found.code:
            raise self._library.NVMLError(found.code)
        return found

    def _decode(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._decode(each) for each in value]
        if not isinstance(value, dict):
            return value
        if "bytes" in value:
            return bytes.fromhex(value["bytes"])
        if "handle" in value:
            return _ReplayedHandle(value["handle"])
        if "struct" in value:
            made = getattr(self._library, value["struct"])()
            _write_members(made, value["members"])
            return made
        return SimpleNamespace(**{name: self._decode(each) for name, each in value["object"].items()})


class _ReplayedHandle(msgspec.Struct, frozen=True):
    name: str


def _build_key(call: str, gpu: str, arguments: Sequence[Any]) -> bytes:
    return msgspec.json.encode((call, gpu, arguments))


def _encode_argument(value: Any) -> Any:
    if isinstance(value, _ReplayedHandle):
        return {"handle": value.name}
    if (target := _find_target(value)) is not None:
        return {"out": type(target).__name__}
    return {"bytes": value.hex()} if isinstance(value, bytes) else value


def _find_target(argument: Any) -> Any:
    """The structure behind ``byref(structure)``; None for anything else."""
    return getattr(argument, "_obj", None)  # ctypes' own name for it


def _is_handle(value: Any) -> bool:
    return isinstance(value, ctypes._Pointer)  # noqa: SLF001 - the only name of the type of all pointers


def _read_address(handle: Any) -> int | None:
    return ctypes.cast(handle, ctypes.c_void_p).value


def _read_members(value: ctypes.Structure) -> Iterable[tuple[str, Any]]:
    """Numbers by name; unions and arrays as the bytes in memory."""
    for name, *_ in type(value)._fields_:
        member = getattr(value, name)
        if isinstance(member, int | float):
            yield name, member
        else:
            place = getattr(type(value), name)
            yield name, {"bytes": ctypes.string_at(ctypes.addressof(value) + place.offset, place.size).hex()}


def _write_members(value: ctypes.Structure, members: dict[str, Any]) -> None:
    """Members that this release of the type does not have are left out."""
    for name, member in members.items():
        place = getattr(type(value), name, None)
        if place is None:
            continue
        if isinstance(member, dict):
            data = bytes.fromhex(member["bytes"])
            ctypes.memmove(ctypes.addressof(value) + place.offset, data, min(len(data), place.size))
        else:
            setattr(value, name, member)
