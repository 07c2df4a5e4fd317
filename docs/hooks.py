"""What MkDocs does for this site beside rendering pages (named in mkdocs.yml).

- Pages of the repository's root (README, CONTRIBUTING, …) are pages of the site, written once.
- ``folder/*.md`` in the navigation stands for the pages of that folder, ``index.md`` first.
- The built site loads nothing from another host; a build that would is refused.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
#: page of the site → file of the repository
ROOT_PAGES = {
    "getting-started.md": "README.md",
    "contributing.md": "CONTRIBUTING.md",
    "security.md": "SECURITY.md",
    "changelog.md": "CHANGELOG.md",
}
_LINK = re.compile(r"\[([^\]]*)\]\(([^)#:\s]+)(#[^)\s]*)?\)")
_LOADED = re.compile(
    r"<(?:script|img|iframe|source)[^>]*\ssrc=[\"']?(https?:)?//|<link[^>]*\shref=[\"']?(https?:)?//"
)


def on_config(config: Any) -> Any:
    config["nav"] = [_expanded(entry, Path(config["docs_dir"])) for entry in config["nav"]]
    config["nav"] = [entry for entry in config["nav"] if entry is not None]
    return config


def _expanded(entry: Any, docs: Path) -> Any:
    if not isinstance(entry, dict):
        return entry
    [(title, value)] = entry.items()
    if isinstance(value, str) and value.endswith("/*.md"):
        pages = sorted(path.relative_to(docs).as_posix() for path in docs.glob(value))
        pages.sort(key=lambda page: not page.endswith("/index.md"))
        return {title: pages} if pages else None
    if isinstance(value, list):
        inner = [_expanded(each, docs) for each in value]
        return {title: [each for each in inner if each is not None]}
    return entry


def on_files(files: Files, config: Any) -> Files:
    for page, source in ROOT_PAGES.items():
        text = _LINK.sub(_for_the_site, (ROOT / source).read_text())
        files.append(File.generated(config, page, content=text))
    return files


def _for_the_site(link: re.Match[str]) -> str:
    """A link of a root page as the site has it; a file that is no page is not linked."""
    text, target, anchor = link[1], link[2], link[3] or ""
    if target.startswith("docs/"):
        return f"[{text}]({target.removeprefix('docs/')}{anchor})"
    for page, source in ROOT_PAGES.items():
        if target == source:
            return f"[{text}]({page}{anchor})"
    return f"`{text}`" if "/" in text else text


def on_post_build(config: Any) -> None:
    for page in Path(config["site_dir"]).rglob("*.html"):
        if found := _LOADED.search(page.read_text()):
            raise PluginError(
                f"{page.name} loads something from another host: {found[0]}. "
                "The site must work without a network: bundle it, or leave it out."
            )
