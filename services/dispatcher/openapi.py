"""Descriptions of the REST API, made from its endpoints: an OpenAPI document, and a page of the docs
(``python -m penstock_services.dispatcher.rest > docs/rest-endpoints.md``)."""

from __future__ import annotations

import re
import typing
from typing import TYPE_CHECKING, Any

import msgspec

from penstock_services.common.security.access import COOKIE
from penstock_services.dispatcher.views.common import Shape

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock_services.dispatcher.endpoint import Endpoint

_PARAMETER = re.compile(r"{(\w+)}")
_SCHEMES = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "session": {"type": "apiKey", "in": "cookie", "name": COOKIE},
}
_REF = "#/components/schemas/{name}"


class Errors(Shape, frozen=True, kw_only=True):
    """An answer with a status of 400 and more."""

    errors: list[str]


def document(endpoints: Sequence[Endpoint], version: str) -> dict[str, Any]:
    """The OpenAPI 3.1 document. ``version``: that of Penstock."""
    types = [Errors, *(t for e in endpoints for t in (e.answers, e.takes) if t is not None)]
    schemas, components = msgspec.json.schema_components(types, ref_template=_REF)
    found = iter(schemas)
    errors = _content(next(found))
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        answers = _content(next(found)) if endpoint.answers is not None else {"text/plain": {}}
        takes = {"content": _content(next(found))} if endpoint.takes is not None else None
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(
            endpoint, answers, errors, takes
        )
    return {
        "openapi": "3.1.0",
        "info": {"title": "Penstock", "version": version},
        "servers": [{"url": "/"}, {"url": "/v1"}],
        "paths": paths,
        "components": {"schemas": components, "securitySchemes": _SCHEMES},
        # {}: a cluster may be without authentication.
        "security": [{"bearer": []}, {"session": []}, {}],
    }


def _content(schema: Any) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def _operation(
    endpoint: Endpoint, answers: dict[str, Any], errors: dict[str, Any], takes: dict[str, Any] | None
) -> dict[str, Any]:
    in_path = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in _PARAMETER.findall(endpoint.path)
    ]
    in_query = [{"name": name, "in": "query", "schema": {"type": "string"}} for name in endpoint.query]
    operation: dict[str, Any] = {
        "x-penstock-role": endpoint.needs.word,
        "parameters": in_path + in_query,
        "responses": {
            str(endpoint.status): {"description": endpoint.note or "The answer.", "content": answers},
            "default": {"description": "An error.", "content": errors},
        },
    }
    if takes is not None:
        operation["requestBody"] = takes
    return operation


# -- the page ------------------------------------------------------------------------------------

_HEAD = """\
# REST endpoints

Made from the code: `python -m penstock_services.dispatcher.rest > docs/rest-endpoints.md`. Every path is served with and
without `/v1`; `GET /openapi.json` has the fields. [REST](rest.md) says what the answers mean.

Flink's Java client reads the answer of each endpoint of Flink; `PENSTOCK_FLINK_CLASSPATH` and `PENSTOCK_FLINK_SPEC` make
`tests/services/dispatcher/test_flink_client.py` prove it. Refusals have the status 400 and say what to do instead.
"""


def page(endpoints: Sequence[Endpoint]) -> str:
    """The page in Markdown: a table of Flink's endpoints, and one of Penstock's own."""
    flinks = [e for e in endpoints if not e.ours]
    ours = [e for e in endpoints if e.ours]
    return "\n".join(
        [
            _HEAD,
            f"## Flink's {len(flinks)}\n",
            *_table(flinks),
            f"\n## Ours, {len(ours)}\n",
            *_table(ours),
            "",
        ]
    )


def _table(endpoints: Sequence[Endpoint]) -> list[str]:
    rows = sorted(endpoints, key=lambda e: (e.path, e.method))
    return ["| request | query | answer | role | |", "|---|---|---|---|---|", *map(_row, rows)]


def _row(endpoint: Endpoint) -> str:
    query = ", ".join(f"`{name}`" for name in endpoint.query)
    return f"| `{endpoint.method} {endpoint.path}` | {query} | {endpoint.status} {_name(endpoint.answers)} | {endpoint.needs.word} | {endpoint.note} |"


def _name(answers: Any) -> str:
    """The name of a type for the page: ``Job``, ``list of Metric``, ``text``."""
    if answers is None:
        return "text"
    kind = typing.get_origin(answers)
    if kind is list:
        return f"list of {_name(typing.get_args(answers)[0])}"
    if kind is dict:
        return "object"
    return str(answers.__name__)
