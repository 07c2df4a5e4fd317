from __future__ import annotations

import msgspec
import pytest

from penstock.errors import SpecError
from penstock.jobgraph.specs import SinkSpec
from penstock_services.dispatcher.guarantees import check_guarantees
from tests.services.jobmanager.graphs import SCHEMA, pipeline

ONCE = {"sink.delivery-guarantee": "exactly-once"}


def with_sink(connector: str = "nats", options: dict | None = None, **config: str):
    graph = pipeline(**config)
    *others, sink = graph.vertices
    node = msgspec.structs.replace(
        sink.operators[0], spec=SinkSpec(connector=connector, options=options or {}, schema=SCHEMA)
    )
    return msgspec.structs.replace(
        graph, vertices=(*others, msgspec.structs.replace(sink, operators=(node,)))
    )


@pytest.mark.parametrize(
    "graph",
    [
        with_sink(),
        with_sink(options=ONCE),
        with_sink("filesystem"),
        with_sink("filesystem", **{"execution.checkpointing.mode": "AT_LEAST_ONCE"}),
        with_sink(**{"execution.checkpointing.mode": "AT_LEAST_ONCE"}),
    ],
)
def test_what_can_be_kept(graph):
    check_guarantees(graph)


@pytest.mark.parametrize(
    ("graph", "says"),
    [
        (with_sink(options=ONCE, **{"execution.checkpointing.mode": "AT_LEAST_ONCE"}), "AT_LEAST_ONCE"),
        (with_sink(options=ONCE | {"sink.transaction-timeout": "15 min"}), "has no effect"),
    ],
)
def test_what_cannot_is_refused(graph, says):
    with pytest.raises(SpecError) as refused:
        check_guarantees(graph)
    assert says in str(refused.value)
    assert "connector 'nats'" in str(refused.value)


SEVERAL = {"execution.checkpointing.max-concurrent-checkpoints": "2"}
UNALIGNED = {"execution.checkpointing.unaligned.enabled": "true"}


def test_unaligned_checkpoints_are_one_at_a_time():
    check_guarantees(pipeline(**SEVERAL))
    check_guarantees(pipeline(**UNALIGNED))
    check_guarantees(pipeline(**SEVERAL, **UNALIGNED, **{"execution.checkpointing.mode": "AT_LEAST_ONCE"}))
    with pytest.raises(SpecError, match="one at a time") as refused:
        check_guarantees(pipeline(**SEVERAL, **UNALIGNED))
    assert "max-concurrent-checkpoints = 2" in str(refused.value)
