"""Disks and file systems, local and network (kernel block, fs/ext4, fs/xfs, fs/btrfs, fs/nfs, md; Lustre)."""

from __future__ import annotations

import re

from healthd.kernel_log.message_patterns.line_pattern import PatternFamily, make_pattern
from vocabulary.finding import Severity
from vocabulary.identity import ComponentKind

_DEVICE = r"(?P<place>[\w.:-]{0,59}[\w.-])"
_STATE = r"(?::? state \w{1,8})?"  # BTRFS since 5.18
# Devices that may hold a user's image: its damage is the user's.
_USERS_DEVICES = re.compile(r"(?:loop|nbd|zram|ram|fd|sr)\d")
_BLOCK = r"(?:(?:blk_update_request|print_req_error|end_request): )?"  # the printing function, in older kernels

FILESYSTEM = PatternFamily(
    check="filesystem",
    kind=ComponentKind.HOST,
    users_devices=_USERS_DEVICES,
    words=(
        "EXT4-fs",
        "JBD2",
        "XFS (",
        "BTRFS",
        "I/O error",
        "medium error",
        "Aborting journal",
        "nfs: server",
        "lockd: server",
        "Lustre",
        "md/raid",
        "Disk failure on",
    ),
    forms=(
        make_pattern(
            "read_only",
            Severity.ERROR,
            "a file system became read-only",
            rf"(?:EXT4-fs|BTRFS info|BTRFS:? error) \((?:device )?{_DEVICE}{_STATE}\): (?:Remounting filesystem read-only|forced readonly)",
        ),
        make_pattern(
            "shut_down",
            Severity.ERROR,
            "a file system was shut down",
            rf"XFS \({_DEVICE}\): (?:(?:[Mm]etadata I/O [Ee]rror|[Ll]og I/O [Ee]rror|I/O [Ee]rror|User initiated shutdown|[Cc]orruption of |Device failure)"
            r"[^\n]{0,160}?[Ss]hutting down filesystem|[Ff]ilesystem has been shut down|log I/O error)",
        ),
        make_pattern(
            "corrupt",
            Severity.ERROR,
            "a file system is damaged",
            rf"EXT4-fs error \(device {_DEVICE}\): (?:.{{0,80}}?(?:[Cc]orruption|checksum|bad )|\w{{1,60}}:\d)",
        ),
        make_pattern(
            "corrupt",
            Severity.ERROR,
            "a file system is damaged",
            rf"XFS \({_DEVICE}\): (?:[Mm]etadata (?:I/O error|[Cc]orruption|CRC error)|[Cc]orruption (?:detected|warning|of))",
        ),
        make_pattern(
            "btrfs",
            Severity.WARNING,
            "a file system had an error",
            rf"BTRFS:? error \(device {_DEVICE}{_STATE}\)(?: in|:) (?P<error>[^\n]{{1,100}})",
        ),
        make_pattern(
            "journal",
            Severity.ERROR,
            "a file system aborted its journal",
            r"Aborting journal on device (?P<place>[\w.:-]{1,60}?)(?:-\d{1,3})?\.",
        ),
        make_pattern(
            "medium",
            Severity.ERROR,
            "a disk cannot read its own data",
            rf"{_BLOCK}critical medium error, dev {_DEVICE},",
        ),
        make_pattern(
            "io_error", Severity.WARNING, "a disk had an error", rf"{_BLOCK}I/O error, dev {_DEVICE}, sector \d"
        ),
        make_pattern(
            "io_error",
            Severity.WARNING,
            "a disk had an error",
            rf"Buffer I/O error on dev(?:ice)? {_DEVICE}, (?:logical )?block",
        ),
        make_pattern(
            "superblock",
            Severity.ERROR,
            "a file system cannot write its superblock",
            rf"EXT4-fs \({_DEVICE}\): (?:I/O error while writing superblock|previous I/O error to superblock detected)",
        ),
        make_pattern(
            "superblock",
            Severity.ERROR,
            "a file system cannot write its superblock",
            r"JBD2: (?:I/O error|Error -?\d{1,5} detected) when updating journal superblock for (?P<place>[\w.:-]{1,60}?)(?:-\d{1,3})?\.",
        ),
        make_pattern(
            "raid",
            Severity.WARNING,
            "a disk of an array has failed",
            rf"(?:md/raid\d{{0,3}}:{_DEVICE}: |md: )Disk failure on (?P<disk>[\w.-]{{1,40}}), disabling device",
        ),
        make_pattern(
            "array_failed",
            Severity.ERROR,
            "an array without redundancy lost a disk and has failed",
            rf"md/(?:raid0|linear):?{_DEVICE}: Disk failure on (?P<disk>[\w.-]{{1,40}}) detected, failing array",
        ),
        make_pattern(
            "server_silent",
            Severity.WARNING,
            "a file server does not answer",
            rf"(?:nfs|lockd): server {_DEVICE} (?:not responding|timed out)",
        ),
        make_pattern(
            "server_silent",
            Severity.INFO,
            "the file server answers",
            rf"(?:nfs|lockd): server {_DEVICE} OK",
            clears=True,
        ),
        make_pattern(
            "evicted",
            Severity.WARNING,
            "a file server evicted this node",
            r"LustreError: [0-9a-f]{1,4}-[0-9a-f]{1,3}: [\w.-]{1,160}: This client was evicted by (?P<place>[\w.-]{1,60})",
        ),
        make_pattern(
            "connection_lost",
            Severity.WARNING,
            "the connection to a file server was lost",
            r"Lustre: (?P<place>[\w.-]{1,60}?)(?:-[0-9a-f]{16})?: Connection to .{1,100}? was lost",
        ),
        make_pattern(
            "connection_lost",
            Severity.INFO,
            "the file server is back",
            r"Lustre: (?P<place>[\w.-]{1,60}?)(?:-[0-9a-f]{16})?: Connection restored",
            clears=True,
        ),
    ),
)
