"""The job's function table and the folders put on ``sys.path``, loaded in the slot."""

from __future__ import annotations

import functools
import importlib
import operator
import sys
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.errors import FunctionError, InternalError, nearest
from penstock.jobgraph import CLASSES
from penstock.runtime.pandas_probe import use_pandas_if_imported
from penstock.types import pickling

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from penstock.jobgraph import FunctionArtifact, JobGraph
    from penstock.ports import Store


async def load_functions(graph: JobGraph, store: Store | None, folder: Path) -> Callable[[str], Any]:
    """A loader ``name → object`` over the graph's artifacts; everything remote is
    fetched now. Entries of ``python_path`` that are object keys become zips in ``folder``.
    """
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

    @functools.cache
    def load(name: str) -> Any:
        artifact = graph.functions.get(name)
        if artifact is None:
            raise InternalError(
                f"the job has no function '{name}'",
                expected=", ".join(sorted(graph.functions)) or "an entry of its function table",
                remedy=nearest(name, graph.functions),
            )
        if name != CLASSES:
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

    if CLASSES in graph.functions:
        pickling.classes.use(lambda: load(CLASSES))
    load.job_config = graph.config  # type: ignore[attr-defined]
    # For a process beside this one: everything is here.
    load.python_path = tuple(python_path)  # type: ignore[attr-defined]
    load.artifacts = {  # type: ignore[attr-defined]
        name: msgspec.structs.replace(a, data=data.get(name), key=None) for name, a in graph.functions.items()
    }
    return load


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


def table_of(functions: Mapping[str, Any]) -> Callable[[str], Any]:
    """A loader over objects at hand, for tests."""
    return functions.__getitem__
