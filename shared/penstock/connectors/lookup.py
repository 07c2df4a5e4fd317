"""The ``lookup.*`` options of tables that lookup joins read: which rows are cached, and for how long."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.errors import ConnectorError, nearest
from penstock.options import Option, OptionSet, boolean, choice, duration_ms, integer
from penstock.types.durations import duration_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.connectors.base import Connector

CACHES = ("NONE", "PARTIAL", "FULL")
_PARTIAL = "lookup.partial-cache."
_FULL = "lookup.full-cache."

#: What the hint LOOKUP sets.
RETRY_ATTEMPTS, RETRY_DELAY = "lookup.retry-missing.max-attempts", "lookup.retry-missing.fixed-delay"

#: A connector adds these to its own options.
LOOKUP_OPTIONS = (
    Option("lookup.cache", choice(*CACHES), None, "NONE: always ask; PARTIAL: keep what was asked for; FULL: keep the whole table."),
    Option("lookup.max-retries", integer, 3, "How often a failed lookup is tried again."),
    Option(RETRY_ATTEMPTS, integer, 0, "How often a key without a row is asked for again: it may come late."),
    Option(RETRY_DELAY, duration_ms, 1000, "The pause before that."),
    Option(_PARTIAL + "max-rows", integer, None, "Keys kept; those unused for longest go first. Default: all."),
    Option(_PARTIAL + "expire-after-write", duration_ms, None, "How long a key is believed after it was asked for."),
    Option(_PARTIAL + "expire-after-access", duration_ms, None, "How long a key stays after its last use."),
    Option(_PARTIAL + "cache-missing-key", boolean, True, "Remember also keys without a row."),
    Option(_FULL + "reload-strategy", choice("PERIODIC"), "PERIODIC", "How the whole table is read again."),
    Option(_FULL + "periodic-reload.interval", duration_ms, None, "Read the whole table again so often. Default: never."),
    Option(_FULL + "periodic-reload.schedule-mode", choice("FIXED_DELAY", "FIXED_RATE"), "FIXED_DELAY", "Interval from end to start, or from start to start."),
)  # fmt: skip
_SET = OptionSet("lookup join", LOOKUP_OPTIONS)


@dataclass(frozen=True, slots=True)
class LookupSettings:
    """The settings of a lookup. Durations are in ms; None: without end."""

    cache: str = "NONE"
    max_retries: int = 3
    max_rows: int | None = None
    expire_after_write_ms: int | None = None
    expire_after_access_ms: int | None = None
    cache_missing_key: bool = True
    reload_interval_ms: int | None = None
    fixed_rate: bool = False
    #: How often a key without a row is asked for again, and the pause before that.
    missing_attempts: int = 0
    missing_delay_ms: int = 1000

    def describe(self) -> str:
        """The join's cache, in words."""
        if self.cache == "NONE":
            return "nothing: every batch asks the table"
        if self.cache == "FULL":
            every = self.reload_interval_ms
            return "the whole table, " + (
                f"read again every {duration_text(every * 1000)}" if every else "read once"
            )
        rows = "all keys asked for" if self.max_rows is None else f"at most {self.max_rows} keys"
        written, used = self.expire_after_write_ms, self.expire_after_access_ms
        limits = [
            f"for {duration_text(written * 1000)}" if written is not None else "",
            f"{duration_text(used * 1000)} after use" if used else "",
        ]
        return ", ".join([rows, *(x for x in limits if x)]) + ("" if any(limits) else ", for ever")


def lookup_settings(connector: Connector, options: Mapping[str, str], *, where: str) -> LookupSettings:
    """The lookup settings of a table. ConnectorError for a cache that the connector does not support, and for
    options of another cache."""
    known = connector.lookup_caches
    if not known:
        raise ConnectorError(
            f"connector '{connector.name}' cannot be looked up by key",
            expected="a table of a connector with lookups in JOIN … FOR SYSTEM_TIME AS OF a processing time",
            got=f"'connector' = '{connector.name}'",
            where=where,
            remedy="use 'jdbc', 'redis', 'rest-lookup', a search server or 'filesystem', or join by event time (FOR SYSTEM_TIME AS OF a row time)",
        )
    cache = _SET.read_one(options, "lookup.cache") or known[0]
    if cache not in known:
        raise ConnectorError(
            f"connector '{connector.name}' has no lookup cache {cache}",
            expected=" | ".join(known),
            got=f"'lookup.cache' = '{cache}'",
            where=where,
            remedy=nearest(cache, known) or f"leave 'lookup.cache' out: it is {known[0]}",
        )
    for prefix, owner in ((_PARTIAL, "PARTIAL"), (_FULL, "FULL")):
        misplaced = next((key for key in options if key.startswith(prefix)), None)
        if misplaced is not None and cache != owner:
            raise ConnectorError(
                f"option '{misplaced}' belongs to another cache",
                expected=f"'lookup.cache' = '{owner}' beside it",
                got=f"'lookup.cache' = '{cache}'",
                where=where,
                remedy=f"set 'lookup.cache' = '{owner}', or remove '{misplaced}'",
            )
    read = {key: _SET.read_one(options, key) for key in _SET.options}
    return LookupSettings(
        cache=cache,
        max_retries=read["lookup.max-retries"],
        max_rows=read[_PARTIAL + "max-rows"],
        expire_after_write_ms=read[_PARTIAL + "expire-after-write"],
        expire_after_access_ms=read[_PARTIAL + "expire-after-access"],
        cache_missing_key=read[_PARTIAL + "cache-missing-key"],
        reload_interval_ms=read[_FULL + "periodic-reload.interval"],
        missing_attempts=read[RETRY_ATTEMPTS],
        missing_delay_ms=read[RETRY_DELAY],
        fixed_rate=read[_FULL + "periodic-reload.schedule-mode"] == "FIXED_RATE",
    )
