"""A job graph as a compiled plan: a JSON file that another session, or a later version, runs.

``{"penstockPlanVersion": 1, "writtenBy": …, "python": …, "explain": [lines], "jobGraph": {…}, "checksum":
…}``. The checksum is that of the content, not of the bytes: a reformatted plan is still the same. The file
holds nothing that depends on the statement's place in its script, or on a single start of the job (the
savepoint that it began from). Fields are only added, with defaults. A change that a reader of today would
misread gets a version and a reader of its own in ``_READERS``.
"""

from __future__ import annotations

import hashlib
import json
import platform
from typing import Any, TypeVar

import msgspec

from penstock import __version__
from penstock.config import RECOVERY_IGNORE_UNCLAIMED, RECOVERY_KEEP_STATE, RECOVERY_PATH
from penstock.errors import SpecError, nested_too_deeply
from penstock.functions.expr import Call
from penstock.jobgraph.graph import JobGraph
from penstock.jobgraph.specs import SparkQuerySpec
from penstock.plan.engine import decode_content, encode_content

VERSION = 1
#: Name of the job's plan in a savepoint's folder.
PLAN_NAME = "plan.json"
VERSION_FIELD = "penstockPlanVersion"
_CHECKSUM = "checksum"
#: Settings that belong to one start of a job.
_OF_ONE_START = (RECOVERY_PATH.key, RECOVERY_IGNORE_UNCLAIMED.key, RECOVERY_KEEP_STATE.key)
_RECOMPILE = "compile the statement again (COMPILE PLAN … with 'table.plan.force-recompile' = 'true')"

T = TypeVar("T")


def encode_plan(graph: JobGraph) -> bytes:
    """The file's content as UTF-8. A statement gives the same content at any place in a script."""
    bare = _without_positions(
        msgspec.structs.replace(
            graph,
            config={k: v for k, v in sorted(graph.config.items()) if k not in _OF_ONE_START},
            matched_to="",
            plan="",
        )
    )
    tree = msgspec.to_builtins(bare)
    for vertex, built in zip(bare.vertices, tree["vertices"], strict=True):
        for node, operator in zip(vertex.operators, built["operators"], strict=True):
            if isinstance(node.spec, SparkQuerySpec):
                operator["spec"]["graph"] = _readable(node.spec.graph)
    if bare.backfill:
        tree["backfill"] = _readable(bare.backfill)
    document = {
        VERSION_FIELD: VERSION,
        "writtenBy": __version__,
        "python": _python(),
        "explain": graph.plan.split("\n"),
        "jobGraph": tree,
    }
    document[_CHECKSUM] = _checksum(document)
    return (json.dumps(document, indent=2, ensure_ascii=False) + "\n").encode()


def written_by(data: bytes) -> str:
    """The version of Penstock that wrote a compiled plan."""
    return str(json.loads(data)["writtenBy"])


def decode_plan(data: bytes, where: str) -> JobGraph:
    """The job graph of a compiled plan. Raises SpecError, which names ``where``, if ``data`` is no plan, is
    damaged, has a newer version, or needs something that this Penstock does not have."""
    try:
        document = json.loads(data)
    except RecursionError as err:
        raise nested_too_deeply("compiled plan", where) from err
    except ValueError as err:
        raise _damaged("it is not JSON", str(err), where) from err
    if not isinstance(document, dict) or VERSION_FIELD not in document:
        foreign = isinstance(document, dict) and "flinkVersion" in document
        raise SpecError(
            "the file is no compiled plan of Penstock",
            expected=f"a JSON object with the field '{VERSION_FIELD}'",
            got="a compiled plan of Flink's" if foreign else "other JSON",
            where=where,
            remedy="COMPILE PLAN the statement here"
            + (": Flink's plans hold classes of Flink's" if foreign else ""),
        )
    version = document[VERSION_FIELD]
    reader = _READERS.get(version) if isinstance(version, int) else None
    if reader is None:
        newer = isinstance(version, int) and version > VERSION
        raise SpecError(
            f"the compiled plan is of {'a newer' if newer else 'an unknown'} version",
            expected=f"version {VERSION}, which Penstock {__version__} reads",
            got=f"version {version}, written by Penstock {document.get('writtenBy', '(unknown)')}",
            where=where,
            remedy=f"run it with that version of Penstock, or {_RECOMPILE}",
        )
    if _checksum(document) != document.get(_CHECKSUM):
        raise _damaged("its checksum is not that of its content", str(document.get(_CHECKSUM)), where)
    return reader(document, where)


