"""Statements of Flink that the parser recognises only to refuse them by name, with what to do instead."""

from __future__ import annotations

_EXTERNAL = "a table is a name for what lies elsewhere: change its rows there, or write a query's result to another table"
_NO_JARS = "functions and connectors are Python: -py FILE, CREATE FUNCTION … LANGUAGE PYTHON, 'connector' = 'python:module:Class'"
_NO_MODULES = "all built-in functions are there; your own come with CREATE FUNCTION"
_MATERIALIZED = "INSERT INTO a table, in a job that runs on"
_MODEL = "call the model in a Python function"
_CONNECTION = (
    "write the options into the table or catalog, and what is secret as 'secret:NAME' (docs/secrets.md)"
)
_FUNCTION = "DROP FUNCTION and CREATE FUNCTION again"

#: The leading words of a statement → what to do instead. The longest match counts.
REFUSED: dict[str, str] = {
    "ADD CUSTOM JAR": _NO_JARS,
    "ADD JAR": _NO_JARS,
    "ALTER CONNECTION": _CONNECTION,
    "ALTER FUNCTION": _FUNCTION,
    "ALTER MATERIALIZED TABLE": _MATERIALIZED,
    "ALTER MODEL": _MODEL,
    "ALTER TEMPORARY FUNCTION": _FUNCTION,
    "ALTER TEMPORARY SYSTEM FUNCTION": _FUNCTION,
    "ANALYZE TABLE": "leave it out: plans do not depend on statistics",
    "CREATE CONNECTION": _CONNECTION,
    "CREATE MATERIALIZED TABLE": _MATERIALIZED,
    "CREATE MODEL": _MODEL,
    "CREATE OR ALTER MATERIALIZED TABLE": _MATERIALIZED,
    "CREATE TEMPORARY CONNECTION": _CONNECTION,
    "CREATE TEMPORARY MODEL": _MODEL,
    "CREATE TEMPORARY SYSTEM CONNECTION": _CONNECTION,
    "DESC CONNECTION": _CONNECTION,
    "DESC MODEL": _MODEL,
    "DESCRIBE CONNECTION": _CONNECTION,
    "DESCRIBE MODEL": _MODEL,
    "DROP CONNECTION": _CONNECTION,
    "DROP MATERIALIZED TABLE": _MATERIALIZED,
    "DROP MODEL": _MODEL,
    "DROP TEMPORARY CONNECTION": _CONNECTION,
    "DROP TEMPORARY MODEL": _MODEL,
    "DROP TEMPORARY SYSTEM CONNECTION": _CONNECTION,
    "LOAD MODULE": _NO_MODULES,
    "MERGE": _EXTERNAL,
    "REMOVE JAR": _NO_JARS,
    "REPLACE TABLE": "DROP TABLE IF EXISTS, then CREATE TABLE … AS",
    "SHOW CONNECTIONS": _CONNECTION,
    "SHOW CREATE CONNECTION": _CONNECTION,
    "SHOW CREATE MATERIALIZED TABLE": _MATERIALIZED,
    "SHOW CREATE MODEL": _MODEL,
    "SHOW CREATE OR ALTER MATERIALIZED TABLE": _MATERIALIZED,
    "SHOW JARS": _NO_JARS,
    "SHOW MATERIALIZED TABLES": _MATERIALIZED,
    "SHOW MODELS": _MODEL,
    "UNLOAD MODULE": _NO_MODULES,
    "UPSERT INTO": "INSERT INTO: a table with a PRIMARY KEY takes updates",
    "USE MODULES": _NO_MODULES,
}

#: The refused word after ALTER TABLE t → what to do instead.
REFUSED_CHANGES: dict[str, str] = {
    "COMPACT": _EXTERNAL,
}

#: A process table function that Flink brings → what to do instead.
REFUSED_TABLE_FUNCTIONS: dict[str, str] = {
    "FROM_CHANGELOG": "a table whose format reads changes: debezium-json, canal-json, maxwell-json (docs/connectors.md)",
    "ML_EVALUATE": "call the model in a Python function, and compare its answers in a query",
    "ML_PREDICT": "call the model in a Python function",
    "TO_CHANGELOG": "a sink whose format writes changes: debezium-json (docs/connectors.md)",
    "VECTOR_SEARCH": "call the index in an asynchronous Python function",
}
_PROCESS_FUNCTION = "write it as a KeyedProcessFunction of the DataStream API: from_changelog_stream and to_changelog_stream lead there and back"


def table_function_remedy(name: str) -> str:
    """What to do instead of a process table function."""
    return REFUSED_TABLE_FUNCTIONS.get(name.upper(), _PROCESS_FUNCTION)


def refused_words(words: list[str]) -> str | None:
    """The refused statement that a text's first words begin, if one does."""
    for length in range(min(6, len(words)), 0, -1):
        if " ".join(words[:length]) in REFUSED:
            return " ".join(words[:length])
    return None
