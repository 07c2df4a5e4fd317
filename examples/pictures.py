"""Draw what comes out of the small examples, for the pages of the docs.

``make pictures`` runs it twice: ``rows FOLDER`` runs the jobs and keeps their rows as JSON (with Penstock's packages),
``draw FOLDER`` makes docs/examples/*.svg of them (with the packages of the docs, which have matplotlib).
"""

from __future__ import annotations

import datetime as dt
import json
import re
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
EXAMPLES = (
    "word_count",
    "fraud_alert",
    "anomalies",
    "dynamic_pricing",
    "incentives",
    "quality_of_service",
    "flights_kafka",
)
#: Flights in the picture: four days.
FLIGHTS = 3_500
Rows = list[list[Any]]


def make_rows(out: Path) -> None:
    from penstock.sql.session import SqlSession
    from penstock.testing import run_graph

    out.mkdir(parents=True, exist_ok=True)
    for example in EXAMPLES:
        text = (ROOT / "examples" / example / "job.sql").read_text()
        if example == "flights_kafka":
            text = flights_in_files(text, out)
        results = SqlSession().run_script(text.replace("'connector' = 'print'", "'connector' = 'collect'"))
        (job,) = [result.job for result in results if result.job is not None]
        (out / f"{example}.json").write_text(json.dumps(sorted(run_graph(job.job_graph).rows), default=str))


def flights_in_files(text: str, out: Path) -> str:
    """The job with its topics as files of the same messages, and its board collected."""
    from examples.flights.dataset import load
    from examples.flights_kafka.replay import TOPICS, rows

    for table in TOPICS:
        path = out.absolute() / f"{table}.json"
        path.write_bytes(b"\n".join(row for name, _, row in rows(load(), FLIGHTS) if name == table))
        text = _with(text, table, f"'connector' = 'filesystem', 'path' = '{path}', 'format' = 'json'")
    return _with(text, "board_topic", "'connector' = 'collect'")


def _with(text: str, table: str, options: str) -> str:
    """The script with other options of a table."""
    declared = re.compile(rf"(CREATE TABLE {table} \(.*?\n\) WITH \().*?(\n\);)", re.DOTALL)
    changed, times = declared.subn(rf"\g<1>{options}\g<2>", text)
    assert times == 1, table
    return changed


def draw(folder: Path) -> None:
    import matplotlib

    matplotlib.use("svg")
    # The same picture has the same text each time.
    matplotlib.rcParams.update({"svg.hashsalt": "penstock", "svg.fonttype": "none", "font.size": 9})
    from matplotlib import pyplot

    for example in EXAMPLES:
        figure, axes = pyplot.subplots(figsize=(7.2, 3.2), layout="constrained")
        DRAWN[example](axes, json.loads((folder / f"{example}.json").read_text()))
        axes.spines[["top", "right"]].set_visible(False)
        figure.savefig(ROOT / "docs/examples" / f"{example}.svg", metadata={"Date": None})
        pyplot.close(figure)


def data(example: str, file: str) -> list[dict[str, Any]]:
    lines = (ROOT / "examples" / example / "data" / file).read_text().splitlines()
    return [{**row, "at": dt.datetime.fromisoformat(row["at"])} for row in map(json.loads, lines)]


def clock(axes: Any) -> None:
    from matplotlib.dates import DateFormatter

    axes.xaxis.set_major_formatter(DateFormatter("%H:%M"))


def word_count(axes: Any, rows: Rows) -> None:
    best = sorted(rows, key=lambda row: (-row[1], row[0]))[:14]
    axes.bar([word for word, _ in best], [n for _, n in best], color="#4b77be")
    axes.tick_params("x", rotation=40)
    axes.set_ylabel("times")


