"""Reads and writes a node's expectation files: the fleet's baseline, the node's history, the site's product table.

A folder with ``baseline.json``, ``history.json`` and ``products.yaml``; each is optional. An unusable file is reported and
left unchanged, and the run continues without it. Writers hold the folder's lock; readers need none, as files are replaced.
"""

from __future__ import annotations

import fcntl
import os
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import msgspec

from preflight.expectations.device_history import History, record_run
from preflight.expectations.fleet_baseline import Baseline
from preflight.expectations.measurement_keys import describe_software_stack
from preflight.expectations.product_table import ProductTable, list_table_faults
from preflight.expectations.result_judgement import Knowledge
from preflight.results import Document, Verdict
from vocabulary.atomic_file import replace_file

VARIABLE = "HEALTHD_PREFLIGHT_BASELINE"
FOLDER = Path("/var/lib/gpu-healthd/preflight")
SHIPPED = Path(__file__).parent / "expectations" / "products.yaml"
BASELINE, HISTORY, PRODUCTS = "baseline.json", "history.json", "products.yaml"
LOCK = ".lock"
LOCK_WAIT_S = 20.0
LOCK_LOOK_S = 0.02
BYTES_MAX = 64 << 20
TABLE_BYTES_MAX = 1 << 20
VERSION = 1

Kind = TypeVar("Kind", Baseline, History)


class BaselineError(ValueError):
    """A file that cannot be used. The message names the file, the error, and what to do."""


def resolve_baseline_folder(path: str | Path | None = None) -> Path:
    """`path`, else the folder in the environment variable, else the default."""
    return Path(path or os.environ.get(VARIABLE) or FOLDER)


def load_knowledge(at: Path, node: str, software: Mapping[str, str]) -> Knowledge:
    """Load everything needed to judge `node`, which runs `software`. Unreadable files become remarks."""
    remarks: list[str] = []
    table, baseline, history = ProductTable(), Baseline(), History()
    try:
        table = load_product_table(at / PRODUCTS)
    except BaselineError as error:
        remarks.append(f"{error}; the run continues with the shipped table")
        table = load_product_table(None)
    try:
        baseline = read_baseline(at / BASELINE)
    except BaselineError as error:
        remarks.append(f"{error}; the run continues without the fleet baseline")
    try:
        history = read_history(at / HISTORY)
    except BaselineError as error:
        remarks.append(f"{error}; the run continues without it")
    return Knowledge(
        node=node,
        software=describe_software_stack(software),
        table=table,
        baseline=baseline,
        history=history,
        remarks=tuple(remarks),
    )


def load_product_table(site: Path | None) -> ProductTable:
    """The shipped table, with a site's own products in front if the file exists.

    Raises:
        BaselineError: a file is not a table, or a row is invalid.
    """
    shipped = _read_product_table(SHIPPED)
    own = _read_product_table(site) if site else ProductTable()
    names = {name.casefold() for product in own.products for name in product.names}
    kept = tuple(p for p in shipped.products if not names & {name.casefold() for name in p.names})
    return ProductTable(products=own.products + kept)


def read_baseline(path: Path) -> Baseline:
    """The baseline at `path`; empty if the file does not exist.

    Raises:
        BaselineError: it exists and cannot be used.
    """
    return _read_versioned_file(path, Baseline)


def read_history(path: Path) -> History:
    """The history at `path`; empty if the file does not exist.

    Raises:
        BaselineError: it exists and cannot be used.
    """
    return _read_versioned_file(path, History)


def write_baseline_file(path: Path, what: Baseline | History) -> None:
    """Replace the file atomically.

    Raises:
        BaselineError: it can't be written.
    """
    data = msgspec.json.format(msgspec.json.encode(what), indent=1)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, data + b"\n", mode=0o644, sync_content=True)
    except OSError as error:
        raise BaselineError(
            f"{path}: cannot be written: {error.strerror}; free space or fix the folder's permissions"
        ) from error


