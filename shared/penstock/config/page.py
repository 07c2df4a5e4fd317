"""``docs/configuration.md``: every key, its default and meaning."""

from __future__ import annotations

from penstock.config.option import FAMILIES, OPTIONS


def markdown() -> str:
    """``docs/configuration.md``: every key, its default and meaning."""
    lines = [
        "# Configuration",
        "",
        "Made by `python -m penstock.config > docs/configuration.md`; a test holds it to the code.",
        "",
        "Keys are Flink's where Flink has one. A service reads them from the YAML file given with",
        "`--config` (or named by `PENSTOCK_CONF`) and from `-D key=value`; a job from its spec's `config`,",
        "from `SET 'key' = 'value'` in SQL, and from the CLI's `-D`. Durations: `200 ms`, `10 s`, `3 h`",
        "(a bare number is milliseconds). Sizes: `64 mb`. Keys below `user.` are your own.",
        "",
        "Options of the cluster are read by its services when they start; a job that sets one is refused.",
        "",
        "| key | default | allowed | of | meaning |",
        "|---|---|---|---|---|",
    ]
    rows = {f"{family.prefix}…": f" |  | {family.scope} | {family.doc}" for family in FAMILIES}
    for option in OPTIONS.values():
        shown = f"`{option.shown(option.default)}`" if option.default != "" else ""
        rows[option.key] = f"{shown} | {option.bounds()} | {option.scope} | {option.doc}"
    lines += [f"| `{key}` | {row} |" for key, row in sorted(rows.items())]
    return "\n".join(lines) + "\n"
