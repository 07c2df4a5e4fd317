"""Reads a job spec as a user wrote it (JSON or YAML) into a ``JobSpec``, or raises an error that names the
place. Pure."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec

from penstock.config import check_job
from penstock.errors import SpecError, nearest, nested_too_deeply
from penstock.identifiers import new_job_id
from penstock.jobgraph import JobGraph
from penstock.jobgraph.graph import prepare_types
from penstock.messages.cluster import JobSpec

PROGRAMS = ("sql", "python", "job_graph")
MAX_PARALLELISM = 32_768
#: Bytes of a YAML spec. People write YAML by hand; programs send JSON, which is read fast.
MAX_YAML_BYTES = 1024 * 1024
#: The greatest number of nested levels in a YAML spec.
MAX_DEPTH = 100
_FIELDS = JobSpec.__struct_fields__

# Submissions are read in threads.
prepare_types()
msgspec.json.Decoder(JobSpec)


def parse_spec(text: bytes) -> JobSpec:
    """The spec from JSON (which begins with ``{``) or YAML. Raises SpecError for any error in it."""
    try:
        decoded = text.decode()
    except UnicodeDecodeError as err:
        raise SpecError(
            "the job spec is not text",
            expected="JSON or YAML in UTF-8",
            got=f"byte {err.start}: {err.reason}",
        ) from err
    is_json = decoded.lstrip().startswith("{")
    if not is_json and len(text) > MAX_YAML_BYTES:
        raise SpecError(
            "the job spec is too large for YAML",
            expected=f"at most {MAX_YAML_BYTES} bytes, or JSON (which begins with '{{')",
            got=f"{len(text)} bytes",
            remedy="put data and code into files that the job reads, or send JSON",
        )
    tree = _load_json(decoded) if is_json else _load_yaml(decoded)
    return spec_of(tree)


def _load_json(text: str) -> Any:
    try:
        tree = json.loads(text)
        if "\\ud" in text.lower():
            msgspec.json.encode(tree)  # half a surrogate pair is not text
        return tree
    except json.JSONDecodeError as err:
        raise SpecError(
            f"the job spec is not valid JSON: {err.msg}",
            got=_line(text, err.lineno),
            where=f"line {err.lineno}, column {err.colno}",
            remedy="correct it there (a spec that does not begin with '{' is read as YAML)",
        ) from err
    except RecursionError as err:
        raise nested_too_deeply("job spec") from err
    except ValueError as err:  # a number of more digits than Python reads
        raise SpecError(f"the job spec is not valid JSON: {err}") from err


def _load_yaml(text: str) -> Any:
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        # Events come one by one and nothing is built, so deep nesting fills no stack here.
        depth = 0
        for event in yaml.parse(text, loader):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > MAX_DEPTH:
                raise nested_too_deeply("job spec", _place(event.start_mark))
            if isinstance(event, yaml.AliasEvent):
                raise SpecError(
                    "aliases are not allowed in a job spec",
                    got=f"*{event.anchor}",
                    where=_place(event.start_mark),
                    remedy="write the value out",
                )
        return yaml.load(text, loader)
    except yaml.MarkedYAMLError as err:
        mark = err.problem_mark or err.context_mark
        raise SpecError(
            f"the job spec is not valid YAML: {err.problem or err.context}",
            got=_line(text, mark.line + 1) if mark else None,
            where=_place(mark),
            remedy="correct it there (indentation by spaces; quote values that hold ': ' or ' #')",
        ) from err
    except yaml.YAMLError as err:
        raise SpecError(f"the job spec is not valid YAML: {err}") from err
    except (ValueError, OverflowError) as err:  # a date or number that does not exist
        raise SpecError(f"the job spec holds a value that cannot be read: {err}") from err


def _place(mark: Any) -> str | None:
    return f"line {mark.line + 1}, column {mark.column + 1}" if mark is not None else None


def _line(text: str, number: int) -> str | None:
    lines = text.splitlines()
    return repr(lines[number - 1].strip()[:120]) if 0 < number <= len(lines) else None


_UNUSABLE = re.compile("[\x00\ud800-\udfff]")


def spec_of(tree: Any) -> JobSpec:
    """The spec from plain JSON types, with every field checked. Raises SpecError for any error in it."""
    if not isinstance(tree, dict):
        got = "nothing" if tree is None else type(tree).__name__
        raise SpecError(
            "the job spec has no fields",
            expected="an object with one of 'sql', 'python' and 'job_graph'",
            got=got,
            remedy="e.g.  sql: INSERT INTO …",
        )
    _check_encodable(tree)
    for name in tree:
        if name not in _FIELDS:
            raise SpecError(
                f"unknown field '{name}' in the job spec",
                expected=", ".join(_FIELDS),
                got=repr(name),
                where=f"field '{name}'",
                remedy=nearest(str(name), _FIELDS),
            )
    try:
        spec = msgspec.convert(tree, JobSpec)
    except msgspec.ValidationError as err:
        raise _wrong_type(err, "job spec") from err
    _check_texts(spec)
    _check(spec)
    return spec


def _wrong_type(err: msgspec.ValidationError, what: str) -> SpecError:
    """msgspec's ``Expected `str`, got `int` - at `$.name` `` as a SpecError."""
    text, _, path = str(err).partition(" - at ")
    found = re.fullmatch(r"Expected `(.+?)`, got `(.+?)`", text)
    where = path.strip("`").removeprefix("$.") or None
    return SpecError(
        f"a field of the {what} has the wrong type" if found else f"the {what} is malformed: {text}",
        expected=found[1] if found else None,
        got=found[2] if found else None,
        where=f"field '{where}'" if where else None,
    )


def _check_encodable(tree: Any) -> None:
    """Raises SpecError if a text anywhere in the spec is no Unicode: neither the spec nor an error that shows the text could
    be sent on."""
    try:
        msgspec.json.encode(tree, enc_hook=str)
    except UnicodeEncodeError as err:
        raise SpecError(
            "a text of the job spec has half of a surrogate pair",
            expected="text that can be encoded as UTF-8",
            got=ascii(err.object[max(0, err.start - 20) : err.end + 20]),
            remedy="write a character beyond U+FFFF as both halves, or as itself",
        ) from None
    except (TypeError, ValueError, RecursionError):
        return  # other types, endless numbers and too deep ones are named by the checks that follow


def _check_texts(spec: JobSpec) -> None:
    """Raises SpecError for texts that no program can be given: they would fail in the planner, as a defect of ours."""
    for name in ("name", "job_id", "sql", "python", "entry", "args", "files", "config"):
        value = getattr(spec, name)
        parts = (
            value
            if isinstance(value, list)
            else [*value, *value.values()]
            if isinstance(value, dict)
            else [value]
        )
        for text in parts:
            if isinstance(text, str) and _UNUSABLE.search(text):
                raise SpecError(
                    "a text of the job spec has a NUL character or half of a surrogate pair",
                    expected="text that can be encoded as UTF-8, without NUL",
                    got=repr(text[:80]),
                    where=f"field '{name}'",
                )


def _check(spec: JobSpec) -> None:
    given = [name for name in PROGRAMS if getattr(spec, name) is not None]
    if len(given) != 1:
        raise SpecError(
            "a job spec holds exactly one program",
            expected="one of 'sql', 'python' and 'job_graph'",
            got=" and ".join(f"'{g}'" for g in given) or "none of them",
        )
    for name in ("sql", "python"):
        if getattr(spec, name) is not None and not getattr(spec, name).strip():
            raise SpecError(f"'{name}' is empty", expected="a program", where=f"field '{name}'")
    if spec.job_id is not None:
        try:
            new_job_id(spec.job_id)
        except SpecError as err:
            err.where = "field 'job_id'"
            raise
    if spec.parallelism is not None and not 1 <= spec.parallelism <= MAX_PARALLELISM:
        raise SpecError(
            "parallelism out of bounds",
            expected=f"1 to {MAX_PARALLELISM}",
            got=str(spec.parallelism),
            where="field 'parallelism'",
        )
    check_config({key: as_text(value) for key, value in spec.config.items()})


def as_text(value: str | int | float | bool) -> str:
    """A configuration value as text."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def check_config(config: dict[str, str]) -> None:
    """Raises SpecError for an unknown key, a value that its option does not allow, or an option of the
    cluster."""
    check_job(config)


def graph_of(tree: Any) -> JobGraph:
    """A checked job graph from plain JSON types. Raises SpecError for any error in it."""
    try:
        graph = msgspec.convert(tree, JobGraph)
    except RecursionError as err:
        raise nested_too_deeply("job graph") from err
    except msgspec.ValidationError as err:
        raise _wrong_type(err, "job graph") from err
    check_graph(graph)
    return graph


def check_graph(graph: JobGraph) -> None:
    """Raises SpecError if the graph contradicts itself."""
    if not graph.vertices:
        raise SpecError("the job has no vertices", expected="at least a source and a sink")
    position: dict[str, int] = {}
    for i, vertex in enumerate(graph.vertices):
        where = f"vertex '{vertex.id}'"
        if vertex.id in position:
            raise SpecError("two vertices have the same id", where=where)
        position[vertex.id] = i
        if not 1 <= vertex.parallelism <= vertex.max_parallelism <= MAX_PARALLELISM:
            raise SpecError(
                "parallelism out of bounds",
                expected=f"1 ≤ parallelism ≤ max parallelism ≤ {MAX_PARALLELISM}",
                got=f"parallelism {vertex.parallelism}, max parallelism {vertex.max_parallelism}",
                where=where,
            )
    for edge in graph.edges:
        for end in (edge.source, edge.target):
            if end not in position:
                raise SpecError(
                    f"an edge names the vertex '{end}', which is not there", where=f"edge '{edge.id}'"
                )
        if position[edge.source] >= position[edge.target]:
            raise SpecError(
                "vertices are not in topological order",
                expected=f"'{edge.source}' before '{edge.target}'",
                where=f"edge '{edge.id}'",
            )
    check_config(graph.config)