def update_baseline(at: Path, change: Callable[[Baseline], Baseline]) -> tuple[Baseline, Baseline]:
    """Change the baseline in the folder `at` under its lock. Returns the old and the new one.

    If nothing changes, nothing is written.

    Raises:
        BaselineError: it can't be read or written, or another process holds the lock.
    """
    path = at / BASELINE
    with _lock_folder(at):
        old = read_baseline(path)
        new = change(old)
        if new != old:
            write_baseline_file(path, new)
    return old, new


def append_history(at: Path, document: Document) -> None:
    """Add a passed run without injected faults to the node's history. Creates the default folder only beside healthd's state.

    Raises:
        BaselineError: the history cannot be written, or the existing file is invalid.
    """
    if document.verdict is not Verdict.PASS or document.injected or (at == FOLDER and not at.parent.is_dir()):
        return
    path = at / HISTORY
    with _lock_folder(at):
        write_baseline_file(path, record_run(read_history(path), document))


@contextmanager
def _lock_folder(at: Path) -> Iterator[None]:
    """Hold the folder's lock, so that concurrent updates are not lost."""
    path = at / LOCK
    try:
        at.mkdir(parents=True, exist_ok=True)
        lock = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise BaselineError(
            f"{path}: cannot be opened: {error.strerror}; free space or fix the folder's permissions"
        ) from error
    try:
        _acquire_lock(lock, path)
        yield
    finally:
        os.close(lock)  # releases the lock


def _acquire_lock(lock: int, path: Path) -> None:
    until = time.monotonic() + LOCK_WAIT_S
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                raise BaselineError(
                    f"{path}: held by another program for {LOCK_WAIT_S:g} s; find the holder with fuser, then retry"
                ) from None
        except OSError as error:
            raise BaselineError(f"{path}: cannot be locked: {error.strerror}; use a local folder") from error
        else:
            return
        time.sleep(LOCK_LOOK_S)


def _read_product_table(path: Path) -> ProductTable:
    """The table at `path`; empty if the file does not exist."""
    import yaml  # noqa: PLC0415 - a tenth of a second for those who only read a baseline

    data = _read_limited_bytes(path, TABLE_BYTES_MAX)
    if data is None:
        return ProductTable()
    # Plain strings, which msgspec converts: YAML's own dates and numbers raise arbitrary exceptions.
    loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
    try:
        said = yaml.load(data, Loader=loader)  # noqa: S506 - both make nothing but strings, lists and dicts
        version = said.get("version", str(VERSION)) if isinstance(said, dict) else ""
        if version and version != str(VERSION):
            raise BaselineError(_describe_unknown_version(path, version))
        table = msgspec.convert(said, ProductTable, strict=False)
    except (yaml.YAMLError, UnicodeDecodeError, msgspec.ValidationError, RecursionError) as error:
        raise BaselineError(f"{path}: not a product table: {' '.join(str(error).split())}") from error
    if wrong := list_table_faults(table):
        raise BaselineError(f"{path}: {wrong[0]}")
    return table


def _read_versioned_file(path: Path, kind: type[Kind]) -> Kind:
    data = _read_limited_bytes(path, BYTES_MAX)
    if data is None:
        return kind()
    try:
        version = msgspec.json.decode(data, type=_Versioned).version
        if version != VERSION:
            raise BaselineError(_describe_unknown_version(path, version))
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BaselineError(
            f"{path}: not a {kind.__name__.lower()}: {error}; move it away or learn it again"
        ) from error


def _read_limited_bytes(path: Path, most: int) -> bytes | None:
    """Read at most `most` bytes; None if the file does not exist. Non-regular files, such as pipes, are not read."""
    try:
        with open(path, "rb", opener=_open_nonblocking) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise BaselineError(f"{path}: not a plain file; move it away")
            data = file.read(most + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BaselineError(f"{path}: cannot be read: {error.strerror}") from error
    if len(data) > most:
        raise BaselineError(f"{path}: larger than {most >> 20} MiB, so not written by preflight; move it away")
    return data


def _open_nonblocking(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def _describe_unknown_version(path: Path, version: object) -> str:
    return f"{path}: version {version!s:.20} is not known to this program, which reads version {VERSION}; install the newer release"


class _Versioned(msgspec.Struct):
    version: int
