"""Compaction: small files of a partition are written into larger ones, in commits that lose no other commit.

The commit demands that the table is as it was read. After another commit it is tried again, as long as the small files
are still there with the same deletes; what was written is used again. A compaction whose outcome is unknown shows in the
table: its files are there, or they can no longer come.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.connectors.lakehouse.files import OpenFiles
from penstock.connectors.lakehouse.schema import fitted
from penstock.connectors.lakehouse.table import LostRaceError, MissingFileError
from penstock.errors import ExternalError, PenstockError
from penstock.log_events import EventLog

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.connectors.iceberg.table import IcebergLake
    from penstock.connectors.lakehouse.table import DataFile, StoredFile

_log = EventLog("penstock.connectors.iceberg")

#: A file below this part of the wanted size is small.
_SMALL = 0.75
_MOST_TRIES = 10
_PAUSE_S = 0.05
#: What the snapshot of a compaction says of itself.
_PROPERTIES = {"penstock.compaction": "true"}


@dataclass(frozen=True, slots=True)
class Compaction:
    """The options of compaction. ``every_commits``: so many commits of a writer lie between two; ``least_files``: so many
    small files of a partition are worth it."""

    target_bytes: int
    every_commits: int = 10
    least_files: int = 5


@dataclass(frozen=True, slots=True)
class Compacted:
    """The number of files that left the table, and that came."""

    removed: int = 0
    added: int = 0


def bins(files: Sequence[StoredFile], how: Compaction) -> list[list[StoredFile]]:
    """The files to be written into one another: small ones of one partition, up to the wanted size. A file from which rows
    are deleted counts as small."""
    parts: dict[str, list[StoredFile]] = {}
    for file in files:
        if file.size < how.target_bytes * _SMALL or file.version:
            parts.setdefault(file.partition, []).append(file)
    found: list[list[StoredFile]] = []
    for part in parts.values():
        current: list[StoredFile] = []
        size = 0
        for file in part:
            if current and size + file.size > how.target_bytes:
                found.append(current)
                current, size = [], 0
            current.append(file)
            size += file.size
        found.append(current)
    return [group for group in found if len(group) >= how.least_files]


def compact(
    table: IcebergLake, how: Compaction, name: Callable[[], str], *, strict: bool = False
) -> Compacted:
    """Compact the table's small files. An error is logged, if not ``strict``: the table stays right, and the next round
    tries again."""
    removed = added = 0
    try:
        table.read_again()
        for group in bins(table.live(), how):
            files = _written(table, how, group, name)
            if _committed(table, group, files):
                removed, added = removed + len(group), added + len(files)
    except (PenstockError, MissingFileError) as err:
        if strict:
            raise
        _log.warning("iceberg_compaction_failed", table=table.where, error=err)
    if removed:
        _log.info("iceberg_compacted", table=table.where, removed=removed, added=added)
    return Compacted(removed, added)


def _written(
    table: IcebergLake, how: Compaction, group: Sequence[StoredFile], name: Callable[[], str]
) -> list[DataFile]:
    out = OpenFiles(table, name, how.target_bytes, 1)
    for file in group:
        for rows in table.rows(file, table.row_schema.names):
            out.write(fitted(rows, table.row_schema))
    return out.cut(0)


def _committed(table: IcebergLake, group: Sequence[StoredFile], files: Sequence[DataFile]) -> bool:
    """Whether the files are in the place of the group. If they certainly are not, they are deleted."""
    wanted = {(file.path, file.version) for file in group}
    unknown = False
    for number in range(_MOST_TRIES):
        if number:
            time.sleep(_PAUSE_S * number * (0.5 + random.random()))
            table.read_again()
        live = table.live()
        if {file.path for file in live} & {file.path for file in files}:
            return True  # a try whose outcome was unknown
        if not wanted <= {(file.path, file.version) for file in live}:
            break
        try:
            table.rewrite(_PROPERTIES, files, group)
            return True
        except LostRaceError as err:
            _log.debug("iceberg_compaction_race_lost", table=table.where, error=err)
        except ExternalError as err:
            # The commit may have arrived, or may still arrive.
            unknown = True
            _log.debug("iceberg_compaction_race_lost", table=table.where, error=err)
    if not unknown:
        for file in files:
            table.delete(file.path)
    return False
