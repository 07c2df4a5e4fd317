"""``penstock info JOB --checkpoints`` and ``--checkpoint ID``: the job's last checkpoints, and what each
subtask did for one of them."""

from __future__ import annotations

import json
from typing import Any

from penstock.api.client import ClusterClient
from penstock.cli.showing import find_job, last_checkpoint, print_table, when


def show_checkpoints(url: str, start: str, format_: str) -> None:
    """Print the last checkpoints of the job whose id begins with ``start``, as a table or as JSON (``format_``)."""
    with ClusterClient(url, patience_s=2) as client:
        known = client.checkpoints(find_job(client, start))
    if format_ == "json":
        print(json.dumps(known, indent=2))
        return
    print(", ".join(f"{n} {name}" for name, n in known["counts"].items()))
    print_table(
        ["id", "kind", "status", "began", "took", "acknowledged", "written", "with its chain", "held up by"],
        [history_row(checkpoint) for checkpoint in known["history"]],
    )


def history_row(checkpoint: dict[str, Any]) -> list[Any]:
    """The cells of one checkpoint, in the order of the columns of ``show_checkpoints``."""
    slowest = checkpoint.get("slowest")
    held_up = f"{slowest['operator']} {slowest['phase']}, {slowest['ms']:,} ms" if slowest else ""
    took = checkpoint["end_to_end_duration"]
    return [
        checkpoint["id"] or "",
        checkpoint["kind"],
        checkpoint["status"],
        when(checkpoint["trigger_timestamp"]),
        f"{took:,} ms" if took >= 0 else "",
        f"{checkpoint['num_acknowledged_subtasks']}/{checkpoint['num_subtasks']}",
        size(checkpoint["checkpointed_size"]),
        size(checkpoint["state_size"]),
        checkpoint.get("failure_message") or held_up,
    ]


def show_checkpoint(url: str, start: str, checkpoint_id: str, format_: str) -> None:
    """Print one checkpoint and what each subtask did for it, as a table or as JSON (``format_``)."""
    with ClusterClient(url, patience_s=2) as client:
        job_id = find_job(client, start)
        found = client.checkpoint_details(job_id, checkpoint_id)
        names = {v["id"]: v["name"] for v in client.job(job_id)["vertices"]}
        subtasks = {v: client.checkpoint_subtasks(job_id, checkpoint_id, v) for v in found["tasks"]}
    if format_ == "json":
        print(json.dumps({**found, "subtasks": subtasks}, indent=2))
        return
    print(last_checkpoint(found))
    rows = [
        subtask_row(names.get(vertex, vertex), subtask, found["status"])
        for vertex, of_vertex in subtasks.items()
        for subtask in of_vertex["subtasks"]
    ]
    print_table(
        ["subtask", "status", "took", "waited", "aligned", "cut", "written in", "bytes", "in flight"], rows
    )


def subtask_row(name: str, subtask: dict[str, Any], status: str) -> list[Any]:
    """The cells of one subtask: name, alignment, times in ms, bytes written and bytes of unaligned data.

    The times are: until the barrier came, alignment of the inputs, the synchronous part (the task stands
    still), and the asynchronous part (the task goes on).
    """
    title = f"{name[:40]} #{subtask['index'] + 1}"
    if "ack_timestamp" not in subtask:
        # In a complete checkpoint such a subtask had finished; its final snapshot is older.
        return [title, "finished" if status == "COMPLETED" else "not acknowledged"] + [""] * 7
    alignment, checkpoint = subtask["alignment"], subtask["checkpoint"]
    times = (subtask["start_delay"], alignment["duration"], checkpoint["sync"], checkpoint["async"])
    return [
        title,
        "unaligned" if subtask["unaligned_checkpoint"] else "aligned",
        f"{subtask['end_to_end_duration']:,} ms",
        *(f"{ms:,.1f} ms" for ms in times),
        size(subtask["checkpointed_size"]),
        size(alignment["persisted"]) if alignment["persisted"] else "",
    ]


def size(n: int) -> str:
    """Bytes as text, for example ``12.3 MB``."""
    return f"{n / 1e6:,.1f} MB" if n >= 100_000 else f"{n / 1e3:,.1f} kB"


def restoring(vertices: list[dict[str, Any]]) -> str | None:
    """``restoring: 120.0 MB of 1,000.0 MB (80.0 MB of it from local disks)``; None if no vertex restores state."""
    known = [v["metrics"]["restore"] for v in vertices if v.get("metrics", {}).get("restore")]
    if not known:
        return None
    total, read, local = (sum(r[name] for r in known) for name in ("bytes", "read", "local"))
    text = f"restoring: {size(read)} of {size(total)}"
    return f"{text} ({size(local)} of it from local disks)" if local else text
