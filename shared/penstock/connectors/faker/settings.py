"""The options of the connector ``faker``, with the keys of flink-faker."""

from __future__ import annotations

from penstock.options import Option, OptionSet, integer, text

OWNER = "connector 'faker'"
OPTIONS = OptionSet(
    OWNER,
    [
        Option("rows-per-second", integer, 10_000, "Pace of all readers together; 0 = as fast as can be."),
        Option("number-of-rows", integer, None, "Then the source ends; default: never."),
        Option("seed", integer, 42, "Of the values."),
        Option("locale", text, "en_US", "Language and country of names and addresses."),
    ],
    prefixes=("fields.",),
)  # fmt: skip
