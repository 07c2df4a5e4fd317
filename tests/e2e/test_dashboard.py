"""The dashboard in Chromium, on a real cluster with a real job, tokens and a SQL gateway: no page has a script error, a
404, a violation that axe finds, or scrolls sideways on a phone. Skips where no Chromium is installed."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from penstock.api.client import ClusterClient
from penstock.embedded import EmbeddedCluster
from penstock.reserving import port_of, reserve_port
from penstock_services.common.security.tokens import digest
from tests.e2e.support import sql_gateway

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


#: Role → the token of somebody who has it.
TOKENS = {role: f"pst_{role}_{'0123456789abcdef' * 3}" for role in ("admin", "read")}
#: What the SQL page is tested with: an endless query, a table for rows, a mistake on line 5.
SCRIPT = """CREATE TABLE ticks (n INT, k STRING) WITH ('connector' = 'datagen', 'rows-per-second' = '40',
  'fields.k.length' = '1', 'fields.n.min' = '1', 'fields.n.max' = '9');
CREATE TABLE sums (k STRING, total BIGINT) WITH ('connector' = 'blackhole');
SELECT k,
  SUM(nope) AS total FROM ticks GROUP BY k;
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
            "/", "/jobs", "/submit", "/sql", job,
            *(f"{job}/{tab}" for tab in tabs),
            *(f"{vertex}/{part}" for part in parts),
            f"{job}/edges/e2",
            "/taskmanagers",
            *(f"/taskmanagers/{manager}/{tab}" for tab in of_manager),
            *(f"/cluster/{tab}" for tab in ("processes", "configuration", "log", "threads")),
        ]  # fmt: skip


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    if CHROMIUM is None:
        pytest.skip("no Chromium is installed")
    playwright = pytest.importorskip("playwright.sync_api")
    with pytest.MonkeyPatch.context() as patch, reserve_port() as held:
        patch.setenv("PENSTOCK_TOKEN", TOKENS["admin"])
        options = secured(tmp_path_factory.mktemp("site"))
        gateway = {**options, "sql-gateway.endpoint.rest.port": str(port_of(held))}
        cluster = EmbeddedCluster(
            slots=3, config={**options, "sql-gateway.address": f"http://127.0.0.1:{port_of(held)}"}
        )
        cluster.start()
        try:
            with ClusterClient(cluster.rest_url) as client:
                job = client.submit({"sql": JOB, "parallelism": 1, "name": "Clicks"})
            headers = {"authorization": f"Bearer {TOKENS['admin']}"}
            with httpx.Client(base_url=cluster.rest_url, timeout=60, headers=headers) as http:
                while not http.get(f"/jobs/{job}/checkpoints").json()["counts"]["completed"]:
                    time.sleep(0.2)
                vertex = http.get(f"/jobs/{job}").json()["vertices"][-1]["id"]
                manager = http.get("/taskmanagers").json()["taskmanagers"][0]["id"]
            with (
                sql_gateway({**gateway, "rest.address": cluster.rest_url}),
                playwright.sync_playwright() as running,
            ):
                browser = running.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
                yield Site(cluster.rest_url, job, vertex, manager, browser)
                browser.close()
        finally:
            cluster.stop()


def secured(folder: Path) -> dict[str, str]:
    """Configuration that asks who somebody is."""
    known = [{"name": role, "role": role, "sha256": digest(token)} for role, token in TOKENS.items()]
    (folder / "tokens.yaml").write_text(json.dumps(known))
    (folder / "key").write_text("0123456789" * 5)
    return {
        "security.rest.tokens-file": str(folder / "tokens.yaml"),
        "security.rest.session-key-file": str(folder / "key"),
    }


def watched(site: Site, role: str = "admin", **options: Any) -> tuple[Any, list[str]]:
    """A page of somebody who has logged in, and what goes wrong in it."""
    page = site.browser.new_context(**options).new_page()
    page.set_default_timeout(120_000)
    page.goto(f"{site.url}/login")
    page.fill("input[name=token]", TOKENS[role])
    page.click("button")
    page.wait_for_selector("nav[aria-label=Pages]")
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


