"""``penstock doctor``: what could keep Penstock from working on this machine, or a cluster from answering."""

from __future__ import annotations

import json
import time
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

from penstock.cli.local_checks import Finding, check_machine

if TYPE_CHECKING:
    from collections.abc import Callable

#: A clock that differs by more seconds is reported: processing time and the ages in logs follow it. HTTP tells seconds.
_SKEW_S = 3.0
#: A dispatcher that needs more milliseconds for an empty question is slow.
_SLOW_MS = 250.0
_MARKS = {"ok": "ok  ", "note": "note", "fail": "FAIL"}


def check_cluster(url: str) -> list[Finding]:
    """Findings about the cluster whose dispatcher is at ``url``."""
    import httpx

    from penstock.api.client import ClusterClient
    from penstock.errors import PenstockError

    try:
        with ClusterClient(url, patience_s=0) as client:
            client.overview()  # the first answer pays for the connection
            began = time.perf_counter()
            overview = client.overview()
            answered_ms = (time.perf_counter() - began) * 1_000
            processes = client.info()["processes"]
            told = client.dashboard_config()
    except (PenstockError, httpx.HTTPError) as err:
        return [Finding("address", "fail", f"{url}: {err}".splitlines()[0], "start one with 'penstock up'")]
    return [
        _address(url, answered_ms),
        _version(told.json()),
        *_clock(told.headers.get("date"), time.time()),
        *cluster_findings(overview, processes),
    ]


def _address(url: str, answered_ms: float) -> Finding:
    text = f"{url} answers in {answered_ms:.1f} ms"
    if answered_ms <= _SLOW_MS:
        return Finding("address", "ok", text)
    return Finding("address", "note", text, "its machine, or the way to it, is busy")


def _version(config: dict[str, Any]) -> Finding:
    from penstock import __version__

    theirs = str(config.get("flink-version", "")).removeprefix("penstock-")
    if theirs == __version__:
        return Finding("version", "ok", f"{theirs}, as here")
    remedy = "install the cluster's version here: plans and results of other versions may be refused"
    return Finding(
        "version", "note", f"the cluster has {theirs or 'none that it tells'}, here is {__version__}", remedy
    )


def _clock(date: str | None, now_s: float) -> list[Finding]:
    if date is None:
        return []
    skew = now_s - parsedate_to_datetime(date).timestamp()
    if abs(skew) <= _SKEW_S:
        return [Finding("clock", "ok", "the same as the dispatcher's, within seconds")]
    return [
        Finding("clock", "note", f"{abs(skew):.0f} s {'ahead of' if skew > 0 else 'behind'} the dispatcher's",
                "synchronise the clocks (NTP): processing time follows them")
    ]  # fmt: skip


def cluster_findings(overview: dict[str, Any], processes: list[dict[str, Any]]) -> list[Finding]:
    """Findings about the services and slots of a cluster, from ``GET /overview`` and ``GET /cluster/info``."""
    by_role: dict[str, list[str]] = {}
    for process in processes:
        by_role.setdefault(process["role"], []).append(process["id"])
    found = []
    for role in ("dispatcher", "jobmanager", "resourcemanager", "taskmanager"):
        there = by_role.get(role, [])
        if there:
            found.append(Finding(role, "ok", f"{len(there)} running: {', '.join(sorted(there))}"))
        else:
            found.append(Finding(role, "fail", "none answers", f"start one with 'penstock {role}'"))
    if not overview["resourcemanager"]:
        found.append(
            Finding("leader", "fail", "no resource manager leads", "look at its log; it needs Redis")
        )
    free, total = overview["slots-available"], overview["slots-total"]
    remedy = "" if free else "a new job waits: add task managers, or end a job"
    found.append(Finding("slots", "ok" if free else "note", f"{free} of {total} free", remedy))
    return found


def run_doctor(url: str | None, format_: str, *, write: Callable[[str], None] = print) -> int:
    """Write the findings about this machine and, with ``url``, about that cluster; return the exit code: 1 if
    something fails."""
    sections = {"this machine": check_machine()}
    if url is not None:
        sections[f"the cluster at {url}"] = check_cluster(url)
    failed = any(f.level == "fail" for findings in sections.values() for f in findings)
    if format_ == "json":
        write(json.dumps({name: [f.as_dict() for f in found] for name, found in sections.items()}, indent=2))
        return int(failed)
    for name, findings in sections.items():
        write(f"{name}:")
        for finding in findings:
            write(f"  {_MARKS[finding.level]}  {finding.what:<16} {finding.found}")
            if finding.remedy:
                write(f"{'':<25}{finding.remedy}")
    if url is None:
        write("With --cluster URL, or PENSTOCK_CLUSTER set, a running cluster is looked at, too.")
    return int(failed)
