"""Below which folders the code of submitted jobs, and their savepoints, may lie. Pure but for the resolution of links in paths."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING
from urllib.parse import unquote

from penstock import config as conf
from penstock_services.common.http import ForbiddenError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_FILE = "file://"


class AllowedFolders:
    """The folders of ``security.submission.roots``; without any, everything is allowed."""

    def __init__(self, config: Mapping[str, str]) -> None:
        roots = [part.strip() for part in conf.SUBMISSION_ROOTS.read(config).split(",")]
        self._roots = tuple(_resolved(root) for root in roots if root)
        own = conf.SAVEPOINT_DIR.read(config)
        self._of_savepoints = (*self._roots, *([_resolved(own)] if own and _is_place(own) else []))

    def check_code(self, paths: Iterable[str], where: str) -> None:
        """Raises ForbiddenError for a folder or archive of code that lies below no root."""
        self._check(paths, self._roots, "code from this folder is not allowed", "a folder or archive", where)

    def check_savepoints(self, folder: str | None, where: str) -> None:
        """Raises ForbiddenError for a folder of savepoints that lies below no root, and not below the cluster's own
        ``execution.checkpointing.savepoint-dir``. A key lies in the cluster's object store, and is always allowed."""
        places = [folder] if folder and _is_place(folder) else []
        self._check(
            places, self._of_savepoints, "savepoints in this folder are not allowed", "a folder", where
        )

    def _check(
        self, paths: Iterable[str], allowed: tuple[str, ...], message: str, what: str, where: str
    ) -> None:
        if not self._roots:
            return
        for path in paths:
            real = _resolved(path)
            if not any(_below(root, real) for root in allowed):
                raise ForbiddenError(
                    message,
                    expected=f"{what} below " + ", ".join(allowed),
                    got=repr(path)[:200],
                    where=f"{where} ({conf.SUBMISSION_ROOTS.key})",
                )


def _is_place(path: str) -> bool:
    """Whether the path is a URL or a path of this machine; else it is a key of the cluster's object store."""
    return "://" in path or path.startswith("/")


def _resolved(path: str) -> str:
    """The folder without links in it; a URL of another kind than ``file`` as it is."""
    if path.startswith(_FILE):
        path = unquote(path.removeprefix(_FILE))
    return path.rstrip("/") if "://" in path else os.path.realpath(path)


def _below(root: str, place: str) -> bool:
    if "://" in root or "://" in place:
        return ".." not in place.split("/") and f"{place}/".startswith(f"{root}/")
    return os.path.commonpath((root, place)) == root