def violations(page: Any) -> list[str]:
    """What axe finds in the page as it is."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    result = axe.run(page, options={"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]})
    return [
        f"{v['id']}: {node['target']} {node['failureSummary'][:300]}"
        for v in result.response["violations"]
        for node in v["nodes"][:3]
    ]


#: Axe takes two seconds for a page. `make test` asks it about every third, `make test-long` about all.
@pytest.mark.parametrize(
    ("scheme", "every"),
    [
        pytest.param("light", 3, id="third"),
        pytest.param("light", 1, id="light", marks=pytest.mark.long),
        pytest.param("dark", 1, id="dark", marks=pytest.mark.long),
    ],
)
def test_every_page_is_without_errors_and_accessible(site: Site, scheme: str, every: int) -> None:
    page, wrong = watched(site, color_scheme=scheme, reduced_motion="reduce")
    found: dict[str, list[str]] = {}
    for place, address in enumerate(site.addresses()):
        page.goto(f"{site.url}/#{address}")
        settled(page)
        if place % every == 0 and (broken := violations(page)):
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


# -- SQL -----------------------------------------------------------------------------------------


def write(page: Any, text: str) -> None:
    """Replaces the text of the editor."""
    page.click(".cm-content")
    page.keyboard.press("Control+a")
    page.keyboard.insert_text(text)


def run(page: Any, button: str = "Run") -> None:
    page.get_by_role("button", name=button, exact=True).click()


def ran(page: Any, beginning: str) -> Any:
    """The line about the statement that was run last, once it begins so and is over."""
    line = page.locator(f".sql-entries > li:first-child:has(code:text('{beginning}')):has(.badge:not(.warn))")
    line.wait_for()
    return line


def test_a_statement_is_run_corrected_and_watched(site: Site) -> None:
    page, wrong = watched(site, color_scheme="dark", reduced_motion="reduce")
    page.goto(f"{site.url}/#/sql")
    page.wait_for_selector(".sql-tree :text('No tables yet')")
    write(page, SCRIPT)
    run(page, "Run all")
    failed = ran(page, "SELECT k, SUM(nope)")
    assert "unknown column 'nope'" in failed.inner_text()
    assert violations(page) == []
    assert page.locator(".cm-lintRange-error").all_inner_texts() == ["nope"]
    refused = [line for line in wrong if not line.startswith("console: Failed to load resource")]
    assert [line[:3] for line in refused] == ["400"], wrong
    wrong.clear()
    # A click on the place puts the cursor there; the word is replaced by the keyboard.
    failed.locator("button:text('line 5, column 7')").click()
    for _ in "nope":
        page.keyboard.press("Delete")
    page.keyboard.insert_text("n")
    page.keyboard.press("Control+Enter")
    page.wait_for_selector(".sql-rows tbody tr")
    page.wait_for_selector("h2 .badge:text('live')")
    page.wait_for_selector(".card header :text(' changes')")
    keys = page.locator(".sql-rows tbody td:nth-child(2)").all_inner_texts()
    assert len(keys) == len(set(keys)), "an update takes the place of its row"
    page.get_by_role("button", name="total").click()
    page.get_by_role("button", name="total").click()
    assert page.locator("th[aria-sort=descending]").inner_text().startswith("total")
    assert violations(page) == []
    run(page, "Changes")
    signs = set(page.locator(".sql-rows tbody code").all_inner_texts())
    assert signs <= {"+I", "-U", "+U"}
    assert {"-U", "+U"} <= signs
    run(page, "Chart")
    page.wait_for_selector(".chart canvas")
    job = page.locator(".sql-entries > li:first-child a").get_attribute("href")
    assert job is not None
    run(page, "Cancel")
    assert "cancelled" in ran(page, "SELECT k").inner_text()
    page.wait_for_selector("h2 .badge:text('ended')")
    page.goto(f"{site.url}/{job}")
    page.wait_for_selector("h1 + .badge:text('canceled')")
    assert wrong == []


def test_a_plan_is_drawn_and_a_query_saved_as_a_job(site: Site) -> None:
    page, wrong = watched(site, viewport={"width": 375, "height": 740}, reduced_motion="reduce")
    page.goto(f"{site.url}/#/sql")
    page.wait_for_selector(".cm-content")
    write(page, SCRIPT.replace("nope", "n").replace("AS total FROM", "AS total\nFROM"))
    # What is selected runs: the declarations; then the query at the cursor.
    page.keyboard.press("Control+Home")
    while "sums" not in page.evaluate("getSelection().toString()"):
        page.keyboard.press("Shift+ArrowDown")
    page.keyboard.press("Control+Enter")
    ran(page, "CREATE TABLE sums")
    page.keyboard.press("Control+End")
    run(page, "Explain")
    page.wait_for_selector(".vertex :text('Source: ticks')")
    page.locator(".vertex").last.click()
    assert page.locator(".sql-steps li").first.inner_text()
    assert not page.evaluate("document.documentElement.scrollWidth > innerWidth")
    assert violations(page) == []
    run(page, "Text")
    page.wait_for_selector("pre:text('== Optimized Logical Plan ==')")
    run(page, "Save as job")
    page.fill("dialog input[name=name]", "Sums of ticks")
    page.select_option("dialog select", "sums")
    assert violations(page) == []
    page.click("dialog button[type=submit]")
    page.wait_for_selector("h1:text('Sums of ticks')")
    page.wait_for_selector("h1 + .badge:text('running')")
    page.click(".page-head button:has-text('Cancel')")
    page.click("dialog button[type=submit]")
    page.wait_for_selector("h1 + .badge:text('canceled')")
    assert wrong == []


def test_the_catalog_is_browsed_and_its_names_completed(site: Site) -> None:
    page, wrong = watched(site)
    page.goto(f"{site.url}/#/sql")
    page.wait_for_selector(".cm-content")
    write(
        page,
        "SELECT CAST(9007199254740993 AS BIGINT) AS n, CAST('12345678901234567.89' AS DECIMAL(20, 2)) AS d, 1.50 AS m",
    )
    run(page)
    ran(page, "SELECT CAST")
    cells = page.locator(".sql-rows tbody tr:first-child td").all_inner_texts()
    assert cells[1:] == ["9007199254740993", "12345678901234567.89", "1.50"], "a double would hold 16 digits"
    write(page, "CREATE TABLE papers (title STRING, `order` INT) WITH ('connector' = 'opensearch', 'hosts' = 'http://127.0.0.1:1', "
                "'index' = 'i', 'username' = 'me', 'password' = 'plain-and-long')")  # fmt: skip
    run(page)
    ran(page, "CREATE TABLE papers")
    page.get_by_label("Columns of papers").press("Enter")
    assert "STRING" in page.inner_text(".sql-tree .columns")
    assert violations(page) == []
    shown = page.locator(".sql-tree .options > div").all_inner_texts()
    assert "".join(shown[-2].split()) == "password=******"
    assert "plain-and-long" not in page.content().replace(page.inner_html(".cm-content"), "")
    write(page, "SELECT")
    page.get_by_label("Insert order").click()
    assert page.inner_text(".cm-content") == "SELECT `order`"
    page.keyboard.insert_text(" FROM ")
    page.keyboard.type("pap")
    page.wait_for_selector(".cm-tooltip-autocomplete li:has-text('papers')")
    page.wait_for_timeout(
        100
    )  # the editor takes no choice in the first moments, lest a typist choose unawares
    page.keyboard.press("Enter")
    assert page.inner_text(".cm-content") == "SELECT `order` FROM papers"
    page.get_by_label("Find a table, view, column or function").fill("json_val")
    page.click("summary:has-text('Functions')")
    page.click(".sql-tree .name:text-is('JSON_VALUE')")
    assert page.inner_text(".cm-content").endswith("papers JSON_VALUE(")
    # The session outlives a reload; a new one has no tables.
    page.reload()
    page.wait_for_selector(".sql-tree .name:text('papers')")
    run(page, "New session")
    page.wait_for_selector(".sql-tree :text('No tables yet')")
    assert wrong == []


def test_who_may_only_read_is_told_and_logs_out(site: Site) -> None:
    page, wrong = watched(site, "read", viewport={"width": 375, "height": 740})
    page.goto(f"{site.url}/#/sql")
    page.wait_for_selector("main :text('You may not run SQL here')")
    assert page.locator(".cm-content").count() == 0
    page.locator("main").get_by_role("button", name="Log out").click()
    page.wait_for_selector("input[name=token]")
    assert page.context.cookies() == []
    page.goto(f"{site.url}/")
    page.wait_for_selector("input[name=token]")
    assert wrong == []
