"""The options of the ``hybrid`` connector."""

from __future__ import annotations

from penstock.options import Option, OptionSet, text

OPTIONS = OptionSet(
    "connector 'hybrid'",
    [
        Option("history.connector", text, None, "The bounded part's connector; its options follow as history.<option>.", required=True),
        Option("live.connector", text, None, "The connector of what follows; its options follow as live.<option>.", required=True),
        Option("switch.column", text, None, "The column that says to which part a row belongs."),
        Option("switch.at", text, None, "History gives the rows below this value of that column, live those from it on."),
    ],
    prefixes=("history.", "live."),
)  # fmt: skip
