"""Ships a job's own Python code to the executors of a standing Spark."""

from __future__ import annotations

import hashlib
import os
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.errors import SpecError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

#: A larger folder is refused: it holds more than code (an environment, data beside the program …).
MAX_BYTES = 64 << 20


def ship(session: SparkSession, python_path: Sequence[str], folder: Path) -> None:
    """Ships the code on the job's Python path to Spark. ``folder`` holds the zips. Raises SpecError if a
    folder is too large to be a package."""
    for entry in python_path:
        path = Path(entry)
        if path.is_dir():
            archive = zipped(path, folder)
            if archive is not None:
                session.addArtifacts(str(archive), pyfile=True)
        elif path.suffix in (".zip", ".egg", ".py"):
            session.addArtifacts(str(path), pyfile=True)


def zipped(source: Path, folder: Path) -> Path | None:
    """Makes a zip of the folder's Python files, named by its content; None if there are none."""
    files = sorted(p for p in _python_files(source))
    if not files:
        return None
    size = sum(p.stat().st_size for p in files)
    if size > MAX_BYTES:
        raise SpecError(
            "the job's Python folder is too large to be sent to Spark",
            expected=f"at most {MAX_BYTES >> 20} MiB of .py files",
            got=f"{size >> 20} MiB in {len(files)} files",
            where=str(source),
            remedy="put the job's code into a folder of its own",
        )
    digest = hashlib.sha256()
    for path in files:
        digest.update(str(path.relative_to(source)).encode() + b"\0" + path.read_bytes())
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"job-{digest.hexdigest()[:16]}.zip"
    if not target.exists():
        partial = target.with_suffix(".partial")
        with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED) as archive:
            for path in files:
                archive.write(path, path.relative_to(source))
        partial.replace(target)
    return target


def _python_files(source: Path) -> list[Path]:
    found = []
    for root, folders, names in os.walk(source):
        # Environments and caches beside a program do not belong to the program.
        folders[:] = [f for f in folders if not f.startswith(".") and f != "__pycache__"
                      and not (Path(root) / f / "pyvenv.cfg").exists()]  # fmt: skip
        found += [Path(root) / name for name in names if name.endswith(".py")]
    return found
