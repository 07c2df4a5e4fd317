"""Reads and writes compiled plans: files on this machine, objects of a store, or a savepoint's folder."""

from __future__ import annotations

import asyncio
import os
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.connectors.filesystem.paths import local_path, working_folder
from penstock.errors import ExternalError, PenstockError, SnapshotError, SpecError
from penstock.plan.compiled import PLAN_NAME
from penstock.store.open import open_store
from penstock.store.routed import split_url

if TYPE_CHECKING:
    from collections.abc import Coroutine

T = TypeVar("T")


@dataclass(frozen=True)
class PlanFile:
    """The file of a compiled plan. ``path``: its name in the statement;
    ``located``: its absolute path or URL."""

    path: str
    located: str

    @property
    def _local(self) -> Path | None:
        path = local_path(self.located)
        return None if path is None else Path(path)

    def exists(self) -> bool:
        """Whether the file exists."""
        local = self._local
        return local.exists() if local is not None else waited(_get(self.located)) is not None

    def read(self) -> bytes:
        """The plan's bytes. The file may also be a savepoint's folder or manifest. Raises SpecError if there
        is no such file, and SnapshotError if the savepoint holds no plan."""
        local = self._local
        return self._read_object() if local is None else self._read_local(local)

    def write(self, data: bytes) -> None:
        """Writes the whole file or nothing, and makes its folders. The options of tables may hold passwords,
        so only the owner can read a file on this machine."""
        local = self._local
        if local is None:
            waited(_put(self.located, data))
            return
        try:
            local.parent.mkdir(parents=True, exist_ok=True)
            descriptor, temporary = tempfile.mkstemp(prefix=f".{local.name}-", dir=local.parent)
            try:
                with os.fdopen(descriptor, "wb") as file:
                    file.write(data)
                os.replace(temporary, local)
            except BaseException:
                os.unlink(temporary)
                raise
        except OSError as err:
            raise ExternalError(
                f"the plan cannot be written: {err.strerror}",
                expected="a file in a folder that may be written to",
                got=str(local),
                where=f"plan '{self.path}'",
                remedy="name another file",
            ) from err

    def _read_local(self, local: Path) -> bytes:
        folder = local.parent if local.name == "manifest" and local.is_file() else local
        try:
            if not folder.is_dir():
                return local.read_bytes()
            plan = folder / PLAN_NAME
            if not plan.is_file():
                raise self._without_plan(is_savepoint=(folder / "manifest").is_file())
            return plan.read_bytes()
        except OSError as err:
            raise self._missing(f"{local}: {err.strerror}") from err

    def _read_object(self) -> bytes:
        url = self.located.rstrip("/")
        folder = url.removesuffix("/manifest")
        if folder == url and (data := waited(_get(url))) is not None:
            return data
        if (data := waited(_get(f"{folder}/{PLAN_NAME}"))) is not None:
            return data
        if waited(_get(f"{folder}/manifest")) is not None:
            raise self._without_plan(is_savepoint=True)
        raise self._missing(f"nothing at {url}")

    def _missing(self, got: str) -> SpecError:
        return SpecError(
            "there is no such compiled plan",
            expected="a file that COMPILE PLAN wrote, or a savepoint's folder",
            got=got,
            where=f"plan '{self.path}'",
            remedy="check the path: a relative one is meant from the folder of the script",
        )

    def _without_plan(self, *, is_savepoint: bool) -> PenstockError:
        if is_savepoint:
            return SnapshotError(
                "the savepoint holds no plan",
                expected=f"an object '{PLAN_NAME}' beside its manifest",
                got="a savepoint of a version before it, or a checkpoint: those hold state only",
                where=f"plan '{self.path}'",
                remedy="start the job's program from it (-s)",
            )
        return SpecError(
            "a folder is no compiled plan",
            expected="a file that COMPILE PLAN wrote, or a savepoint's folder",
            got=f"a folder without '{PLAN_NAME}'",
            where=f"plan '{self.path}'",
        )


def plan_file(path: str, folder: str | None, where: str) -> PlanFile:
    """The file of a plan. ``folder``: the folder of relative paths; None for the working folder. Raises
    SpecError for a relative path if no folder is known, as in a cluster's planner."""
    local = local_path(path)
    if local is None:
        return PlanFile(path, path)
    if not path.strip():
        raise SpecError("the plan's path is empty", expected="a path or URL in quotes", where=where)
    expanded = os.path.expanduser(local)
    if os.path.isabs(expanded):
        return PlanFile(path, expanded)
    working = working_folder.get()
    if folder is None and working is None:
        raise SpecError(
            f"'{path}' is a relative path",
            expected="an absolute path or a URL: this job is planned in the cluster, which does not know your "
            "folder",
            got=repr(path),
            where=where,
            remedy="write the whole path, or submit with 'penstock sql -f' or 'penstock run'",
        )
    base = folder if folder is not None or working is None else working()
    return PlanFile(path, os.path.abspath(os.path.join(base or "", expanded)))


async def _get(url: str) -> bytes | None:
    """The object's bytes; None if it does not exist."""
    store, key = split_url(url)
    try:
        return await open_store(store).get(key)
    except KeyError:
        return None


async def _put(url: str, data: bytes) -> None:
    store, key = split_url(url)
    await open_store(store).put(key, data)


def waited(call: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine, which runs in another thread, because this one
    may have a running event loop."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, call).result()
