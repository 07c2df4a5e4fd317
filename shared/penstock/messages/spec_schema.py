"""The JSON Schema of a job spec, made from ``JobSpec``, for editors and for programs that check specs before they send
them. ``docs/job-spec.schema.json`` is its text (``penstock schema job``)."""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.messages.cluster import JobSpec

_DESCRIPTIONS = {
    "name": "The job's name; default: the program's.",
    "job_id": "An id of your own, so that a repeated submission starts nothing; 32 hex digits for Flink's clients.",
    "sql": "A script whose INSERTs, or whose one SELECT, make one job.",
    "python": "The source text of a module that builds a job on StreamExecutionEnvironment.",
    "entry": "The function of that module to call; without it the module runs as __main__.",
    "args": "sys.argv[1:], and the arguments of entry.",
    "files": "Folders or archives that are put on sys.path, as they are called in the cluster.",
    "parallelism": "The default parallelism of the job's vertices.",
    "config": "Options of the job (docs/configuration.md): key → value.",
    "job_graph": "A planned job, as the command line sends it.",
}
_PROGRAMS = ("sql", "python", "job_graph")


def job_spec_schema() -> dict[str, Any]:
    """The schema, of JSON Schema 2020-12."""
    (reference,), components = msgspec.json.schema_components([JobSpec], ref_template="#/$defs/{name}")
    spec = components.pop(reference["$ref"].rpartition("/")[2])
    fields: dict[str, Any] = spec["properties"]
    for name, text in _DESCRIPTIONS.items():
        fields[name] = {**fields[name], "description": text}
    fields["parallelism"]["anyOf"] = [
        {"type": "integer", "minimum": 1, "maximum": 32_768},
        {"type": "null"},
    ]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **spec,
        "title": "Job spec of Penstock",
        "description": "Exactly one of sql, python and job_graph is given.",
        # A null is as good as a field that is not there.
        "oneOf": [
            {"required": [name], "properties": {name: {"not": {"type": "null"}}}} for name in _PROGRAMS
        ],
        **({"$defs": components} if components else {}),
    }


def text() -> str:
    """The schema as the file in docs has it."""
    return msgspec.json.format(msgspec.json.encode(job_spec_schema()), indent=2).decode() + "\n"
