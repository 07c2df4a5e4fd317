"""The hint LOOKUP: how often a lookup join asks again for a key that has no row."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from penstock.config import parse_duration_ms
from penstock.connectors.lookup import RETRY_ATTEMPTS, RETRY_DELAY, lookup_settings
from penstock.connectors.registry import get_connector
from penstock.errors import PenstockError
from penstock.sql.errors import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlglot import exp

    from penstock.plan.tables import TableRef
    from penstock.sql.queries import QueryBinder

LOOKUP = "LOOKUP"
_RETRY = ("retry-predicate", "retry-strategy", "fixed-delay", "max-attempts")
_WORDS = {
    "async": ("true", "false"),
    "output-mode": ("ordered", "allow_unordered"),
    "retry-predicate": ("lookup_miss",),
    "retry-strategy": ("fixed_delay",),
}
#: Options that have no meaning here → why.
_WITHOUT_EFFECT = {
    "async": "lookups never hold up the slot's other tasks",
    "output-mode": "rows keep their order",
    "capacity": "all keys of a batch are asked for in one request",
    "timeout": "the connector has its own",
}


def lookup_hint(ctx: QueryBinder, hint: exp.Expression) -> tuple[str, dict[str, str]]:
    """(table, options of the table that the hint stands for). Raises SqlError for an option or value that Flink's hint
    does not have."""
    given: Mapping[str, str] = hint.meta["options"]
    known = ("table", *_WITHOUT_EFFECT, *_RETRY)
    for key, value in given.items():
        if key not in known:
            raise ctx.source.error(
                f"unknown option '{key}' of the hint {LOOKUP}",
                hint,
                expected="one of " + ", ".join(known),
                got=repr(key),
                remedy=did_you_mean(key, known),
            )
        _check(ctx, hint, key, value)
    if "table" not in given:
        raise ctx.source.error(
            f"the hint {LOOKUP} names no table", hint, expected="'table' = 'name or alias'"
        )
    for key in given:
        if key in _WITHOUT_EFFECT:
            ctx.catalog.warnings.append(f"'{key}' of {LOOKUP} has no effect: {_WITHOUT_EFFECT[key]}")
    missing = [key for key in _RETRY if key not in given]
    if len(missing) == len(_RETRY):
        return given["table"], {}
    if missing:
        raise ctx.source.error(
            f"the hint {LOOKUP} says only in part how to ask again",
            hint,
            expected=", ".join(_RETRY),
            got="without " + ", ".join(missing),
        )
    delay = parse_duration_ms(given["fixed-delay"])
    return given["table"], {RETRY_ATTEMPTS: given["max-attempts"], RETRY_DELAY: f"{delay} ms"}


def _check(ctx: QueryBinder, hint: exp.Expression, key: str, value: str) -> None:
    expected = None
    if key in _WORDS and value.lower() not in _WORDS[key]:
        expected = " or ".join(repr(word) for word in _WORDS[key])
    elif key in ("capacity", "max-attempts") and not (value.isdigit() and int(value) > 0):
        expected = "a whole number above 0"
    elif key in ("timeout", "fixed-delay"):
        try:
            parse_duration_ms(value)
        except (PenstockError, ValueError):
            expected = "a duration, e.g. '10 s'"
    if expected is not None:
        raise ctx.source.error(f"'{key}' of the hint {LOOKUP}", hint, expected=expected, got=repr(value))


def hinted_table(ctx: QueryBinder, table: TableRef, name: str | None) -> TableRef:
    """The table of a lookup join with what the hints say of it. ``name``: its name or alias."""
    options = ctx.hints.lookups.get(name or "")
    if options is None:
        return table
    ctx.hints.kept.add(f"{LOOKUP} {name}")
    merged = {**table.options, **options}
    if options and lookup_settings(get_connector(table.connector), merged, where=table.name).cache == "FULL":
        ctx.catalog.warnings.append(
            f"{LOOKUP} of '{name}' has no effect: its cache is FULL, which is asked for no key"
        )
    return msgspec.structs.replace(table, options=merged)
