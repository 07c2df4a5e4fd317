"""Flink's SQL dialect: text → statements → typed logical plan.

``dialect`` (tokens and expressions) → ``statements`` (one dataclass a statement) →
``catalog`` and ``binder`` (names and types) → ``session`` (what a client talks to).
"""
