"""The options of the ``nexmark`` connector."""

from __future__ import annotations

from penstock.options import Option, OptionSet, duration_ms, integer

OPTIONS = OptionSet(
    "connector 'nexmark'",
    [
        Option("events.num", integer, None, "Number of events of all kinds; default: without end."),
        Option("rate", integer, 10_000, "Events a second of event time."),
        Option("rows-per-second", integer, 0, "Events a second of real time, all readers together; 0 = as fast as can be."),
        Option("seed", integer, 42, "Of everything random."),
        Option("out-of-order", duration_ms, 0, "An event's time lags its place in the order by up to this."),
        Option("base-time-ms", integer, 1_700_000_000_000, "Time of the first event, ms since the epoch."),
        Option("splits", integer, None, "Splits that share the events; default: one a reader."),
    ],
)  # fmt: skip
