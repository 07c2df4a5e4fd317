"""Statements of Flink that the parser recognises only to refuse them by name, with what to do instead."""

from __future__ import annotations

_EXTERNAL = "a table is a name for what lies elsewhere: change its rows there, or write a query's result to another table"
_NO_JARS = "functions and connectors are Python: -py FILE, CREATE FUNCTION … LANGUAGE PYTHON, 'connector' = 'python:module:Class'"
_NO_MODULES = "all built-in functions are there; your own come with CREATE FUNCTION"
_MATERIALIZED = "INSERT INTO a table, in a job that runs on"

#: The leading words of a statement → what to do instead. The longest match counts.
REFUSED: dict[str, str] = {
    "ADD CUSTOM JAR": _NO_JARS,
    "ADD JAR": _NO_JARS,
    "ALTER FUNCTION": "DROP FUNCTION and CREATE FUNCTION again",
    "ALTER MATERIALIZED TABLE": _MATERIALIZED,
    "ALTER MODEL": "call the model in a Python function",
    "ANALYZE TABLE": "leave it out: plans do not depend on statistics",
    "CREATE MATERIALIZED TABLE": _MATERIALIZED,
    "CREATE MODEL": "call the model in a Python function",
    "CREATE OR ALTER MATERIALIZED TABLE": _MATERIALIZED,
    "DESCRIBE MODEL": "call the model in a Python function",
    "DROP MATERIALIZED TABLE": _MATERIALIZED,
    "DROP MODEL": "call the model in a Python function",
    "LOAD MODULE": _NO_MODULES,
    "MERGE": _EXTERNAL,
    "REMOVE JAR": _NO_JARS,
    "REPLACE TABLE": "DROP TABLE IF EXISTS, then CREATE TABLE … AS",
    "SHOW CREATE MATERIALIZED TABLE": _MATERIALIZED,
    "SHOW CREATE MODEL": "call the model in a Python function",
    "SHOW JARS": _NO_JARS,
    "SHOW MATERIALIZED TABLES": _MATERIALIZED,
    "SHOW MODELS": "call the model in a Python function",
    "UNLOAD MODULE": _NO_MODULES,
    "USE MODULES": _NO_MODULES,
}

#: The refused word after ALTER TABLE t → what to do instead.
REFUSED_CHANGES: dict[str, str] = {
    "COMPACT": _EXTERNAL,
}


def refused_words(words: list[str]) -> str | None:
    """The refused statement that a text's first words begin, if one does."""
    for length in range(min(5, len(words)), 0, -1):
        if " ".join(words[:length]) in REFUSED:
            return " ".join(words[:length])
    return None
