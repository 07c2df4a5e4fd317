"""``penstock top``: its rows, and how a watermark is written."""

from __future__ import annotations

from penstock.cli.showing import when
from penstock.cli.top import vertex_rows, watermark_text


def test_the_busiest_vertex_comes_first() -> None:
    def vertex(name: str, **metrics: float) -> dict:
        return {
            "name": name,
            "parallelism": 2,
            "metrics": {k.replace("_", "-"): v for k, v in metrics.items()},
        }

    jobs = [
        {
            "jid": "a",
            "name": "A",
            "vertices": [vertex("source", busy_ratio=0.2), vertex("sum", busy_ratio=0.9)],
        },
        {"jid": "b", "name": "B", "vertices": [vertex("sink", busy_ratio=0.5, read_records_per_second=7.0)]},
    ]
    rows = vertex_rows(jobs)
    assert [(r["job"], r["vertex"]) for r in rows] == [("A", "sum"), ("B", "sink"), ("A", "source")]
    assert rows[1]["records-in-per-second"] == 7.0
    assert (
        vertex_rows([{"jid": "c", "name": "C", "vertices": [{"name": "new", "parallelism": 1}]}])[0]["busy"]
        == 0.0
    )


def test_watermarks_beyond_all_dates_are_at_their_end() -> None:
    assert watermark_text(None) == ""
    assert watermark_text(1_700_000_000_000) == when(1_700_000_000_000)
    # A stream without event times; its year would be 294247.
    assert watermark_text(9_223_372_036_854_775) == "at its end"
