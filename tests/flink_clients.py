"""Flink's own Java clients, where the settings name them.

``PENSTOCK_FLINK_CLASSPATH``: Flink's jars and the classes of a validator ``Validate BASE SPEC name=value…``, which
gets each path of the table and reads the answer with Flink's response class. ``PENSTOCK_FLINK_SPEC``: that table.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

CLASSPATH = os.environ.get("PENSTOCK_FLINK_CLASSPATH", "")
SPEC = os.environ.get("PENSTOCK_FLINK_SPEC", "")
HAVE_CLIENTS = bool(CLASSPATH and SPEC and shutil.which("java"))

#: Why there is nothing behind a path: its answer is 404, or 400 where it could never be another.
_ABSENT = {
    ":triggerid": "no request was made",
    ":rescaleuuid": "no running job is rescaled",
    "profiler/:filename": "nothing was profiled",
    "logs/:filename": "each process has files of its own",
    "/jars/": "no code package was uploaded",
}
#: Fields that Flink leaves out as well while there is nothing to say.
_MAY_LACK = {".job-execution-result"}


def endpoints() -> dict[tuple[str, str], str]:
    """(method, path with * for its parameters) → status, of the table."""
    rows = [line.split("\t")[:3] for line in Path(SPEC).read_text().splitlines()]
    parts = [(method, path.split("/"), status) for method, path, status in rows]
    return {
        (method, "/".join("*" if part.startswith(":") else part for part in path)): status
        for method, path, status in parts
    }


def validation(url: str, **names: str) -> list[str]:
    """The command that reads every answer. ``names``: jobid, vertexid …"""
    given = [f"{name}={value}" for name, value in names.items()]
    return ["java", "-cp", CLASSPATH, "Validate", url, SPEC, *given]


def command_line(url: str, command: str, *arguments: str) -> list[str]:
    """Flink's command line client on a cluster."""
    address = url.removeprefix("http://")
    main = "org.apache.flink.client.cli.CliFrontend"
    return ["java", "-cp", CLASSPATH, main, command, "-m", address, *arguments]


def problems(output: str) -> list[str]:
    """Of what the validator printed: answers that Flink's client does not read, and fields that they lack."""
    lines = [line.split("\t") for line in output.splitlines()]
    assert len(lines) == 73, output[-2_000:]
    found = []
    for path, status, *verdict in lines:
        if any(part in path for part in _ABSENT) and status in ("400", "404"):
            continue
        if status != "200" or verdict[0] not in ("reads", "untyped"):
            found.append(f"{path}  {status}  {'  '.join(verdict)}")
        elif lacking := [field for field in _missing(verdict) if field not in _MAY_LACK]:
            found.append(f"{path} lacks {lacking}")
    return found


def _missing(verdict: list[str]) -> list[str]:
    """Fields that Flink's answer has and ours has not, unless ours says null or {} for what they are in."""
    fields = {word.partition(" ")[0]: word.partition("[")[2][:-1].split(", ") for word in verdict[1:]}
    nothing = fields.get("HAVE", [])
    return [
        field
        for field in fields.get("MISSING", [])
        if field.startswith((".", "["))
        and not any(field.startswith((f"{n}.", f"{n}[", f"{n}{{")) for n in nothing)
    ]
