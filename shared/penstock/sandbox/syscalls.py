"""The system calls that a slot is refused, and the filter that refuses them.

A list of what is refused, not of what is allowed: users' libraries need calls that nobody can foresee. Whoever knows
the kernel finds here what opens its larger doors: other processes' memory, mounts and namespaces, programs in the kernel,
keys, and the interfaces that get around a filter.
"""

from __future__ import annotations

import errno
import os
from typing import Any

from penstock.errors import ExternalError, SpecError

#: Refused with EPERM.
REFUSED = (
    # other processes
    "ptrace", "process_vm_readv", "process_vm_writev", "process_madvise", "process_mrelease", "pidfd_getfd", "kcmp",
    # mounts, roots and namespaces
    "mount", "umount", "umount2", "move_mount", "open_tree", "fsopen", "fsconfig", "fsmount", "fspick", "mount_setattr",
    "pivot_root", "chroot", "unshare", "setns",
    # files by handle, and the file system's quotas and accounting
    "name_to_handle_at", "open_by_handle_at", "fanotify_init", "quotactl", "quotactl_fd", "swapon", "swapoff", "acct",
    # code and measurement in the kernel
    "bpf", "perf_event_open", "userfaultfd", "init_module", "finit_module", "delete_module", "create_module", "query_module",
    "kexec_load", "kexec_file_load", "lookup_dcookie",
    # io_uring performs calls that no filter sees
    "io_uring_setup", "io_uring_enter", "io_uring_register",
    # keys
    "keyctl", "add_key", "request_key",
    # the machine
    "reboot", "sethostname", "setdomainname", "settimeofday", "clock_settime", "clock_adjtime", "adjtimex", "stime", "syslog",
    "vhangup", "ioperm", "iopl", "modify_ldt", "vm86", "vm86old", "personality", "uselib", "sysfs", "ustat", "_sysctl", "nfsservctl",
    "move_pages",
)  # fmt: skip
#: Flags of ``clone`` that make namespaces: mount, cgroup, host name, IPC, user, process ids, network.
_NAMESPACES = (0x00020000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000)
#: Families of sockets: of the kernel's own keys and ciphers, of raw packets, of the host below a virtual machine.
_SOCKET_FAMILIES = {"AF_KEY": 15, "AF_PACKET": 17, "AF_ALG": 38, "AF_VSOCK": 40}
#: Puts characters into the input of a terminal.
_TIOCSTI = 0x5412


def filter_program() -> bytes:
    """The filter of this machine's architecture, as ``kernel.set_filter`` takes it. Raises SpecError if the package
    pyseccomp is missing, ExternalError if its library is or cannot make the filter."""
    library = _library()
    refused = library.ERRNO(errno.EPERM)
    made = library.SyscallFilter(library.ALLOW)
    # Calls of another architecture (32 bits) have other numbers: the filter could not tell what they are.
    made.set_attr(library.Attr.ACT_BADARCH, refused)
    for name in REFUSED:
        # A number that this architecture has not is negative there: then the call does not exist.
        if library.resolve_syscall(library.Arch.NATIVE, name) >= 0:
            made.add_rule(refused, name)
    for flag in _NAMESPACES:
        made.add_rule(refused, "clone", library.Arg(0, library.MASKED_EQ, flag, flag))
    # Its flags lie in memory, which no filter reads. The C library then uses ``clone``.
    made.add_rule(library.ERRNO(errno.ENOSYS), "clone3")
    for family in _SOCKET_FAMILIES.values():
        made.add_rule(refused, "socket", library.Arg(0, library.EQ, family))
    made.add_rule(refused, "ioctl", library.Arg(1, library.MASKED_EQ, 0xFFFFFFFF, _TIOCSTI))
    descriptor = os.memfd_create("penstock-seccomp")
    try:
        with os.fdopen(descriptor, "r+b") as file:
            made.export_bpf(file)
            file.seek(0)
            return file.read()
    except OSError as err:
        raise ExternalError(
            f"libseccomp cannot make the filter of system calls: {err.strerror}",
            where="taskmanager.sandbox.seccomp",
            remedy="install libseccomp 2.5 or newer, or set the option to false",
        ) from err


def _library() -> Any:
    try:
        import pyseccomp
    except ModuleNotFoundError:
        raise SpecError(
            "the filter of system calls needs the package pyseccomp",
            where="configuration key 'taskmanager.sandbox.seccomp'",
            remedy="pip install 'penstock[sandbox]', or set the option to false",
        ) from None
    except RuntimeError as err:
        raise ExternalError(
            "the filter of system calls needs the library libseccomp",
            got=str(err),
            where="taskmanager.sandbox.seccomp",
            remedy="install it (Debian: apt-get install libseccomp2), or set the option to false",
        ) from err
    return pyseccomp
