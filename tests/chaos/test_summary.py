"""The tables that are made of a log."""

from tests.chaos.summary import tables

FAULT = {"fault": 1, "kind": "kill-slot", "restored": 7}
RUN = {
    "run": "q5 1", "faults": 3, "attempts": 2, "rows": {"files": 1000, "stream": 500}, "digest": "d",
    "fault_free": "d", "wrong": [],
}  # fmt: skip


def test_faults_are_counted_by_kind_and_runs_listed() -> None:
    text = tables(
        [
            FAULT,
            {**FAULT, "restored": 12},
            {"fault": 3, "kind": "kill-nats", "restored": None},
            {"fault": 4, "kind": "full-disk", "skipped": "not root"},
            RUN,
        ]
    )
    assert "| `kill-slot` | 2 | restart | 2 | 7–12 |" in text
    assert "| `kill-nats` | 1 | stay | 0 | – |" in text
    assert "| all | 3 | | 2 | |" in text
    assert "| q5 1 | 3 | 2 | 1,500 | `d` | `d` | 0 |" in text
    assert text.endswith("Skipped: `full-disk` 1×.\n")
