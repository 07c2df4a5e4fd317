"""How a stream's records reach the subtasks of the next step, under Flink's names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

from penstock.api.function_slots import check_function
from penstock.api.selectors import CustomPartition
from penstock.api.transformations import Compiler, Transformation, transform
from penstock.jobgraph import Broadcast, Custom, Forward, Global, Rebalance, Rescale
from penstock.jobgraph.specs import UnionSpec
from penstock.plan import nodes as n

if TYPE_CHECKING:
    from penstock.api.connected import BroadcastStream
    from penstock.api.datastream import DataStream
    from penstock.api.environment import StreamExecutionEnvironment
    from penstock.jobgraph import Partitioning
    from penstock.state.descriptors import MapStateDescriptor
    from penstock.types.logical import Schema


class Partitions:
    """The methods of ``DataStream`` that partition records. Each returns a stream; the partitioning applies
    to the step that follows."""

    _env: StreamExecutionEnvironment
    _step: Transformation

    if TYPE_CHECKING:

        @property
        def schema(self) -> Schema: ...

        def _then(self, step: Transformation) -> DataStream: ...

    def rebalance(self) -> DataStream:
        """The records dealt out evenly to the subtasks of the next step."""
        return self._partitioned(Rebalance(), "Rebalance")

    shuffle = rebalance

    def rescale(self) -> DataStream:
        """The records dealt out by each subtask to its own share of the next step's subtasks."""
        return self._partitioned(Rescale(), "Rescale")

    def forward(self) -> DataStream:
        """The records of subtask *i* to subtask *i* of the next step."""
        return self._partitioned(Forward(), "Forward")

    def global_(self) -> DataStream:
        """All records to the first subtask of the next step."""
        return self._partitioned(Global(), "Global")

    def partition_custom(self, partitioner: Any, key_selector: Any) -> DataStream:
        """Each record to the subtask of the next step that ``partitioner`` chooses.

        Args:
            partitioner: A ``Partitioner``, or a callable of a key and the number of subtasks.
            key_selector: A ``KeySelector``, or a callable of a record, that gives the key.
        """
        check_function(partitioner, "partition_custom")
        check_function(key_selector, "key_by")
        call = CustomPartition(partitioner, key_selector)

        def make(step: Transformation, nodes: tuple[n.Node, ...], compiler: Compiler) -> n.Node:
            way = Custom(compiler.function(call, "partition"))
            return n.Transform(
                inputs=nodes, spec=UnionSpec(), name=step.name, uid=step.uid, partitioning=(way,),
                parallelism=step.parallelism, chain=step.chain, schema=step.schema,
            )  # fmt: skip

        return self._then(Transformation(make, (self._step,), self.schema, "Partition Custom"))

    @overload
    def broadcast(self) -> DataStream: ...

    @overload
    def broadcast(self, descriptor: MapStateDescriptor, /, *more: MapStateDescriptor) -> BroadcastStream: ...

    def broadcast(self, *descriptors: MapStateDescriptor) -> DataStream | BroadcastStream:
        """Every record to every subtask of the next step. With ``descriptors`` of map state, the result is a
        ``BroadcastStream`` for ``connect``."""
        if descriptors:
            return self._env.streams.broadcast(self, descriptors)  # type: ignore[arg-type]  # a DataStream
        return self._partitioned(Broadcast(), "Broadcast")

    def _partitioned(self, partitioning: Partitioning, name: str) -> DataStream:
        step = transform(lambda s, c: UnionSpec(), (self._step,), self.schema, name, (partitioning,))
        return self._then(step)