def fraud_alert(axes: Any, rows: Rows) -> None:
    paid = data("fraud_alert", "transactions.json")
    axes.scatter([p["at"] for p in paid], [p["amount"] for p in paid], s=6, color="#8a97a6", label="payment")
    alerts = [dt.datetime.fromisoformat(row[3]) for row in rows]
    axes.scatter(alerts, [r[2] for r in rows], s=70, facecolors="none", edgecolors="#c0392b", label="alert")
    axes.axhline(500, color="#8a97a6", linewidth=0.6)
    axes.set_ylabel("amount")
    axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=2, frameon=False)
    clock(axes)


def anomalies(axes: Any, rows: Rows) -> None:
    machines = defaultdict(list)
    for row in sorted(data("anomalies", "readings.json"), key=lambda row: row["at"]):
        machines[row["machine"]].append((row["at"], row["celsius"]))
    for machine, readings in sorted(machines.items()):
        axes.plot(*zip(*readings, strict=True), linewidth=0.8, label=machine)
    found = [dt.datetime.fromisoformat(row[3]) for row in rows]
    axes.scatter(
        found, [row[1] for row in rows], s=70, facecolors="none", edgecolors="#c0392b", label="anomaly"
    )
    axes.set_ylabel("°C")
    axes.legend(loc="upper left", ncols=5, frameon=False)
    axes.set_ylim(38, 72)
    clock(axes)


def dynamic_pricing(axes: Any, rows: Rows) -> None:
    zones = defaultdict(list)
    for zone, until, _, _, factor in sorted(rows, key=lambda row: row[1]):
        zones[zone].append((dt.datetime.fromisoformat(until), factor))
    for zone, factors in sorted(zones.items()):
        axes.step(*zip(*factors, strict=True), where="pre", label=zone)
    axes.set_ylabel("factor of the price")
    axes.legend(loc="upper left", frameon=False)
    clock(axes)


def incentives(axes: Any, rows: Rows) -> None:
    for hour, place, driver, trips, _ in rows:
        middle = dt.datetime.fromisoformat(hour).hour + (0.2 if place == 2 else -0.2)
        axes.bar(middle, trips, width=0.38, color="#4b77be" if place == 1 else "#a9bfe0")
        axes.text(middle, trips + 0.15, driver, ha="center", fontsize=8)
    axes.set_xlabel("hour")
    axes.set_ylabel("trips")


def quality_of_service(axes: Any, rows: Rows) -> None:
    cells = defaultdict(list)
    for cell, minute, p95, _ in rows:
        cells[cell].append((dt.datetime.fromisoformat(minute), p95))
    for cell, minutes in sorted(cells.items()):
        axes.scatter(*zip(*minutes, strict=True), s=22, label=cell)
    axes.axhline(200, color="#8a97a6", linewidth=0.6)
    axes.set_ylabel("95th percentile, ms")
    axes.legend(loc="upper right", frameon=False)
    clock(axes)


def flights_kafka(axes: Any, rows: Rows) -> None:
    from matplotlib.dates import DateFormatter, DayLocator

    airports = defaultdict(list)
    for origin, start, _, _, mean, *_ in sorted(rows):
        airports[origin].append((dt.datetime.fromisoformat(start), mean))
    for origin, delays in airports.items():
        axes.plot(*zip(*delays, strict=True), linewidth=0.9, label=origin)
    axes.axhline(0, color="#8a97a6", linewidth=0.6)
    axes.set_ylabel("mean delay, minutes")
    axes.legend(loc="upper left", ncols=3, frameon=False)
    axes.xaxis.set_major_locator(DayLocator())
    axes.xaxis.set_major_formatter(DateFormatter("%-d %b"))


DRAWN = {
    "word_count": word_count,
    "fraud_alert": fraud_alert,
    "anomalies": anomalies,
    "dynamic_pricing": dynamic_pricing,
    "incentives": incentives,
    "quality_of_service": quality_of_service,
    "flights_kafka": flights_kafka,
}


if __name__ == "__main__":
    what, place = sys.argv[1:]
    {"rows": make_rows, "draw": draw}[what](Path(place))
