"""Checks at submission whether the sinks can keep their guarantees with the job's checkpoints. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock import config as keys
from penstock.errors import SpecError
from penstock.jobgraph.specs import SinkSpec

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from penstock.jobgraph import JobGraph

GUARANTEE = "sink.delivery-guarantee"
#: Flink's option for how long an external system keeps a transaction open; Penstock keeps none open.
TRANSACTION_TIMEOUT = "sink.transaction-timeout"
#: Connectors that commit when a checkpoint is complete, unless their options say otherwise.
EXACTLY_ONCE_BY_DEFAULT = frozenset({"filesystem"})


def exactly_once_sinks(graph: JobGraph) -> Iterator[tuple[str, SinkSpec]]:
    """(name of the operator, its sink) for every exactly-once sink."""
    for vertex in graph.vertices:
        for node in vertex.operators:
            if isinstance(node.spec, SinkSpec):
                default = "exactly-once" if node.spec.connector in EXACTLY_ONCE_BY_DEFAULT else ""
                if node.spec.options.get(GUARANTEE, default) == "exactly-once":
                    yield node.name, node.spec


def check_guarantees(graph: JobGraph) -> None:
    """Raises SpecError if an exactly-once sink cannot be that, or if the kinds of checkpoints in the
    configuration exclude each other."""
    config = graph.config
    _check_concurrency(config)
    for name, sink in exactly_once_sinks(graph):
        where = f"{name}, connector '{sink.connector}'"
        if GUARANTEE in sink.options and keys.CHECKPOINT_MODE.read(config) == "AT_LEAST_ONCE":
            raise SpecError(
                "an exactly-once sink needs exactly-once checkpoints",
                expected=f"{keys.CHECKPOINT_MODE.key} = EXACTLY_ONCE",
                got="AT_LEAST_ONCE: rows after a barrier may be in its checkpoint, and are read again after a restore",
                where=where,
                remedy=f"change the mode, or '{GUARANTEE}' = 'at-least-once'",
            )
        if TRANSACTION_TIMEOUT in sink.options:
            raise SpecError(
                f"'{TRANSACTION_TIMEOUT}' has no effect: no sink of Penstock leaves a transaction open outside",
                expected="options of the connector (docs/connectors.md)",
                got=f"{TRANSACTION_TIMEOUT} = {sink.options[TRANSACTION_TIMEOUT]}",
                where=where,
                remedy="leave it out: what is not committed yet is kept in the object store, for any time",
            )


def _check_concurrency(config: Mapping[str, str]) -> None:
    """If two barriers overtook rows, the second would have to save the rows of the first again."""
    concurrent = keys.CHECKPOINT_MAX_CONCURRENT
    if concurrent.read(config) > 1 and keys.unaligned_patience_ms(config) is not None:
        raise SpecError(
            "unaligned checkpoints are taken one at a time",
            expected=f"{concurrent.key} = 1 with {keys.CHECKPOINT_UNALIGNED.key} = true",
            got=f"{concurrent.key} = {concurrent.read(config)}",
            remedy=f"leave one of them out; for more frequent ones lower {keys.CHECKPOINT_INTERVAL_MS.key}",
        )
