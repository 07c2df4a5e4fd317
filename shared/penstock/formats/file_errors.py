"""The errors of file readers: a file has changed, is damaged, or differs from the table's declaration."""

from __future__ import annotations

from penstock.errors import ConnectorError


def shrunk(path: str, position: str, found: str) -> ConnectorError:
    """The error for a file that no longer reaches to the position that is needed."""
    return ConnectorError(
        f"'{path}' no longer has the position that is needed",
        expected=f"{position}, as it was when the file was found",
        got=found,
        where=path,
        remedy="restore the file, or start the job anew without its state",
    )


def damaged(path: str, kind: str, err: Exception) -> Exception:
    """The error if the middle of a file cannot be read; ``err`` itself if the storage failed, not the file."""
    if isinstance(err, OSError) and err.errno is not None:
        return err
    return ConnectorError(
        f"'{path}' is damaged",
        expected=f"a whole {kind} file",
        got=str(err),
        where=path,
        remedy="write or copy the file anew, or move it out of 'path'",
    )


def not_of_kind(path: str, kind: str, expected: str, err: Exception) -> ConnectorError:
    """The error for a file that has another format."""
    return ConnectorError(
        f"'{path}' is no {kind} file", expected=expected, got=str(err), remedy="check 'format' and 'path'"
    )
