"""The dashboard in Chromium, on a real cluster with a real job: no page has a script error, a 404, a violation that
axe finds, or scrolls sideways on a phone. Skips where no Chromium is installed."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from penstock.api.client import ClusterClient
from penstock.embedded import EmbeddedCluster

pytestmark = pytest.mark.cluster

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
ARGUMENTS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update",
]  # fmt: skip
JOB = """
CREATE TABLE clicks (page STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND)
WITH ('connector' = 'datagen', 'rows-per-second' = '50', 'fields.page.length' = '1');
CREATE TABLE counts (page STRING, n BIGINT) WITH ('connector' = 'blackhole');
INSERT INTO counts SELECT page, COUNT(*) FROM clicks GROUP BY page;
"""


@dataclass
class Site:
    """A browser beside a cluster that runs one job."""

    url: str
    job: str
    vertex: str
    manager: str
    browser: Any

    def addresses(self) -> list[str]:
        job, vertex, manager = f"/jobs/{self.job}", f"/jobs/{self.job}/graph/{self.vertex}", self.manager
        tabs = ("checkpoints", "exceptions", "timeline", "logs", "dead-letters", "plan", "configuration")
        parts = ("subtasks", "metrics", "watermarks", "state", "flame", "logs")
        of_manager = ("slots", "metrics", "logs", "stdout", "threads")
        return [
            "/", "/jobs", "/submit", job,
            *(f"{job}/{tab}" for tab in tabs),
            *(f"{vertex}/{part}" for part in parts),
            f"{job}/edges/e2",
            "/taskmanagers",
            *(f"/taskmanagers/{manager}/{tab}" for tab in of_manager),
            *(f"/cluster/{tab}" for tab in ("processes", "configuration", "log", "threads")),
        ]  # fmt: skip


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    if CHROMIUM is None:
        pytest.skip("no Chromium is installed")
    playwright = pytest.importorskip("playwright.sync_api")
    cluster = EmbeddedCluster(slots=2)
    cluster.start()
    try:
        with ClusterClient(cluster.rest_url) as client:
            job = client.submit({"sql": JOB, "parallelism": 1, "name": "Clicks"})
        with httpx.Client(base_url=cluster.rest_url, timeout=60) as http:
            while not http.get(f"/jobs/{job}/checkpoints").json()["counts"]["completed"]:
                time.sleep(0.2)
            vertex = http.get(f"/jobs/{job}").json()["vertices"][-1]["id"]
            manager = http.get("/taskmanagers").json()["taskmanagers"][0]["id"]
        with playwright.sync_playwright() as running:
            browser = running.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
            yield Site(cluster.rest_url, job, vertex, manager, browser)
            browser.close()
    finally:
        cluster.stop()


def watched(site: Site, **options: Any) -> tuple[Any, list[str]]:
    """A page, and what goes wrong in it."""
    page = site.browser.new_context(**options).new_page()
    page.set_default_timeout(120_000)
    wrong: list[str] = []
    page.on(
        "console", lambda m: wrong.append(f"console: {m.text}") if m.type in ("error", "warning") else None
    )
    page.on("pageerror", lambda err: wrong.append(f"script: {err}"))
    page.on("response", lambda r: wrong.append(f"{r.status} {r.url}") if r.status >= 400 else None)
    page.on("request", lambda r: None if r.url.startswith((site.url, "data:")) else wrong.append(r.url))
    return page, wrong


def settled(page: Any) -> None:
    """Returns when the page shows what it loads."""
    page.wait_for_selector("main :is(h1, h2)")
    # Nothing that loads is left. (The page's policy forbids the evaluation of a condition in the page.)
    loading = page.locator(".empty[role=status]")
    while loading.count():
        page.wait_for_timeout(50)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_is_without_errors_and_accessible(site: Site, scheme: str) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    page, wrong = watched(site, color_scheme=scheme, reduced_motion="reduce")
    found: dict[str, list[str]] = {}
    for address in site.addresses():
        page.goto(f"{site.url}/#{address}")
        settled(page)
        result = axe.run(page, options={"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]})
        broken = [
            f"{v['id']}: {node['target']} {node['failureSummary'][:300]}"
            for v in result.response["violations"]
            for node in v["nodes"][:3]
        ]
        if broken:
            found[address] = broken
    assert found == {}
    assert wrong == []


def test_a_phone_scrolls_no_page_sideways(site: Site) -> None:
    page, wrong = watched(site, viewport={"width": 375, "height": 740}, has_touch=True)
    wide = []
    for address in site.addresses():
        page.goto(f"{site.url}/#{address}")
        settled(page)
        if page.evaluate("document.documentElement.scrollWidth > innerWidth"):
            wide.append(address)
    assert wide == []
    assert wrong == []


def test_a_vertex_is_opened_and_closed_with_the_keyboard(site: Site) -> None:
    page, wrong = watched(site)
    page.goto(f"{site.url}/#/jobs/{site.job}")
    page.focus(f"[data-vertex='{site.vertex}']")
    page.keyboard.press("Enter")
    page.wait_for_selector(".drawer table.list")
    page.keyboard.press("Escape")
    page.wait_for_selector(".drawer", state="detached")
    assert wrong == []


def test_a_click_on_an_edge_shows_its_rows(site: Site) -> None:
    page, wrong = watched(site)
    page.goto(f"{site.url}/#/jobs/{site.job}")
    page.locator("[data-edge]").last.click()
    page.wait_for_selector(".drawer h2:text('Source: clicks')")
    page.wait_for_selector(".drawer table.tapped tbody tr")
    head = page.locator(".drawer thead th").all_inner_texts()
    assert head[:3] == ["Subtask", "Kind", "page"]
    page.click(".drawer button:text('Pause')")
    page.wait_for_selector(".drawer button:text('Go on')")
    before = page.inner_text(".drawer tbody")
    page.wait_for_timeout(1_500)  # a second event would have come
    assert page.inner_text(".drawer tbody") == before
    page.keyboard.press("Escape")
    page.wait_for_selector(".drawer", state="detached")
    assert wrong == []


def test_a_savepoint_is_taken_and_the_job_cancelled(site: Site) -> None:
    page, wrong = watched(site)
    page.goto(f"{site.url}/#/jobs/{site.job}")
    page.click("text=Savepoint")
    assert "The job runs on while that happens." in page.inner_text("dialog")
    page.click("dialog button[type=submit]")
    page.wait_for_selector(".toast :text('The savepoint is stored')")
    page.click(".page-head button:has-text('Cancel')")
    assert "No savepoint is taken." in page.inner_text("dialog")
    page.click("dialog button[type=submit]")
    page.wait_for_selector("h1 + .badge:text('canceled')")
    assert wrong == []
