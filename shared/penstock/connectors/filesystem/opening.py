"""Opens the file system that a path or URL names."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from penstock.connectors.filesystem.object_files import ObjectFiles
from penstock.connectors.filesystem.paths import Files, LocalFiles, local_path

if TYPE_CHECKING:
    from collections.abc import Mapping


def open_files(path: str, options: Mapping[str, str], *, impatient: bool = False) -> tuple[Files, str]:
    """The ``Files`` port for ``path``, and the path in the form that the port takes. ``impatient``: see ``open_obstore``."""
    local = local_path(path)
    if local is not None:
        return LocalFiles(), os.path.abspath(os.path.expanduser(local))
    settings = {k.removeprefix("fs."): v for k, v in options.items() if k.startswith("fs.")}
    return ObjectFiles(path, settings, impatient=impatient), path
