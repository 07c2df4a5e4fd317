"""The package ``acme`` of docs/extending: its code is what the pages show."""

from __future__ import annotations

import re
import sys
from pathlib import Path

PAGES = Path(__file__).parents[2] / "docs" / "extending"
_BLOCK = re.compile(r"^```python\n# (\S+\.py)( \(continued\))?\n(.*?)^```", re.MULTILINE | re.DOTALL)
_TOML = re.compile(r"^```toml\n# pyproject\.toml\n(.*?)^```", re.MULTILINE | re.DOTALL)


def files() -> dict[str, str]:
    """Path → text of every file that the pages show."""
    found: dict[str, str] = {}
    for page in sorted(PAGES.glob("*.md")):
        for path, _, text in _BLOCK.findall(page.read_text()):
            found[path] = found.get(path, "") + text
    return found


def install(folder: Path) -> Path:
    """What ``pip install`` of the package would put into ``folder``: its modules and its entry points."""
    import tomllib

    for path, text in files().items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
        if target.is_relative_to(folder / "acme"):
            (target.parent / "__init__.py").touch()
    project = tomllib.loads(_TOML.findall((PAGES / "README.md").read_text())[0])["project"]
    declare(folder, project["name"], project["version"], project["entry-points"])
    return folder


def declare(folder: Path, name: str, version: str, groups: dict[str, dict[str, str]]) -> None:
    """Metadata of an installed package with these entry points."""
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    lines = [
        line
        for group, entries in groups.items()
        for line in (f"[{group}]", *(f"{key} = {value}" for key, value in entries.items()), "")
    ]
    (info / "entry_points.txt").write_text("\n".join(lines))


def forget() -> None:
    """The next test finds none of it."""
    for name in [m for m in sys.modules if m == "acme" or m.startswith("acme.")]:
        del sys.modules[name]
