"""The calls of Linux that confine the process that makes them. Each raises OSError."""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from pathlib import Path

_libc = ctypes.CDLL(None, use_errno=True)

_PR_CAPBSET_READ, _PR_CAPBSET_DROP, _PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS = 23, 24, 22, 38
_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL = 47, 4
_SECCOMP_MODE_FILTER = 2
_CLONE_NEWNS, _CLONE_NEWUSER = 0x00020000, 0x10000000
_MS_BIND, _MS_REC, _MS_PRIVATE = 0x1000, 0x4000, 1 << 18
_AT_FDCWD, _AT_RECURSIVE = -100, 0x8000
_MOUNT_ATTR_RDONLY = 1
#: The same number on all architectures: it is younger than the common table.
_SYS_MOUNT_SETATTR = 442
_CAPABILITY_VERSION_3 = 0x20080522
_CAP_SETPCAP = 8
#: struct sock_filter: code, jump if true, jump if false, operand.
_INSTRUCTION_BYTES = 8


class _Program(ctypes.Structure):
    """struct sock_fprog."""

    _fields_ = [("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p)]


def _checked(result: int, path: str | None = None) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path)
    return result


def _prctl(option: int, *arguments: int) -> int:
    given = [ctypes.c_ulong(argument) for argument in (*arguments, 0, 0, 0, 0)[:4]]
    return _checked(_libc.prctl(ctypes.c_int(option), *given))


def is_linux() -> bool:
    """Whether the calls of this module exist here."""
    return sys.platform == "linux"


def set_no_new_privileges() -> None:
    """Neither this process nor what it starts can gain privileges by executing a program."""
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)


def drop_capabilities() -> None:
    """Gives up all capabilities. Those of the bounding set, too, if this process may; a process that has
    ``no_new_privs`` could not gain them by a program anyway."""
    if int(status("CapEff"), 16) >> _CAP_SETPCAP & 1:
        for capability in range(64):
            held = _libc.prctl(_PR_CAPBSET_READ, ctypes.c_ulong(capability), 0, 0, 0)
            if held < 0:
                break  # behind the last one that this kernel has
            if held:
                _prctl(_PR_CAPBSET_DROP, capability)
    _prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL)
    header = struct.pack("Ii", _CAPABILITY_VERSION_3, 0)
    _checked(_libc.capset(header, bytes(24)))


def enter_namespaces() -> None:
    """Moves this process, which must have one thread, into a user and a mount namespace of its own. User and group
    stay the same; all others are unknown there."""
    uid, gid = os.getuid(), os.getgid()
    _checked(_libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNS))
    # Without this the kernel lets no unprivileged process map its group.
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
    Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
    # What is mounted outside from now on would otherwise appear here, and writable.
    _checked(_libc.mount(None, b"/", None, ctypes.c_ulong(_MS_REC | _MS_PRIVATE), None), "/")


def bind(source: str, target: str) -> None:
    """Mounts ``source``, a folder or file, at ``target``, with what is mounted below it."""
    flags = ctypes.c_ulong(_MS_BIND | _MS_REC)
    _checked(_libc.mount(os.fsencode(source), os.fsencode(target), None, flags, None), target)


def set_read_only(path: str, read_only: bool) -> None:
    """Makes the mount at ``path`` and all below it read-only, or writable again."""
    attributes = struct.pack(
        "QQQQ", *((_MOUNT_ATTR_RDONLY, 0) if read_only else (0, _MOUNT_ATTR_RDONLY)), 0, 0
    )
    _checked(
        _libc.syscall(
            ctypes.c_long(_SYS_MOUNT_SETATTR),
            ctypes.c_int(_AT_FDCWD),
            os.fsencode(path),
            ctypes.c_uint(_AT_RECURSIVE),
            attributes,
            ctypes.c_size_t(len(attributes)),
        ),
        path,
    )


def set_filter(program: bytes) -> None:
    """Installs a filter of system calls. The process must have ``no_new_privs``."""
    made = _Program(len(program) // _INSTRUCTION_BYTES, program)
    _checked(
        _libc.prctl(
            ctypes.c_int(_PR_SET_SECCOMP), ctypes.c_ulong(_SECCOMP_MODE_FILTER), ctypes.byref(made), 0, 0
        )
    )


def status(name: str) -> str:
    """A field of ``/proc/self/status``, such as ``CapEff`` or ``Seccomp``; "" if this kernel has none of that name."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return line.partition(":")[2].strip()
    return ""
