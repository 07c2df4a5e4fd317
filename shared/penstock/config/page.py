"""The page ``docs/configuration.md``: every key with its default and meaning."""

from __future__ import annotations

from penstock.config.option import FAMILIES, OPTIONS

#: Heading → prefixes of the keys below it. A key is listed under the heading with the longest prefix that
#: fits.
_SECTIONS = {
    "Jobs": (
        "python.",
        "execution.",
        "parallelism.",
        "pipeline.",
        "rest.address",
        "nats.",
        "user.",
        "client.",
    ),
    "Checkpoints, savepoints, state": ("execution.checkpointing.", "execution.state-recovery.", "state."),
    "Restarts": ("restart-strategy.", "jobmanager.execution."),
    "SQL": ("table.", "sql-client."),
    "Spark and backfills": ("spark.", "execution.backfill.", "taskmanager.spark."),
    "Cluster": (
        "cluster.",
        "heartbeat.",
        "high-availability.",
        "io.",
        "metrics.",
        "rest.",
        "resourcemanager.",
        "slot.",
        "slotmanager.",
        "storage.",
    ),
    "Task managers": ("taskmanager.",),
    "SQL gateway": ("sql-gateway.",),
    "History server": ("historyserver.",),
    "Security": ("security.", "secrets."),
    "Traces": ("traces.",),
}


def _section(key: str) -> str:
    fitting = [
        (len(start), title)
        for title, starts in _SECTIONS.items()
        for start in starts
        if key.startswith(start)
    ]
    return max(fitting)[1]


def markdown() -> str:
    """The whole page as Markdown. Raises ValueError for a key that fits no heading."""
    lines = [
        "# Configuration",
        "",
        "Made by `python -m penstock.config > docs/configuration.md`; a test holds it to the code.",
        "",
        "Keys are Flink's where Flink has one. A service reads them from the YAML file given with",
        "`--config` (or named by `PENSTOCK_CONF`) and from `-D key=value`; a job from its spec's `config`,",
        "from `SET 'key' = 'value'` in SQL, and from the command line's `-D`. Durations: `200 ms`, `10 s`, `3 h`",
        "(a bare number is milliseconds). Sizes: `64 mb`. Keys below `user.` are your own.",
        "",
        "Services read the options of the cluster when they start; a job that sets one is refused. A job's option in the",
        "services' configuration is the [default of the cluster's jobs](operations.md#defaults-of-jobs); an option of one",
        "job is refused there. An unknown key is refused too, with the nearest known one. [Tuning](tuning.md) says which options are worth a change.",
    ]
    rows = {f"{family.prefix}…": f" |  | {family.scope} | {family.doc}" for family in FAMILIES}
    for option in OPTIONS.values():
        shown = f"`{option.shown(option.default)}`" if option.default != "" else ""
        rows[option.key] = f"{shown} | {option.bounds()} | {option.scope} | {option.doc}"
    for title in _SECTIONS:
        lines += [
            "",
            f"## {title}",
            "",
            "| key | default | allowed | of | meaning |",
            "|---|---|---|---|---|",
        ]
        lines += [f"| `{key}` | {row} |" for key, row in sorted(rows.items()) if _section(key) == title]
    return "\n".join(lines) + "\n"
