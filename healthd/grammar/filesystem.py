"""Disks and file systems, local and over the network (kernel block, fs/ext4, fs/xfs, fs/btrfs, fs/nfs, md; Lustre)."""

from __future__ import annotations

from healthd.grammar.form import Family, form
from vocabulary.finding import Severity
from vocabulary.identity import ComponentKind

_DEVICE = r"(?P<place>[\w.:-]{1,60})"

FILESYSTEM = Family(
    check="filesystem",
    kind=ComponentKind.HOST,
    words=(
        "EXT4-fs",
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
        form(
            "read_only",
            Severity.ERROR,
            "a file system went read-only",
            rf"(?:EXT4-fs|BTRFS info|BTRFS:? error) \((?:device )?{_DEVICE}(?: state \w{{1,8}})?\).{{0,120}}?(?:Remounting filesystem read-only|forced readonly)",
        ),
        form(
            "shut_down",
            Severity.ERROR,
            "a file system was shut down",
            rf"XFS \({_DEVICE}\): .{{0,160}}?(?:[Ss]hutting down filesystem|has been shut down|log I/O error)",
        ),
        form(
            "corrupt",
            Severity.ERROR,
            "a file system is damaged",
            rf"(?:EXT4-fs error \(device |XFS \(){_DEVICE}\): (?:.{{0,80}}?(?:[Cc]orruption|metadata I/O error|checksum|bad )|\w{{1,60}}:\d)",
        ),
        form(
            "btrfs",
            Severity.WARNING,
            "a file system met an error",
            rf"BTRFS:? error \(device {_DEVICE}\)(?: in|:) (?P<error>[^\n]{{1,100}})",
        ),
        form(
            "journal",
            Severity.ERROR,
            "a file system gave up its journal",
            r"Aborting journal on device (?P<place>[\w.:-]{1,60}?)(?:-\d{1,3})?\.",
        ),
        form("medium", Severity.ERROR, "a disk cannot read its own data", rf"critical medium error, dev {_DEVICE}"),
        form("io_error", Severity.WARNING, "a disk met an error", rf"I/O error,? (?:on )?dev {_DEVICE},"),
        form(
            "raid",
            Severity.WARNING,
            "a disk of an array has failed",
            rf"(?:md/raid\S{{0,4}}:{_DEVICE}: |md: )?Disk failure on (?P<disk>[\w.-]{{1,40}}), disabling device",
        ),
        form(
            "server_silent",
            Severity.WARNING,
            "a file server does not answer",
            rf"(?:nfs|lockd): server {_DEVICE} (?:not responding|timed out)",
        ),
        form(
            "server_silent",
            Severity.INFO,
            "the file server answers",
            rf"(?:nfs|lockd): server {_DEVICE} OK",
            clears=True,
        ),
        form(
            "evicted",
            Severity.WARNING,
            "a file server threw this node out",
            r"LustreError: .{0,160}?This client was evicted by (?P<place>[\w.-]{1,60})",
        ),
        form(
            "connection_lost",
            Severity.WARNING,
            "the connection to a file server was lost",
            r"Lustre: (?P<place>[\w.-]{1,60}?)(?:-[0-9a-f]{16})?: Connection to .{1,100}? was lost",
        ),
        form(
            "connection_lost",
            Severity.INFO,
            "the file server is back",
            r"Lustre: (?P<place>[\w.-]{1,60}?)(?:-[0-9a-f]{16})?: Connection restored",
            clears=True,
        ),
    ),
)
