"""The dashboard's build: it is the sources' build, loads nothing from elsewhere, and is served with a policy."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

from penstock_services.dispatcher.web_pages import STATIC

WEB = STATIC.parent / "web"
#: Beside these, everything below ``src`` is a source.
ROOT_SOURCES = ("index.html", "package-lock.json", "package.json", "tsconfig.json", "vite.config.ts")


def sources_digest() -> str:
    """As ``vite.config.ts`` computes it."""
    paths = [p.relative_to(WEB).as_posix() for p in (WEB / "src").rglob("*") if p.is_file()]
    digest = hashlib.sha256()
    for path in sorted([*paths, *ROOT_SOURCES]):
        digest.update(f"{path} {hashlib.sha256((WEB / path).read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest()


def test_the_build_is_the_build_of_the_sources() -> None:
    built = json.loads((STATIC / "build.json").read_text())["sources"]
    assert built == sources_digest(), "run: make web"


def test_the_page_loads_its_own_files_only() -> None:
    page = (STATIC / "index.html").read_text()
    loaded = re.findall(r'(?:src|href)="([^"]+)"', page)
    assert loaded
    for path in loaded:
        assert path.startswith("data:") or (STATIC / path).is_file(), path


def test_the_lock_names_no_registry() -> None:
    packages = json.loads((WEB / "package-lock.json").read_text())["packages"]
    assert all("integrity" in found for name, found in packages.items() if name)
    assert not [name for name, found in packages.items() if "resolved" in found]


def test_modules_are_short() -> None:
    long = {
        path.name: lines
        for path in (WEB / "src").rglob("*.ts*")
        if path.name != "schema.ts" and (lines := len(path.read_text().splitlines())) > 400
    }
    assert long == {}


async def test_pages_and_files_are_served(front) -> None:
    page = await front.http.get("/")
    assert page.headers["cache-control"] == "no-cache"
    assert "script-src 'self';" in page.headers["content-security-policy"]
    [script] = re.findall(r'src="\./(assets/[^"]+)"', page.text)
    found = await front.http.get(f"/{script}")
    assert found.status_code == 200
    assert "immutable" in found.headers["cache-control"]
    assert found.headers["content-type"].startswith("text/javascript")
    for path in ("/assets/none.js", "/assets/../rest.py", "/assets/..%2f..%2frest.py"):
        assert (await front.http.get(path)).status_code == 404


def test_paths_of_the_folder_are_known() -> None:
    assert Path(__file__).parents[3] / "services/dispatcher/static" == STATIC.resolve()
