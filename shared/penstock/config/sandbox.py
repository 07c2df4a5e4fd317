"""Options of the sandbox of slots: what users' code on a task manager is kept from. docs/securing.md explains them."""

from __future__ import annotations

from penstock.config.option import define
from penstock.config.values import parse_bool, parse_bytes, parse_int

SANDBOX_NO_NEW_PRIVILEGES = define(
    "taskmanager.sandbox.no-new-privileges",
    False,
    parse_bool,
    "Processes that run users' code cannot gain privileges by programs such as `sudo` (`no_new_privs` of Linux). The next three "
    "options include it ([sandbox](securing.md#sandbox-of-slots)).",
    scope="cluster",
)
SANDBOX_DROP_CAPABILITIES = define(
    "taskmanager.sandbox.drop-capabilities",
    False,
    parse_bool,
    "They give up all capabilities of Linux, also where the task manager runs as root.",
    scope="cluster",
)
SANDBOX_READ_ONLY_ROOT = define(
    "taskmanager.sandbox.read-only-root",
    False,
    parse_bool,
    "They see the file system read-only, in user and mount namespaces of their own, except their own folders, the object store's where it "
    "is a folder, and `taskmanager.sandbox.writable-paths`. Includes `drop-capabilities`; needs Linux 5.12.",
    scope="cluster",
)
SANDBOX_SECCOMP = define(
    "taskmanager.sandbox.seccomp",
    False,
    parse_bool,
    "A filter refuses them system calls that no job needs: ptrace, mount, bpf, keyctl, kexec, namespaces, … (package `penstock[sandbox]` "
    "and the library libseccomp).",
    scope="cluster",
)
SANDBOX_WRITABLE = define(
    "taskmanager.sandbox.writable-paths",
    "",
    str,
    "Folders and files, separated by commas, that stay writable with `read-only-root`: those of file sinks, for example.",
    scope="cluster",
)
SANDBOX_INACCESSIBLE = define(
    "taskmanager.sandbox.inaccessible-paths",
    "",
    str,
    "Folders and files, separated by commas, that are hidden with `read-only-root`: the services' configuration, keys, sockets of "
    "other programs (`/run/docker.sock`).",
    scope="cluster",
)
SANDBOX_OPEN_FILES = define(
    "taskmanager.sandbox.limits.open-files",
    0,
    parse_int,
    "Descriptors that one such process may have open. 0: the task manager's own limit.",
    scope="cluster",
    least=0,
)
SANDBOX_FILE_SIZE = define(
    "taskmanager.sandbox.limits.file-size",
    0,
    parse_bytes,
    "Bytes of the largest file that such a process may write. 0: no limit.",
    scope="cluster",
    least=0,
)
SANDBOX_ADDRESS_SPACE = define(
    "taskmanager.sandbox.limits.address-space",
    0,
    parse_bytes,
    "Bytes of virtual memory of one slot process; far more than it uses, so choose it generously. Spark's processes have none. 0: no limit.",
    scope="cluster",
    least=0,
)
