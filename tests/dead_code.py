"""Finds code of the product that nothing uses: ``python -m tests.dead_code``, a part of ``make check``.

vulture reads the product with its tests, benchmarks and examples. What it calls unused is an error here,
unless the list below says who uses it.
"""

from __future__ import annotations

import fnmatch
import importlib
import inspect
import sys
from pathlib import Path

import vulture

ROOT = Path(__file__).parents[1]
PRODUCT = ("shared/penstock", "services")
USERS = ("tests", "bench", "examples")
#: Fields of messages, configuration options and table entries are read by their names: not looked at.
KINDS = ("class", "function", "import", "method", "property", "unreachable_code")

#: (file pattern, name pattern) → who uses it.
ALLOWED = {
    ("*/__init__.py", "__getattr__"): "Python, for names that are loaded when first asked for",
    ("*/__init__.py", "__dir__"): "Python, for dir()",
    ("*", "__class_getitem__"): "Python, for Function[int, str]",
    ("*/compat/pyflink/*.py", "__dir__"): "Python, for dir()",
    ("*/api/typeinfo.py", "*_ARRAY"): "programs, through Types",
    ("*/state/ttl_config.py", "*"): "programs, through StateTtlConfig.new_builder",
    (
        "*/state/descriptors.py",
        "get_*_function",
    ): "programs, through the descriptors that penstock.api exports",
    ("*/columnar/rows.py", "*"): "programs, through the Row that penstock.api exports",
    (
        "*/operators/triggers.py",
        "is_*",
    ): "programs, through the TriggerResult that penstock.api exports",
    ("*/api/config_options.py", "*_type"): "programs of PyFlink, through ConfigOptions",
    ("*/operators/accumulators.py", "*"): "programs, through RuntimeContext.add_accumulator",
    ("*/api/execution.py", "get_accumulators"): "programs, through the JobClient that penstock.api exports",
    ("*/connectors/*.py", "*Connector"): "the register of connectors, by import path",
    ("*/formats/*.py", "*Format"): "the register of formats, by import path",
    ("*/store/open.py", "open_*"): "the register of object stores, by import path",
    ("*/leases/__init__.py", "_open_*"): "the register of lease stores, by import path",
    ("*/operators/*.py", "*Operator"): "the factory of operators, by import path",
    ("*/operators/*.py", "make_*"): "the factory of operators, by import path",
    ("*/runtime/spark_query.py", "SparkQueryOperator"): "the factory of operators, by import path",
    ("*/plan/operators/*.py", "*"): "traits of plan nodes, by the name of the operator",
    ("*/spark/aggregates.py", "*"): "Spark translations of specs, by name",
    ("*/spark/ordering.py", "*"): "Spark translations of specs, by name",
    ("*/columnar/frames.py", "*"): "window functions, by the name of the SQL function",
    ("*/api/connected.py", "process_element*"): "the runtime, which calls a user function by name",
    ("*/cli/main.py", "*"): "typer, which registers a command by its decorator",
    ("*/cli/shell.py", "get_completions"): "prompt_toolkit",
    ("*/common/http_serving.py", "capture_signals"): "uvicorn",
    ("*/http/listening.py", "capture_signals"): "uvicorn",
    ("*/formats/avro/files.py", "seekable"): "fastavro, of the file that it writes to",
    ("*", "_repr_html_"): "a notebook, which shows the object",
    ("*/notebook.py", "*load_ipython_extension"): "IPython, for %load_ext and %unload_ext",
    ("*/mqtt/client.py", "_on_*"): "aiomqtt, whose methods these replace",
    ("*/reconnecting.py", "_process_err"): "nats-py, whose method it replaces",
    ("*/sql/dialect.py", "_parse_*"): "sqlglot, whose methods these replace",
    ("*/sql/dialect.py", "_is_table_query"): "sqlglot, whose method this replaces",
    ("*/sql/parser_base.py", "_parse_*"): "sqlglot, whose methods these replace",
    ("*/sql/ddl_syntax.py", "_parse_*"): "sqlglot, whose methods these replace",
    ("*/spark/datasource.py", "*"): "pyspark's data source interface",
    ("*/spark/stream_source.py", "*Offset"): "pyspark's data source interface",
    ("*/spark/stream_state.py", "handle*"): "pyspark's stateful processor interface",
    ("*/filesystem/*.py", "writable"): "io.RawIOBase",
    ("*/filesystem/*.py", "seekable"): "io.RawIOBase",
    ("*/runtime/output_files.py", "writable"): "io.TextIOBase",
    ("*/testing/simulation/*.py", "*"): "asyncio, whose loop and transports are simulated",
    ("*/state/backends.py", "hashmap"): "the register of state backends, by import path",
    ("*/state/backends.py", "leveldb"): "the register of state backends, by import path",
    ("*/testing/*.py", "*"): "authors of connectors, formats and stores",
}
#: Where the public APIs are defined.
API = ("shared/penstock/api/", "shared/penstock/operators/", "shared/penstock/table/")


def for_users() -> set[str]:
    """Names of the public APIs: methods of what ``penstock.api`` and ``penstock.table`` export, and of what these
    return."""
    names: set[str] = set()
    for api in map(importlib.import_module, ("penstock.api", "penstock.table")):
        exported = [getattr(api, name) for name in api.__all__]
        modules = {sys.modules[c.__module__] for c in exported if inspect.isclass(c)}
        classes = [c for m in modules for c in vars(m).values() if inspect.isclass(c)]
        classes += [c for outer in classes for c in vars(outer).values() if inspect.isclass(c)]
        names |= {name for c in classes for name in dir(c) if not name.startswith("_")} | set(api.__all__)
    return names


def dead_code() -> list[str]:
    """One line for each unused thing that nobody is named for."""
    reader = vulture.Vulture()
    reader.scavenge([str(ROOT / folder) for folder in (*PRODUCT, *USERS)])
    public = for_users()
    found = []
    for item in reader.get_unused_code(min_confidence=60):
        file = item.filename.relative_to(ROOT).as_posix()
        if not file.startswith(PRODUCT) or item.typ not in KINDS:
            continue
        if file.startswith(API) and item.name in public:
            continue
        if any(fnmatch.fnmatch(file, f) and fnmatch.fnmatch(item.name, n) for f, n in ALLOWED):
            continue
        found.append(f"{file}:{item.first_lineno}: nothing uses the {item.typ} {item.name}")
    return found


def main() -> int:
    found = dead_code()
    for line in found:
        print(line)
    if found:
        print("Remove it, or say in tests/dead_code.py who uses it.", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
