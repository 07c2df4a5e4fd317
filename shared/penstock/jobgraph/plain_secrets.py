"""Passwords that a job holds as plain text: they lie in its stored plan and in its savepoints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.redaction import hidden, without_credentials

if TYPE_CHECKING:
    from penstock.jobgraph.graph import JobGraph


def plain_secrets(graph: JobGraph) -> tuple[str, ...]:
    """A warning for each option of a source, sink or lookup, and of the configuration, that holds a secret as plain text.
    Values are not shown."""
    found: dict[str, None] = {}
    for vertex in graph.vertices:
        for node in vertex.operators:
            options: dict[str, str] = getattr(node.spec, "options", {})
            connector = getattr(node.spec, "connector", None) or options.get("connector", "")
            for key in _plain(options):
                found[f"'{key}' of a {connector} table"] = None
    for key in _plain(graph.config):
        found[f"'{key}' of the configuration"] = None
    return tuple(
        f"{what} is a secret in plain text, which is stored with the job's plan and its savepoints: "
        "write 'secret:NAME' instead"
        for what in found
    )


def _plain(options: dict[str, str]) -> list[str]:
    return [
        k for k, v in options.items() if isinstance(v, str) and (hidden(k, v) or without_credentials(v) != v)
    ]
