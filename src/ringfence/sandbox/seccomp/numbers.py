"""Lists the numbers of the system calls that the rules name, and which numbers are assigned at all.

Source: Linux 6.19, `arch/x86/entry/syscalls/syscall_64.tbl` and, for aarch64, `scripts/syscall.tbl` (the generic
64-bit table); compared with the uapi headers of Linux 6.1. Read 2026-11.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

Machine = Literal["x86_64", "aarch64"]

_CALLS = """
open 2 -   ioctl 16 29   socket 41 198   socketpair 53 199   clone 56 220   mkdir 83 -   creat 85 -
chmod 90 -   fchmod 91 52   ptrace 101 117   syslog 103 116   mknod 133 -   uselib 134 -
personality 135 92   sysfs 139 -   vhangup 153 58   modify_ldt 154 -   pivot_root 155 41   _sysctl 156 -
adjtimex 159 171   chroot 161 51   acct 163 89   settimeofday 164 170   mount 165 40   umount2 166 39
swapon 167 224   swapoff 168 225   reboot 169 142   sethostname 170 161   setdomainname 171 162
iopl 172 -   ioperm 173 -   create_module 174 -   init_module 175 105   delete_module 176 106
get_kernel_syms 177 -   query_module 178 -   quotactl 179 60   nfsservctl 180 42   lookup_dcookie 212 18
clock_settime 227 112   kexec_load 246 104   add_key 248 217   request_key 249 218   keyctl 250 219
migrate_pages 256 238   openat 257 56   mkdirat 258 34   mknodat 259 33   fchmodat 268 53
unshare 272 97   move_pages 279 239   perf_event_open 298 241   fanotify_init 300 262
open_by_handle_at 304 265   clock_adjtime 305 266   setns 308 268   process_vm_readv 310 270
process_vm_writev 311 271   kcmp 312 272   finit_module 313 273   renameat2 316 276
kexec_file_load 320 294   bpf 321 280   userfaultfd 323 282   io_uring_setup 425 425
io_uring_enter 426 426   io_uring_register 427 427   open_tree 428 428   move_mount 429 429
fsopen 430 430   fsconfig 431 431   fsmount 432 432   fspick 433 433   clone3 435 435   openat2 437 437
pidfd_getfd 438 438   process_madvise 440 440   mount_setattr 442 442   quotactl_fd 443 443
fchmodat2 452 452   lsm_set_self_attr 460 460   open_tree_attr 467 467   listns 470 470
"""
"""Name, number on x86_64, number on aarch64; `-` where a machine has no such call. From 424 on they are the same."""


def _numbers(column: int) -> Mapping[str, int]:
    words = _CALLS.split()
    rows = zip(words[::3], words[column::3], strict=True)
    return MappingProxyType({name: int(number) for name, number in rows if number != "-"})


NUMBERS: Mapping[Machine, Mapping[str, int]] = {"x86_64": _numbers(1), "aarch64": _numbers(2)}
"""Name to number, per machine."""

ASSIGNED: Mapping[Machine, tuple[tuple[int, int], ...]] = {
    "x86_64": ((0, 336), (424, 470)),
    "aarch64": ((0, 243), (260, 294), (424, 470)),
}
"""First and last of each range of assigned numbers, up to `listns` of Linux 6.19."""

AUDIT_ARCH: Mapping[Machine, int] = {"x86_64": 0xC000_003E, "aarch64": 0xC000_00B7}
"""The machine's number in a filter's input (`include/uapi/linux/audit.h`)."""
