"""A process enters its sandbox: it does to itself what cannot be undone. It must have one thread."""

from __future__ import annotations

import os
import resource
import stat
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.errors import ExternalError, InternalError
from penstock.sandbox import kernel

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.messages.sandbox import Sandbox

#: Measure → (what it needs, what to do where the kernel refuses).
_NEEDS = {
    "no-new-privileges": ("prctl(PR_SET_NO_NEW_PRIVS)", "a Linux of 3.5 or newer has it"),
    "drop-capabilities": ("prctl and capset", "allow a process to give up its own capabilities"),
    "read-only-root": (
        "user and mount namespaces, and mount_setattr",
        "Linux 5.12 or newer; user.max_user_namespaces above 0; where they exist, kernel.unprivileged_userns_clone = 1 "
        "and kernel.apparmor_restrict_unprivileged_userns = 0; in a container a seccomp profile that allows "
        "unshare, mount and mount_setattr",
    ),
    "seccomp": ("prctl(PR_SET_SECCOMP)", "a Linux that was built with CONFIG_SECCOMP_FILTER"),
    "limits": ("setrlimit", "choose a limit that is not above the task manager's own (ulimit -H)"),
}
_SHARED_MEMORY = Path("/dev/shm")


def enter(sandbox: Sandbox) -> None:
    """Applies all measures. Raises ExternalError, which names the measure and what to do, if the kernel refuses one:
    then this process must not load users' code."""
    for name, limit in sandbox.limits.items():
        with _measure("limits"):
            resource.setrlimit(getattr(resource, name), (limit, limit))
    if sandbox.private:
        _use_own_folder(Path(sandbox.private))
    if sandbox.no_new_privileges:
        with _measure("no-new-privileges"):
            kernel.set_no_new_privileges()
    if sandbox.read_only_root:
        _check_descriptors()
        with _measure("read-only-root"):
            _enter_read_only_root(sandbox)
    if sandbox.drop_capabilities:
        with _measure("drop-capabilities"):
            kernel.drop_capabilities()
    if sandbox.seccomp:
        # Last, because it refuses what the others need.
        with _measure("seccomp"):
            kernel.set_filter(sandbox.seccomp)


def _use_own_folder(private: Path) -> None:
    temporary = private / "tmp"
    temporary.mkdir(parents=True, exist_ok=True)
    os.environ["TMPDIR"] = str(temporary)
    tempfile.tempdir = None  # what this process has chosen before


def _enter_read_only_root(sandbox: Sandbox) -> None:
    own = Path(sandbox.private)
    own.mkdir(parents=True, exist_ok=True)
    here = Path.cwd()
    kernel.enter_namespaces()
    writable = [str(own), *sandbox.writable]
    for path in writable:
        kernel.bind(path, path)
    if _SHARED_MEMORY.is_dir():
        memory = own / "shm"
        memory.mkdir(exist_ok=True)
        kernel.bind(str(memory), str(_SHARED_MEMORY))
        writable.append(str(_SHARED_MEMORY))
    nothing = own / "nothing"
    nothing.mkdir(exist_ok=True)
    for path in sandbox.inaccessible:
        kernel.bind(str(nothing) if Path(path).is_dir() else os.devnull, path)
    kernel.set_read_only("/", True)
    for path in writable:
        kernel.set_read_only(path, False)
    for path in sandbox.inaccessible:
        kernel.set_read_only(path, True)
    # The working folder is still the mount below the one that was made over it.
    os.chdir(here)


def _check_descriptors() -> None:
    """An open folder, or what it holds, lies on the mounts outside, which stay writable."""
    for name in os.listdir("/proc/self/fd"):
        try:
            mode = os.fstat(int(name)).st_mode
        except OSError:
            continue  # that of the list itself
        if stat.S_ISDIR(mode):
            raise InternalError(
                "a process with an open folder cannot enter a sandbox: the folder would lead out of it",
                got=os.readlink(f"/proc/self/fd/{name}"),
                where="taskmanager.sandbox.read-only-root",
                remedy="please report it",
            )


@contextmanager
def _measure(name: str) -> Iterator[None]:
    needs, remedy = _NEEDS[name]
    try:
        yield
    except (OSError, ValueError) as err:
        said = f"{err.strerror} ({err.filename})" if isinstance(err, OSError) and err.filename else str(err)
        raise ExternalError(
            f"this machine does not allow a measure of the sandbox: {name}",
            expected=needs,
            got=said,
            where=f"taskmanager.sandbox.{name}",
            remedy=f"{remedy}; or leave the option out",
        ) from err
