"""The sandbox that a configuration asks for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from penstock import config as conf
from penstock.errors import PenstockError, SpecError
from penstock.messages.sandbox import Sandbox
from penstock.sandbox import kernel
from penstock.sandbox.probe import check
from penstock.sandbox.syscalls import filter_program

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from penstock.config import ConfigOption

_PREFIX = "taskmanager.sandbox."
_LIMITS = {
    "RLIMIT_NOFILE": conf.SANDBOX_OPEN_FILES,
    "RLIMIT_FSIZE": conf.SANDBOX_FILE_SIZE,
    "RLIMIT_AS": conf.SANDBOX_ADDRESS_SPACE,
}


def sandbox_of(config: Mapping[str, Any]) -> Sandbox | None:
    """The sandbox of a task manager's processes; None if no measure is asked for. Raises SpecError for paths that do not
    exist or need another option, ExternalError if the filter of system calls cannot be made."""
    read_only = conf.SANDBOX_READ_ONLY_ROOT.read(config)
    seccomp = conf.SANDBOX_SECCOMP.read(config)
    drop = read_only or conf.SANDBOX_DROP_CAPABILITIES.read(config)
    no_new = drop or seccomp or conf.SANDBOX_NO_NEW_PRIVILEGES.read(config)
    limits = {name: limit for name, option in _LIMITS.items() if (limit := option.read(config))}
    writable, inaccessible = (
        _paths(option, config, read_only) for option in (conf.SANDBOX_WRITABLE, conf.SANDBOX_INACCESSIBLE)
    )
    if not (no_new or limits):
        return None
    if not kernel.is_linux():
        raise SpecError(
            "the sandbox of slots is made of calls of Linux",
            where="configuration keys 'taskmanager.sandbox.…'",
            remedy="leave them out on this system",
        )
    stores: tuple[str, ...] = (conf.STORAGE_URL.read(config), conf.SAVEPOINT_DIR.read(config))
    return Sandbox(
        no_new_privileges=no_new,
        drop_capabilities=drop,
        read_only_root=read_only,
        seccomp=filter_program() if seccomp else b"",
        writable=(*writable, *(_made(url) for url in stores if url.startswith("file:"))) if read_only else (),
        inaccessible=inaccessible,
        # What a crash would write to the disk holds the data and the secrets of a job.
        limits={**limits, "RLIMIT_CORE": 0},
    )


def sandbox_of_planners(config: Mapping[str, Any]) -> Sandbox | None:
    """The sandbox of planners; None unless it is asked for. Raises as ``sandbox_of``, and SpecError if it would be empty."""
    if not conf.SUBMISSION_SANDBOX.read(config):
        return None
    # They write no state.
    of_slots = sandbox_of(
        {k: v for k, v in config.items() if k not in (conf.STORAGE_URL.key, conf.SAVEPOINT_DIR.key)}
    )
    if of_slots is None:
        raise SpecError(
            "a sandbox of planners without a measure",
            expected="a measure of taskmanager.sandbox.… in the dispatcher's configuration",
            where=f"configuration key '{conf.SUBMISSION_SANDBOX.key}'",
        )
    return of_slots


def refused_measures(try_one: Callable[[Sandbox], None] = check) -> dict[str, PenstockError]:
    """Measure → why it does not work on this machine. ``try_one``: what tries a sandbox, in a process of its own."""
    refused = {}
    options = {
        option.key.removeprefix(_PREFIX): option.key
        for option in (
            conf.SANDBOX_SECCOMP,
            conf.SANDBOX_READ_ONLY_ROOT,
            conf.SANDBOX_DROP_CAPABILITIES,
            conf.SANDBOX_NO_NEW_PRIVILEGES,
        )
    }
    try:
        if (everything := sandbox_of(dict.fromkeys(options.values(), "true"))) is not None:
            try_one(everything)
    except PenstockError:
        for measure, key in options.items():
            try:
                if (one := sandbox_of({key: "true"})) is not None:
                    try_one(one)
            except PenstockError as err:
                refused[measure] = err
    return refused


def _paths(option: ConfigOption[str], config: Mapping[str, Any], usable: bool) -> tuple[str, ...]:
    paths = [text.strip() for text in option.read(config).split(",") if text.strip()]
    for path in paths:
        if not usable:
            raise _refused(option, path, "needs 'taskmanager.sandbox.read-only-root: true'")
        if not Path(path).is_absolute():
            raise _refused(option, path, "is no absolute path")
        if not Path(path).exists():
            raise _refused(option, path, "does not exist on this machine")
    return tuple(paths)


def _refused(option: ConfigOption[str], path: str, why: str) -> SpecError:
    return SpecError(
        f"a path of the sandbox {why}",
        expected="absolute paths of files or folders that exist",
        got=repr(path),
        where=f"configuration key '{option.key}'",
        remedy="make it, or take it out",
    )


def _made(url: str) -> str:
    """The folder of an object store, which is made here because a sandboxed process could not."""
    folder = Path(unquote(urlsplit(url).path))
    folder.mkdir(parents=True, exist_ok=True)
    return str(folder)
