"""Files below an Iceberg table's location that nothing names: what crashed writers, lost races and expired snapshots leave."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.connectors.iceberg.catalog import reached
from penstock.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyiceberg.table import Table

#: Files that are younger may belong to a checkpoint that is not committed yet: three days, as Iceberg's own action.
KEPT_MS = 3 * 24 * 3_600_000


def remove_orphans(table: Table, older_than_ms: int, *, dry_run: bool) -> int:
    """Delete the files below the table's location that were written before ``older_than_ms`` and that no snapshot and no
    metadata file names; returns their number. ``dry_run``: only count them."""
    where = ".".join(table.name())
    named: set[str] = reached(lambda: {_plain(path) for path in _named(table)}, where)
    found = reached(lambda: list(_stored(table, older_than_ms)), where)
    orphans = [path for path in found if _plain(path) not in named]
    for path in () if dry_run else orphans:
        reached(partial(table.io.delete, path), where)
    return len(orphans)


def _plain(path: str) -> str:
    """The path without its scheme: a file may be named with or without one."""
    return path.partition("://")[2] or path


def _named(table: Table) -> Iterator[str]:
    """All files that the table's metadata names."""
    metadata = table.metadata
    yield table.metadata_location
    yield from (entry.metadata_file for entry in metadata.metadata_log)
    yield from (statistics.statistics_path for statistics in metadata.statistics)
    yield from (statistics.statistics_path for statistics in metadata.partition_statistics)
    manifests: dict[str, Any] = {}
    for snapshot in table.snapshots():
        yield snapshot.manifest_list
        manifests |= {manifest.manifest_path: manifest for manifest in snapshot.manifests(table.io)}
    for path, manifest in manifests.items():
        yield path
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
            yield entry.data_file.file_path


def _stored(table: Table, older_than_ms: int) -> Iterator[str]:
    """The files below the table's location that were written before that time, as the table's metadata would name them."""
    from pyarrow import fs
    from pyiceberg.io.pyarrow import PyArrowFileIO

    location = table.location().rstrip("/")
    if not isinstance(table.io, PyArrowFileIO):
        raise UnsupportedError(
            "listing the files of a table", expected="files that pyarrow reads", got=type(table.io).__name__
        )
    scheme, netloc, root = PyArrowFileIO.parse_location(location, table.io.properties)
    files = table.io.fs_by_scheme(scheme, netloc)
    for info in files.get_file_info(fs.FileSelector(root, recursive=True, allow_not_found=True)):
        if info.type == fs.FileType.File and info.mtime_ns // 1_000_000 < older_than_ms:
            yield location + info.path[len(root.rstrip("/")) :]
