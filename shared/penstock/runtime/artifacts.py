"""Loads, in the slot, the job's function table and the folders that go on ``sys.path``."""

from __future__ import annotations

import asyncio
import functools
import importlib
import operator
import sys
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.errors import FunctionError, InternalError, nearest
from penstock.functions.function_table import FunctionTable
from penstock.jobgraph import CLASSES
from penstock.jobgraph.dependencies import DEPENDENCIES, decode
from penstock.jobgraph.module_aliases import BEFORE
from penstock.runtime.dependencies import use
from penstock.runtime.pandas_probe import use_pandas_if_imported
from penstock.types import pickling

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from penstock.jobgraph import FunctionArtifact, JobGraph
    from penstock.ports import Store


class JobFunctions(FunctionTable):
    """The functions of a job graph, with everything that another process on this machine needs to load them:
    ``artifacts`` hold their own bytes, and ``python_path`` has local folders and zips only."""

    def __init__(
        self,
        load: Callable[[str], Any],
        job_config: Mapping[str, str],
        *,
        artifacts: dict[str, FunctionArtifact],
        python_path: tuple[str, ...],
    ) -> None:
        super().__init__(load, job_config)
        self.artifacts = artifacts
        self.python_path = python_path


async def load_functions(
    graph: JobGraph, store: Store | None, folder: Path, built: Path | None = None
) -> JobFunctions:
    """Loads the graph's functions. Everything remote is fetched now; a function is unpickled at its first
    use. Entries of ``python_path`` that are object keys become zips in ``folder``.
    Packages that came with the job are installed in ``built``, else in ``folder``."""
    python_path = [await _local(entry, store, folder) for entry in graph.python_path]
    for entry in reversed(python_path):
        _put_on_path(entry)
    data: dict[str, bytes] = {}
    for name, artifact in graph.functions.items():
        if artifact.key is not None:
            if store is None:
                raise InternalError(f"function '{name}' lies in an object store that the slot has not")
            data[name] = await store.get(artifact.key)
        elif artifact.data is not None:
            data[name] = artifact.data
    if DEPENDENCIES in data:
        needed = decode(data.pop(DEPENDENCIES))
        # In a thread: pip takes seconds, and the slot goes on to answer.
        await asyncio.to_thread(use, needed, folder, built)

    @functools.cache
    def load(name: str) -> Any:
        artifact = graph.functions.get(name)
        if artifact is None:
            raise InternalError(
                f"the job has no function '{name}'",
                expected=", ".join(sorted(graph.functions)) or "an entry of its function table",
                remedy=nearest(name, graph.functions),
            )
        if name != CLASSES and not name.startswith(BEFORE):
            pickling.classes.load()
        try:
            loaded = _load(artifact, data.get(name))
        except Exception as err:
            raise FunctionError(
                f"function '{name}' cannot be loaded: {type(err).__name__}: {err}",
                where=f"function '{name}'",
                remedy="its module and everything it imports must be there in the cluster",
            ) from err
        use_pandas_if_imported()
        return loaded

    for name in graph.functions:
        if name.startswith(BEFORE):
            load(name)()
    if CLASSES in graph.functions:
        pickling.classes.use(lambda: load(CLASSES))
    artifacts = {
        name: msgspec.structs.replace(a, data=data.get(name), key=None) for name, a in graph.functions.items()
    }
    return JobFunctions(load, graph.config, artifacts=artifacts, python_path=tuple(python_path))


def _load(artifact: FunctionArtifact, data: bytes | None) -> Any:
    if artifact.module is not None:
        module = importlib.import_module(artifact.module)
        return operator.attrgetter(artifact.qualname or "")(module)
    import cloudpickle

    if data is None:
        raise InternalError("a function artifact without data, key or module")
    return cloudpickle.loads(data)


async def _local(entry: str, store: Store | None, folder: Path) -> str:
    if entry.startswith("/"):
        return entry
    if store is None:
        raise InternalError(f"python path entry '{entry}' is an object key, but there is no store")
    path = folder / "python" / entry.rsplit("/", 1)[-1]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(await store.get(entry))
    return str(path)


def _put_on_path(path: str) -> None:
    if path not in sys.path:
        sys.path.insert(0, path)
