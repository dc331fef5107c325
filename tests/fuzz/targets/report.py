"""A node's report as the controller reads it."""

from __future__ import annotations

from tests.fuzz.target import Target
from vocabulary.messages.wire import Report, WireError, decode_message, encode_message


def judge(data: bytes) -> None:
    """A report or its own error; a report that was read comes back as it was sent on."""
    try:
        report = decode_message(data, Report)
    except WireError:
        return
    report.versions.tidy()
    if decode_message(encode_message(report), Report) != report:
        raise AssertionError("a report changes on its way")


_HEAD = b'{"version":1,"node":"n1","boot_id":"b","agent":"a","seq":1,"sent_at":1.0,"ttl_s":30.0,"health":"healthy"'
TARGET = Target(
    judge,
    (
        _HEAD + b"}",
        _HEAD + b',"gpus":[{"index":0,"uuid":"GPU-1","pci":"0000:3b:00.0"}],"versions":{"driver":"570","vbios":["a"]}}',
        _HEAD + b',"ranks":[{"job":"j","attempt":1,"rank":0,"world":8,"pid":7,"step":9,"phase":"step","at":1.5,'
        b'"sections":{"data":0.1},"windows":[[0,8,8,0.5,null,0.1]]}]}',
        _HEAD + b',"changes":[{"seq":3,"finding":{}}],"telemetry":{"monotonic":1,"blocks":[]}}',
    ),
    bytes_max=4096,
)
