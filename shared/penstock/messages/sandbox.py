"""What confines a process that runs users' code. The task manager decides it once, when it starts; each process
enters it before it loads a module of a user's."""

from __future__ import annotations

import msgspec


class Sandbox(msgspec.Struct, frozen=True, kw_only=True):
    """The measures, whole: a process needs neither configuration nor library to enter them.

    ``seccomp``: a program of the kernel's packet filter, as bytes; empty: none. ``private``: the process's own folder,
    in which its temporary files and its shared memory lie. ``writable``: the folders and files that stay writable
    beside it when the root is read-only. ``inaccessible``: those that are hidden. ``limits``: name of a resource
    (``RLIMIT_…``, as the module ``resource`` has it) → its limit.
    """

    no_new_privileges: bool = False
    drop_capabilities: bool = False
    read_only_root: bool = False
    seccomp: bytes = b""
    private: str = ""
    writable: tuple[str, ...] = ()
    inaccessible: tuple[str, ...] = ()
    limits: dict[str, int] = {}

    def at(self, private: str, *writable: str) -> Sandbox:
        """The same for one process: with its own folder and what else it must write."""
        return msgspec.structs.replace(self, private=private, writable=(*self.writable, *writable))
