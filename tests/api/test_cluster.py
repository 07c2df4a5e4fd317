"""A program on a real embedded cluster: services, slots, object store, results over REST."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from penstock.api import KeyedProcessFunction, StreamExecutionEnvironment, Types, ValueStateDescriptor
from penstock.embedded import EmbeddedCluster
from penstock.errors import FunctionError

PAIR = Types.TUPLE([Types.STRING(), Types.LONG()])


class Counting(KeyedProcessFunction):
    def open(self, context: Any) -> None:
        self.count = context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: Any, ctx: Any) -> Any:
        n = (self.count.value() or 0) + 1
        self.count.update(n)
        yield value[0], n


@pytest.mark.cluster
@pytest.mark.parametrize("backend", ["hashmap", "leveldb"])
def test_programs_run_on_a_cluster(backend: str) -> None:
    with EmbeddedCluster(slots=2) as cluster:
        env = StreamExecutionEnvironment({"rest.address": cluster.rest_url, "restart-strategy.type": "none"})
        env.set_parallelism(2).set_state_backend(backend)
        rows = [(f"k{i % 5}", i) for i in range(5_000)]
        counted = env.from_collection(rows, PAIR).key_by(lambda r: r[0]).process(Counting(), PAIR)
        got = list(counted.execute_and_collect("counting"))
        assert Counter(got) == Counter((f"k{k}", n) for k in range(5) for n in range(1, 1_001))

        broken = env.from_collection([1, 0]).map(lambda x: 1 // x, Types.LONG())
        with pytest.raises(FunctionError, match="ZeroDivisionError") as err:
            list(broken.execute_and_collect("broken"))
        assert str(err.value).startswith("Traceback")
