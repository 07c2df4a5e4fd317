"""Procedures of CALL for Delta tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.connectors.procedures import Parameter, Procedure
from penstock.errors import ConnectorError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def _done(options: Mapping[str, str], what: str, call: Callable[[], Any]) -> Any:
    from deltalake.exceptions import DeltaError

    try:
        return call()
    except (DeltaError, OSError, ValueError) as err:
        raise ConnectorError(
            f"{what} of a Delta table failed",
            got=str(err),
            where=f"connector 'delta', '{options['table-path']}'",
            remedy="another commit may have come between: call it again",
        ) from err


def _compact(options: Mapping[str, str], given: Mapping[str, Any]) -> tuple[Any, ...]:
    from penstock.connectors.delta.table import open_delta

    table = open_delta(options)
    size = given.get("target_file_size")
    done = _done(options, "compaction", lambda: table.optimize.compact(target_size=size))
    return done["numFilesRemoved"], done["numFilesAdded"]


def _vacuum(options: Mapping[str, str], given: Mapping[str, Any]) -> tuple[Any, ...]:
    from penstock.connectors.delta.table import open_delta

    table = open_delta(options)
    files = _done(
        options,
        "VACUUM",
        lambda: table.vacuum(given.get("retention_hours"), dry_run=given.get("dry_run", False)),
    )
    return (len(files),)


def _restore(options: Mapping[str, str], given: Mapping[str, Any]) -> tuple[Any, ...]:
    from penstock.connectors.delta.table import open_delta

    table = open_delta(options)
    before = table.version()
    _done(options, "restoring a version", lambda: table.restore(given["version"]))
    return before, open_delta(options).version()


PROCEDURES = (
    Procedure("compact", (Parameter("target_file_size", "whole number"),), ("files_removed", "files_added"), _compact),
    Procedure(
        "vacuum", (Parameter("retention_hours", "whole number"), Parameter("dry_run", "boolean")), ("files_deleted",), _vacuum
    ),
    Procedure(
        "restore", (Parameter("version", "whole number", required=True),), ("version_before", "version_after"), _restore
    ),
)  # fmt: skip
