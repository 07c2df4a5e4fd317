"""Flink's SQL dialect: text → statements → typed logical plan.

``parsing`` reads a text, with the tokens and expressions of ``dialect``, into ``statements``: one dataclass
for each kind. ``catalog`` holds what a session has declared. ``queries`` resolves names and types. A client
talks to ``session``, which runs the statements.
"""
