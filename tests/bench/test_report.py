"""The tables of docs/nexmark.md from figures, and their place in the file."""

import dataclasses
from pathlib import Path

import pytest

from bench.nexmark.report import BEGIN, END, Figure, append, into_docs, read, report

OURS = Figure(
    engine="penstock", query="q0", source="generator", events=100_000_000, seconds=10, cpu_s=20,
    peak_bytes=200_000_000, evenness=0.98, shuffled_bytes=5_000_000, checkpoints=2, rows=92, checksum="00ff",
)  # fmt: skip
FLINK = Figure(
    engine="flink", query="q0", source="generator", events=20_000_000, warm_events=20_000_000, seconds=10,
    cpu_s=16, peak_bytes=2_000_000_000,
)  # fmt: skip


def of(figure: Figure, **changes: object) -> Figure:
    return dataclasses.replace(figure, **changes)


def rows(text: str, title: str) -> list[list[str]]:
    """Of the table below a title; "" = the first of all."""
    lines = text.split(f"### {title}\n\n")[1] if title else text
    return [
        [cell.strip() for cell in line.strip("|").split("|")] for line in lines.split("\n\n")[0].splitlines()
    ][2:]


def test_both_engines_by_the_clock_and_by_cpu_time() -> None:
    text = report([OURS, FLINK])
    assert rows(text, "Whole events, made in the source") == [
        ["q0", "10,000", "2,000", "5.0 ×", "5,000", "1,250", "4.0 ×"]
    ]
    assert rows(text, "The runs") == [
        ["penstock", "generator", "off", "q0", "–", "100.0", "10.0", "20.0", "0.98", "200", "5", "2", "92", "`00ff`"],
        ["flink", "generator", "–", "q0", "20", "20.0", "10.0", "16.0", "–", "2,000", "–", "–", "–", "–"],
    ]  # fmt: skip


def test_the_headline_is_of_whole_events_alone() -> None:
    slow = [of(OURS, query="q2", seconds=80, cpu_s=160), of(FLINK, query="q2")]
    pushed = of(OURS, push_down=True, seconds=1, cpu_s=2)
    assert rows(report([OURS, FLINK, pushed, *slow]), "") == [
        # the geometric means of 5 and 0.625, and of 4 and 0.5
        ["whole events, made in the source", "2", "**1.8 ×**", "0.62 × (q2)", "**1.4 ×**", "0.50 × (q2)"]
    ]


def test_push_down_stands_apart() -> None:
    pushed = of(OURS, push_down=True, seconds=2, cpu_s=2)
    text = report([OURS, pushed, FLINK])
    assert rows(text, "With push-down into the source") == [
        ["q0", "generator", "10,000", "50,000", "5.0 ×", "10.0 ×", "25.0 ×", "40.0 ×"]
    ]
    assert "With push-down" not in report([OURS, FLINK])


def test_each_source_has_its_table_and_queries_their_order() -> None:
    figures = [of(OURS, query=q, source=s) for s in ("parquet", "json") for q in ("q10", "q2")]
    text = report(figures)
    assert "made in the source" not in text
    for title in ("Whole events, from JSON lines", "Whole events, from Parquet"):
        assert [row[:3] for row in rows(text, title)] == [["q2", "10,000", "–"], ["q10", "10,000", "–"]]


def test_figures_are_kept_in_a_file_and_the_last_counts(tmp_path: Path) -> None:
    for figure in (OURS, FLINK, of(OURS, seconds=5)):
        append(tmp_path / "results", figure)
    assert read(tmp_path / "results") == [OURS, FLINK, of(OURS, seconds=5)]
    assert rows(report(read(tmp_path / "results")), "Whole events, made in the source")[0][1] == "20,000"


def test_tables_replace_what_is_between_the_marks(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    into_docs(page, "| new |\n")
    into_docs(page, "| newer |\n")
    assert page.read_text() == f"before\n{BEGIN}\n\n| newer |\n\n{END}\nafter\n"
    page.write_text("no marks\n")
    with pytest.raises(ValueError, match="needs one line"):
        into_docs(page, "| new |\n")
    assert page.read_text() == "no marks\n"


def test_the_docs_have_the_marks() -> None:
    text = (Path(__file__).parents[2] / "docs" / "nexmark.md").read_text()
    assert text.count(BEGIN) == text.count(END) == 1
