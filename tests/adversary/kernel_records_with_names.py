"""Records in which the kernel prints what a user chose, as data: for tests that choose hostile names.

`{comm}` is a task's name (15 bytes), `{free}` a name of up to 255 bytes. Recorded on Linux 6.18 where the text says so,
else constructed from the format string in the file of the kernel's source that is named.
"""

from __future__ import annotations

from typing import NamedTuple


class Printed(NamedTuple):
    """One format: where it stands in the kernel's source, and the record's text."""

    source: str
    record: str


PRINTED = (
    # recorded: an unprivileged process on Linux 6.18
    Printed(
        "mm/oom_kill.c dump_header (recorded)",
        "{comm} invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0",
    ),
    Printed(
        "lib/dump_stack.c (recorded)", "CPU: 0 UID: 65534 PID: 21060 Comm: {comm} Not tainted 6.18.44 #1 PREEMPT(none) "
    ),
    Printed("mm/memcontrol-v1.c (recorded)", "Memory cgroup stats for {free}:"),
    Printed(
        "mm/oom_kill.c dump_task (recorded)",
        "[  21060] 65534 21060     6261     5468     3778     1690         0    94208        0             0 {comm}",
    ),
    Printed(
        "mm/oom_kill.c dump_oom_victim (recorded)",
        "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset={free},mems_allowed=0,oom_memcg={free},task_memcg={free},"
        "task={comm},pid=21060,uid=65534",
    ),
    Printed(
        "mm/oom_kill.c __oom_kill_process (recorded)",
        "Memory cgroup out of memory: Killed process 21060 ({comm}) total-vm:25044kB, anon-rss:15112kB, file-rss:6760kB, "
        "shmem-rss:0kB, UID:65534 pgtables:92kB oom_score_adj:0",
    ),
    Printed(
        "kernel/futex/waitwake.c (recorded)", "futex_wake_op: {comm} tries to shift op by -1; fix this program"
    ),
    Printed(
        "mm/mremap.c (recorded)",
        "{comm} (20367): attempted to duplicate a private mapping with mremap.  This is not supported.",
    ),
    Printed("net/socket.c (recorded)", "{comm} uses obsolete (PF_INET,SOCK_PACKET)"),
    Printed(
        "mm/mmap.c (recorded)",
        "mmap: {comm} (20467) uses deprecated remap_file_pages() syscall. See Documentation/mm/remap_file_pages.rst.",
    ),
    Printed(
        "arch/x86/entry/vsyscall (recorded)",
        "{comm}[20568] misaligned vsyscall (exploit attempt or buggy program) -- look up the vsyscall kernel parameter if you "
        "need a workaround ip:ffffffffff600001 cs:33 sp:7ffdc39bb1c8 ax:0 si:7f7a79490a26 di:7f7a79490a20",
    ),
    Printed(
        "arch/x86/entry/vsyscall (recorded)",
        "{comm}[20618] vsyscall read attempt denied -- look up the vsyscall kernel parameter if you need a workaround "
        "ip:7f8064570b00 cs:33 sp:7ffc4325dcf8 ax:7f8063fde1e0 si:ffffffffff600000 di:7f8063fde1e0",
    ),
    Printed(
        "arch/x86/mm/fault.c (recorded)",
        "{comm}[20668]: segfault at 8 ip 00007f1dcef74219 sp 00007ffd22e98758 error 4 in {free}[156219,7f1dcee44000+156000] "
        "likely on CPU 1 (core 1, socket 0)",
    ),
    # constructed: other formats, architectures and older kernels
    Printed("arch/x86/kernel/traps.c", "traps: {comm}[7] trap int3 ip:401000 sp:7ffd00000000 error:0 in {free}[401000+1000]"),
    Printed("arch/x86/kernel/traps.c", "traps: {comm}[7] general protection fault ip:4 sp:7 error:0 in {free}[4+1]"),
    Printed("arch/x86/kernel/signal.c", "{comm}[7] bad frame in rt_sigreturn frame:00007f ip:4 sp:7 orax:f in {free}[4+1]"),
    Printed("arch/arm64/kernel/traps.c", "{comm}[7]: unhandled exception: DABT (lower EL), ESR 0x92000005, in {free}[4+1]"),
    Printed("arch/powerpc/kernel/traps.c", "{comm}[7]: bad frame in setup_rt_frame: 00007f nip 4 lr 7 in {free}[4+1]"),
    Printed("arch/x86/mm/fault.c, of a pause before the file", " in {free}[401000+1000]"),
    Printed("arch/x86/mm/pat (older kernels)", "{comm}:7 freeing invalid memtype [mem 0x00000000-0x00000fff]"),
    Printed("arch/x86/mm/pat", "x86/PAT: {comm}:7 conflicting memory types 0-1000 write-back<->uncached-minus"),
    Printed("kernel/signal.c", "{comm}: 7: potentially unexpected fatal signal 11."),
    Printed("kernel/signal.c (older kernels)", "{comm}/7: potentially unexpected fatal signal 11."),
    Printed("mm/page_alloc.c warn_alloc", "{comm}: page allocation failure: order:4, mode:0xcc0(GFP_KERNEL), nodemask=(null),cpuset={free},mems_allowed=0"),
    Printed("mm/vmalloc.c, mm/page_alloc.c", "{comm}: vmalloc error: size 4096, page order 0, mode:0xcc0(GFP_KERNEL),cpuset={free},mems_allowed=0"),
    Printed("kernel/cpuset.c before 5.0", "{comm} cpuset={free} mems_allowed=0-1"),
    Printed("mm/oom_kill.c before 3.0", "{comm} invoked oom-killer: gfp_mask=0xd0, order=0, oom_adj=0"),
    Printed("fs/drop_caches.c", "{comm} (7): drop_caches: 3"),
    Printed("mm/mmap.c", "mmap: {comm} (7): VmData 268435456 exceed data ulimit 1048576. Update limits or use boot option ignore_rlimit_data."),
    Printed("mm/memory-failure.c", "Memory failure: 0x3b2c5f: Sending SIGBUS to {comm}:7 due to hardware memory corruption"),
    Printed("mm/memory.c print_bad_pte", "BUG: Bad page map in process {comm}  pte:800000003b2c5f067 pmd:1a2b3c067"),
    Printed("mm/memory.c print_bad_pte", "file:{free} fault:filemap_fault mmap:ext4_file_mmap read_folio:ext4_read_folio"),
    Printed("kernel/hung_task.c", "INFO: task {comm}:7 blocked for more than 120 seconds."),
    Printed("kernel/hung_task.c", "INFO: task {comm}:7 is blocked on a mutex likely owned by task {comm}:8."),
    Printed("kernel/sched/core.c", "task:{comm} state:D stack:0     pid:7     tgid:7     ppid:1      flags:0x00004000"),
    Printed("kernel/watchdog.c", "watchdog: BUG: soft lockup - CPU#3 stuck for 22s! [{comm}:7]"),
    Printed("kernel/exit.c", "note: {comm}[7] exited with irqs disabled"),
    Printed("kernel/ptrace.c, security/yama", 'ptrace attach of "{free}"[7] was attempted by "{free}"[8]'),
    Printed("fs/coredump.c", "Pid 7({comm}) over core_pattern"),
    Printed("fs/coredump.c", "coredump: 7({comm}): over coredump resource limit, skipping core dump"),
    Printed("fs/exec.c", "process '{free}' started with executable stack"),
    Printed("kernel/sysctl.c", "warning: process `{comm}' used the deprecated sysctl system call with 1.2."),
    Printed("kernel/capability.c", "capability: warning: `{comm}' uses 32-bit capabilities (legacy support in use)"),
    Printed("kernel/cgroup/pids.c", "cgroup: fork rejected by pids controller in /{free}"),
    Printed("mm/memcontrol.c", "Tasks in /{free} are going to be killed due to memory.oom.group set"),
    Printed("mm/memcontrol.c before 4.19", "Task in /{free} killed as a result of limit of /{free}"),
    Printed("net/ipv4/tcp_input.c", "TCP: {comm}(7): Application bug, race in MSG_PEEK"),
    Printed("drivers/scsi/sg.c", "program {comm} is using a deprecated SCSI ioctl, please convert it to SG_IO"),
    Printed("fs/fs_parser.c", "tmpfs: Unknown parameter '{free}'"),
    Printed("fs/overlayfs", 'overlayfs: unrecognized mount option "{free}" or missing value'),
    Printed("fs/overlayfs", "overlayfs: failed to resolve '{free}': -2"),
    Printed("fs/ext4/super.c", "EXT4-fs error (device sda1): ext4_find_entry:1684: inode #2: comm {comm}: reading directory lblock 0"),
    Printed("fs/ext4/super.c", "EXT4-fs error (device sda1): ext4_read_inline:77: inode #2: block 9: comm {comm}: path {free}: bad entry"),
    Printed("fs/ext4/super.c", 'EXT4-fs (sda1): Unrecognized mount option "{free}" or missing value'),
    Printed("fs/btrfs/volumes.c", "BTRFS: device label {free} devid 1 transid 5 /dev/sdb scanned by {comm} (7)"),
    Printed("fs/nfs/client.c", "nfs: server '{free}' not responding, still trying"),
    Printed("drivers/usb/core/hub.c", "usb 1-1: Product: {free}"),
    Printed("drivers/hid", "hid-generic 0003:046D:C31C.0001: input: USB HID v1.10 Keyboard [{free}] on usb-0000:00:14.0-1"),
    Printed("drivers/input/input.c", "input: {free} as /devices/pci0000:00/input/input9"),
    Printed("drivers/scsi/scsi.c", "scsi 6:0:0:0: Direct-Access     {free} PQ: 0 ANSI: 6"),
    Printed("kernel/audit.c", 'audit: type=1400 audit(1.2:3): apparmor="DENIED" name="{free}" comm="{comm}"'),
    Printed("kernel/audit.c", "audit: type=1326 audit(1.2:3): auid=1000 pid=7 comm={comm} exe={free} sig=31"),
    Printed("net/core/dev.c netdev_printk, drivers/net/bonding", "{comm}: unable to remove nonexistent ARP target 10.0.0.1"),
    Printed("net/core/dev.c netdev_printk", "{comm}: failed to set features 0x00000000; error -5"),
    Printed("net/core/dev.c netdev_printk", "{comm}: Error -22 while setting the link up"),
    Printed("open-gpu-kernel-modules", "NVRM: API mismatch: the client '{comm}' (pid 11) has the version 570.86.15, but this kernel module has the version 560.35.03."),
    Printed("open-gpu-kernel-modules", "NVRM: Xid (PCI:0000:13:00): 31, pid=7, name={comm}, Ch 00000002, intr 00000000. MMU Fault"),
    Printed("open-gpu-kernel-modules", "nvidia-modeset: detected gpu 00000600 open in nvkms_ioctl_common, pid 4560 ({comm})"),
)  # fmt: skip
