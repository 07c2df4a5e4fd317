"""A wheel that a test builds, of a package that is not installed."""

from __future__ import annotations

import zipfile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

NAME = "penstock_test_package"


def make_wheel(folder: Path, version: str, code: str) -> Path:
    """The wheel of the package ``NAME`` whose only module has ``code``, in ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    wheel = folder / f"{NAME}-{version}-py3-none-any.whl"
    info = f"{NAME}-{version}.dist-info"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(f"{NAME}.py", code)
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {NAME}\nVersion: {version}\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return wheel