def _read_1(document: dict[str, Any], where: str) -> JobGraph:
    try:
        tree = document["jobGraph"]
        for vertex in tree["vertices"]:
            for operator in vertex["operators"]:
                if operator["spec"].get("op") == SparkQuerySpec.__struct_config__.tag:
                    operator["spec"]["graph"] = _content(operator["spec"]["graph"])
        if tree["backfill"]:
            tree["backfill"] = _content(tree["backfill"])
        graph = msgspec.convert(tree, JobGraph)
        plan = "\n".join(document["explain"])
    except msgspec.ValidationError as err:
        raise SpecError(
            "the compiled plan holds what this Penstock does not have",
            expected=f"operators, types and fields of Penstock {__version__}",
            got=str(err),
            where=where,
            remedy=f"run it with Penstock {document.get('writtenBy', '(unknown)')}, or {_RECOMPILE}",
        ) from err
    except (KeyError, TypeError, AttributeError) as err:
        raise _damaged("a part of it is missing", f"{type(err).__name__}: {err}", where) from err
    except RecursionError as err:
        raise nested_too_deeply("compiled plan", where) from err
    written = document.get("python")
    if written != _python() and any(f.module is None for f in graph.functions.values()):
        names = ", ".join(sorted(name for name, f in graph.functions.items() if f.module is None))
        raise SpecError(
            "the compiled plan holds Python functions of another version of Python",
            expected=f"Python {_python()}",
            got=f"Python {written}, for {names}",
            where=where,
            remedy=f"run it with Python {written}, or {_RECOMPILE}",
        )
    return msgspec.structs.replace(graph, plan=plan)


#: Version → the function that reads it. Every version that was ever written stays readable.
_READERS = {1: _read_1}


def _damaged(what: str, got: str, where: str) -> SpecError:
    return SpecError(
        f"the compiled plan is damaged: {what}",
        expected="a file as COMPILE PLAN wrote it; it may be laid out anew, but not changed",
        got=got,
        where=where,
        remedy=f"take it from a backup, or {_RECOMPILE}",
    )


def _checksum(document: dict[str, Any]) -> str:
    """SHA-256 of all fields except the checksum itself."""
    content = {key: value for key, value in document.items() if key != _CHECKSUM}
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _python() -> str:
    """The minor version of Python, which pickled functions depend on."""
    return ".".join(platform.python_version_tuple()[:2])


def _readable(content: str) -> Any:
    """The content of ``SparkQuerySpec.graph``, as JSON."""
    return msgspec.to_builtins(_without_positions(decode_content(content)))


def _content(tree: Any) -> str:
    return encode_content(msgspec.convert(tree, JobGraph))


def _without_positions(part: T) -> T:
    """The part with all calls stripped of their line and column in the script."""
    made: Any = part
    if isinstance(part, tuple):
        made = tuple(_without_positions(item) for item in part)
    elif isinstance(part, dict):
        made = {key: _without_positions(value) for key, value in part.items()}
    elif isinstance(part, msgspec.Struct):
        fields = {name: _without_positions(getattr(part, name)) for name in part.__struct_fields__}
        if isinstance(part, Call):
            fields |= {"line": 0, "column": 0, "within": ""}
        made = type(part)(**fields)
    plain: T = made
    return plain
