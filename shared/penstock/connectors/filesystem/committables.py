"""What the filesystem sink keeps in checkpoints: files to be shown, files that grow, and partitions that are not committed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from penstock.connectors.filesystem.paths import join
from penstock.errors import ConnectorError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from penstock.connectors.filesystem.paths import Files

PENDING_FOLDER = "_pending"
#: Parts of files that a completed checkpoint left growing.
GROWING_FOLDER = "_growing"
_COPIED_BYTES = 1 << 20


class PendingFile(msgspec.Struct, frozen=True):
    """A committable: show ``pending``, and the files of ``more`` behind it, as the one file ``final``."""

    checkpoint_id: int
    pending: str
    final: str
    more: tuple[str, ...] = ()


class GrowingFile(msgspec.Struct, frozen=True, tag_field="kind", tag="growing"):
    """A file of the partition ``folder`` that is not shown yet: its parts, one for each checkpoint that it outlived,
    their bytes, and when its first part was begun and its last part was written (ms since the epoch)."""

    folder: str
    parts: tuple[str, ...]
    size: int
    created_ms: int
    written_ms: int


class OpenPartition(msgspec.Struct, frozen=True, tag_field="kind", tag="partition"):
    """A partition that has rows and is not committed. ``created_ms``: when its first row came."""

    folder: str
    created_ms: int


Committable = PendingFile | GrowingFile | OpenPartition
_TAGGED = GrowingFile | OpenPartition


def encode(item: Committable) -> bytes:
    """A committable as bytes for a checkpoint."""
    return msgspec.json.encode(item)


def decoded(items: Sequence[bytes]) -> list[Committable]:
    """The committables of a checkpoint. A pending file has no tag, as earlier releases wrote it."""
    out: list[Committable] = []
    for item in items:
        fields = msgspec.json.decode(item)
        kind: type = PendingFile
        out.append(msgspec.convert(fields, _TAGGED if "kind" in fields else kind))
    return out


def kept_path(part: str) -> str:
    """The place of a growing file's part once its checkpoint is complete."""
    folder, _, name = part.rpartition("/")
    return join(folder.rpartition("/")[0], GROWING_FOLDER, name)


def keep(files: Files, parts: Iterable[str]) -> None:
    """Move parts of growing files out of the folder that is swept. The call may be repeated."""
    for part in parts:
        if not files.rename(part, kept_path(part)) and not files.exists(kept_path(part)):
            raise gone(part, kept_path(part))


def show(files: Files, item: PendingFile, joined: str) -> None:
    """Make a pending file visible. The call may be repeated. ``joined``: a new hidden file, in which several parts are
    joined before it gets its name."""
    if not item.more:
        shown = files.rename(item.pending, item.final) or files.rename(kept_path(item.pending), item.final)
        if not shown and not files.exists(item.final):
            raise gone(item.pending, item.final)
        return
    parts = (item.pending, *item.more)
    if not files.exists(item.final):
        _join(files, parts, joined, item.final)
    for part in parts:
        files.delete(part)
        files.delete(kept_path(part))


def _join(files: Files, parts: Sequence[str], joined: str, final: str) -> None:
    out = files.open_output(joined)
    try:
        for part in parts:
            place = kept_path(part) if files.exists(kept_path(part)) else part
            if place == part and not files.exists(part):
                raise gone(part, final)
            source = files.open_input(place)
            try:
                while data := source.read(_COPIED_BYTES):
                    out.write(data)
            finally:
                source.close()
    finally:
        out.close()
    files.sync(joined)
    if not files.rename(joined, final) and not files.exists(final):
        raise gone(joined, final)


def gone(pending: str, final: str) -> ConnectorError:
    """The error for a hidden file that is absent although its target does not exist."""
    error = ConnectorError(
        "output that was ready to be committed is gone",
        expected=f"the pending file {pending}",
        got="neither it nor its target: somebody else removed it while the job ran",
        where=final,
        remedy="restore the file, or begin the job anew with an empty folder; nothing but this job may delete "
        "in _pending and _growing",
    )
    error.retryable = True  # the file may come back: a folder that was not mounted
    return error


def sweep(files: Files, folder: str, prefix: str, attempt: int) -> None:
    """Delete the pending files in ``folder`` whose names begin with ``prefix`` and an earlier attempt."""
    for info in files.list(folder):
        name = info.path.rsplit("/", 1)[1]
        if name.startswith(prefix) and int(name.removeprefix(prefix).split("-")[0]) < attempt:
            files.delete(info.path)
