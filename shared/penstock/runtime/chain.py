"""A chain: the operators of one vertex, driven as a small DAG within one task.

Every function that makes output is a generator of ``None``. At each ``yield`` the task may look at the clock
and at the credit of its outputs before it continues. Each operator has a watermark of its own: the lowest
over the producers of its inputs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from penstock.columnar.emitted import for_consumers
from penstock.errors import InternalError, PenstockError, RecordError
from penstock.functions.function_table import TaskFunctions
from penstock.operators.drivers import PausingOperator, SinkDriver, SourceDriver
from penstock.operators.factory import make_operator
from penstock.operators.idleness import Idleness
from penstock.operators.operator import (
    MAX_WATERMARK,
    MIN_WATERMARK,
    Operator,
    OperatorContext,
    Output,
    SideBatch,
    WatermarkHolder,
    WatermarkMaker,
)
from penstock.runtime.chain_nodes import ChainNode, SourceNode, chain_node
from penstock.runtime.elements import STATUSES, Watermark
from penstock.snapshots.contract import OperatorSnapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from penstock.jobgraph import JobVertex
    from penstock.runtime.outputs import EdgeWriter
    from penstock.snapshots.contract import RestoredState
    from penstock.types.batch import Batch
    from penstock.types.logical import Schema


_Error = TypeVar("_Error", bound=BaseException)


class Chain:
    """The operators of a vertex. ``edges``: (operator index, tag, writer) of every output edge of the vertex."""

    def __init__(
        self,
        vertex: JobVertex,
        edges: list[tuple[int, str | None, EdgeWriter]],
        *,
        make: Callable[[Any], Operator] = make_operator,
    ) -> None:
        self.vertex = vertex
        self.nodes = [chain_node(node, make(node.spec)) for node in vertex.operators]
        #: gate → [(node, slot, input index)]
        self.gates: dict[int, list[tuple[ChainNode, int, int]]] = {}
        self._connect(edges)
        self._opened: list[ChainNode] = []
        self._functions: list[TaskFunctions] = []
        #: The error that was blamed last, and the operator that raised it.
        self._blamed: tuple[BaseException, ChainNode] | None = None
        self.sources = [n for n in self.nodes if isinstance(n, SourceNode)]
        self.sinks = [n.operator for n in self.nodes if isinstance(n.operator, SinkDriver)]
        self.pausing = [n.operator for n in self.nodes if isinstance(n.operator, PausingOperator)]

    def _connect(self, edges: list[tuple[int, str | None, EdgeWriter]]) -> None:
        for node in self.nodes:
            slot = 0
            for input_index, producers in enumerate(node.node.inputs):
                for source in producers:
                    target = (node, slot, input_index)
                    if source.gate is not None:
                        self.gates.setdefault(source.gate, []).append(target)
                    elif source.operator is not None:
                        outputs = self.nodes[source.operator].outputs
                        outputs.setdefault(source.tag, ([], []))[1].append(target)
                    else:
                        raise InternalError(f"input {input_index} of '{node.node.uid}' comes from nowhere")
                    slot += 1
        for operator, tag, writer in edges:
            self.nodes[operator].outputs.setdefault(tag, ([], []))[0].append(writer)

    # -- life ----------------------------------------------------------------------

    def open(
        self, context: Callable[[ChainNode], OperatorContext], restored: Mapping[str, RestoredState]
    ) -> None:
        """Opens all operators, the last one first, so that an operator finds everything downstream open."""
        for node in reversed(self.nodes):
            with _Blame(self, node):
                self._opened.append(node)
                ctx, before = context(node), restored.get(node.node.uid)
                if isinstance(ctx.function, TaskFunctions):
                    self._functions.append(ctx.function)
                node.letters = ctx.letters
                if node.letters is not None and before is not None:
                    node.letters.restore(before)
                node.operator.open(ctx, before)

    def close(self) -> list[BaseException]:
        """Closes every operator that was opened, even if others fail. Returns the errors that they raised."""
        errors: list[BaseException] = []
        opened, self._opened = self._opened, []
        for node in opened:
            try:
                node.operator.close()
            except Exception as err:
                errors.append(err)
        functions, self._functions = self._functions, []
        for own in functions:
            errors += own.close()
        return errors

    def input_schemas(self, node: ChainNode, gate_schemas: Sequence[Schema]) -> list[Schema]:
        """The schema of each input of an operator: that of the input's first producer."""
        out = []
        for producers in node.node.inputs:
            source = producers[0]
            if source.gate is not None:
                out.append(gate_schemas[source.gate])
            elif source.operator is not None:
                before = self.nodes[source.operator].node
                out.append(before.output if source.tag is None else before.side_outputs[source.tag])
        return out

    # -- data ----------------------------------------------------------------------

    def process(self, gate: int, batch: Batch) -> Iterator[None]:
        """Processes rows of an input gate."""
        targets = self.gates.get(gate, ())
        for (node, _, input_index), own in zip(targets, for_consumers(batch, len(targets)), strict=False):
            yield from self._feed(node, input_index, own)

    def emit(self, node: ChainNode, outputs: Iterator[Output]) -> Iterator[None]:
        """Passes on the output of an operator's generator."""
        routes, counters, operator = node.outputs, node.metrics.counters, node.operator
        main = routes.get(None)
        counters.setdefault("numRecordsOut", 0)
        maker = operator if isinstance(operator, WatermarkMaker) and operator.per_record else None
        try:
            for out in outputs:
                if isinstance(out, SideBatch):
                    route, batch = routes.get(out.tag), out.batch
                else:
                    route, batch = main, out
                if not batch.num_rows:
                    yield  # There is no output to pass on, but the task may pause here.
                    continue
                counters["numRecordsOut"] += batch.num_rows
                if route is not None:
                    edges, targets = route
                    own = for_consumers(batch, len(targets) + len(edges))
                    for target, _, input_index in targets:
                        yield from self._feed(target, input_index, next(own))
                    for edge in edges:
                        edge.write(next(own))
                if maker is not None:
                    yield from self.made_watermark(node, maker.current_watermark(), maker.idle())
                yield
        except Exception as err:
            raise self.blame(err, node) from None
        if node.letters is not None:
            node.send_letters()

    def _feed(self, node: ChainNode, input_index: int, batch: Batch) -> Iterator[None]:
        counters = node.metrics.counters
        counters["numRecordsIn"] = counters.get("numRecordsIn", 0) + batch.num_rows
        return self.emit(node, node.operator.process(input_index, batch))

    # -- time ----------------------------------------------------------------------

    def watermark(self, gate: int, value: int) -> Iterator[None]:
        """Process a watermark (µs) of a gate."""
        for node, slot, _ in self.gates.get(gate, ()):
            node.valve.advance(slot, value)
            yield from self._advance(node)

    def status(self, gate: int, idle: Idleness) -> Iterator[None]:
        """Process a change of a gate's idleness."""
        for node, slot, _ in self.gates.get(gate, ()):
            node.valve.set_idle(slot, idle)
            yield from self._advance(node)

    def made_watermark(self, node: ChainNode, watermark: int, idle: bool) -> Iterator[None]:
        """Passes on the watermark and idleness that a source or a watermark assigner has made."""
        if node.idle and not idle:
            node.idle = False
            yield from self._forward_status(node, Idleness.ACTIVE)
        if watermark > node.output_watermark:
            yield from self._forward_watermark(node, watermark)
        if idle and not node.idle:
            node.idle = True
            yield from self._forward_status(node, node.operator.idle_as)

    def fire_timers(self, now_ms: int) -> Iterator[None]:
        """Fires the timers of all operators up to processing time ``now_ms``, in topological order."""
        for node in self.nodes:
            if node.wake_ms is not None and node.wake_ms <= now_ms and not node.ended:
                node.wake_ms = None
                yield from self.emit(node, node.operator.on_processing_time(now_ms))
                operator = node.operator
                if isinstance(operator, WatermarkMaker):
                    yield from self.made_watermark(node, operator.current_watermark(), operator.idle())
                elif isinstance(operator, WatermarkHolder):
                    released = operator.released_watermark()
                    if released > node.output_watermark:
                        yield from self._forward_watermark(node, released)

    def next_wake_ms(self) -> int | None:
        """The earliest processing time (ms) at which an operator asked to be called; None if there is
        none."""
        times = [n.wake_ms for n in self.nodes if n.wake_ms is not None and not n.ended]
        return min(times, default=None)

    def _advance(self, node: ChainNode) -> Iterator[None]:
        risen, idle = node.valve.take_changes()
        if isinstance(node.operator, SourceDriver):
            if idle or risen is not None:
                node.operator.inputs_idle()
            return
        if node.makes_watermarks:
            idle = None  # The operator declares its own idleness.
        if idle is Idleness.ACTIVE:
            yield from self._forward_status(node, idle)
        if risen is not None:
            yield from self.emit(node, node.operator.on_watermark(risen))
            out = node.operator.output_watermark(risen)
            if out > node.output_watermark:
                yield from self._forward_watermark(node, out)
        if idle:
            yield from self.emit(node, node.operator.on_idle())
            yield from self._forward_status(node, idle)

    def _forward_watermark(self, node: ChainNode, value: int) -> Iterator[None]:
        node.output_watermark = value
        element = Watermark(value)
        for edges, targets in node.outputs.values():
            for target, slot, _ in targets:
                target.valve.advance(slot, value)
                yield from self._advance(target)
            for edge in edges:
                edge.emit(element)
        yield

    def _forward_status(self, node: ChainNode, idle: Idleness) -> Iterator[None]:
        for edges, targets in node.outputs.values():
            for target, slot, _ in targets:
                target.valve.set_idle(slot, idle)
                yield from self._advance(target)
            for edge in edges:
                edge.emit(STATUSES[idle])
        yield

    # -- ends ----------------------------------------------------------------------

    def end_gate(self, gate: int) -> Iterator[None]:
        """Ends the inputs that read a gate, and every operator whose inputs have then all ended."""
        for node, slot, input_index in self.gates.get(gate, ()):
            yield from self._end_slot(node, slot, input_index)

    def end_source(self, node: ChainNode) -> Iterator[None]:
        """Ends a source after its last row: its watermark rises to the end of time, then it finishes."""
        yield from self.made_watermark(node, MAX_WATERMARK, False)
        yield from self._finish(node)

    def _end_slot(self, node: ChainNode, slot: int, input_index: int) -> Iterator[None]:
        node.valve.end(slot)
        yield from self._advance(node)
        node.slots_left[input_index] -= 1
        if node.slots_left[input_index]:
            return
        yield from self.emit(node, node.operator.end_input(input_index))
        # A source goes on reading after its input, the assignment of splits, has ended.
        if not any(node.slots_left) and not isinstance(node.operator, SourceDriver):
            yield from self._finish(node)

    def _finish(self, node: ChainNode) -> Iterator[None]:
        yield from self.emit(node, node.operator.finish())
        node.ended = True
        for _, targets in node.outputs.values():
            for target, slot, input_index in targets:
                yield from self._end_slot(target, slot, input_index)
        yield

    @property
    def ended(self) -> bool:
        """Whether all operators have ended."""
        return all(node.ended for node in self.nodes)

    # -- checkpoints -----------------------------------------------------------------

    def prepare_checkpoint(self, checkpoint_id: int) -> Iterator[None]:
        """Emits the output that belongs before the barrier, that of upstream operators first."""
        for node in self.nodes:
            if not node.ended:
                yield from self.emit(node, node.operator.prepare_checkpoint(checkpoint_id))

    def watermarks(self) -> dict[str, int]:
        """Uid → watermark of the operator's input; of its output if the operator makes watermarks."""
        return {
            n.node.uid: n.output_watermark if n.makes_watermarks else n.valve.watermark for n in self.nodes
        }

    def restore_watermarks(self, values: Mapping[str, int]) -> Iterator[None]:
        """Sets the watermarks of the checkpoint before any row is processed: a row that was late then must be
        late now."""
        for node in self.nodes:
            value = values.get(node.node.uid, MIN_WATERMARK)
            if value == MIN_WATERMARK:
                continue
            if not node.makes_watermarks:
                node.valve.preset(value)
                yield from self.emit(node, node.operator.on_watermark(value))
                value = node.operator.output_watermark(value)
            node.output_watermark = max(node.output_watermark, value)
            for edges, _ in node.outputs.values():
                for edge in edges:
                    edge.emit(Watermark(node.output_watermark))
        yield

    def snapshot(self, checkpoint_id: int) -> dict[str, OperatorSnapshot]:
        """Takes the state of every operator at the barrier, upstream operators first. Returns uid → state."""
        out: dict[str, OperatorSnapshot] = {}
        for node in self.nodes:
            with _Blame(self, node):
                snapshot = out[node.node.uid] = node.operator.snapshot(checkpoint_id)
                if node.letters is not None:
                    node.letters.cut(checkpoint_id, snapshot)
        return out

    def checkpoint_complete(self, checkpoint_id: int) -> None:
        """Tell all operators that the checkpoint is complete."""
        for node in self.nodes:
            with _Blame(self, node):
                node.operator.on_checkpoint_complete(checkpoint_id)

    def checkpoint_aborted(self, checkpoint_id: int) -> None:
        """Tell all operators that the checkpoint is aborted."""
        for node in self.nodes:
            with _Blame(self, node):
                node.operator.on_checkpoint_aborted(checkpoint_id)

    # -- blame for errors ----------------------------------------------------------

    def blame(self, err: _Error, node: ChainNode) -> _Error:
        """Remember the operator that raised the error: the innermost one, which is named first. The error itself."""
        if self._blamed is None or self._blamed[0] is not err:
            self._blamed = (err, node)
            if isinstance(err, PenstockError):
                if err.where is None:
                    err.where = f"operator '{node.node.name}' ({node.node.uid})"
                elif isinstance(err, RecordError) and len(self.sources) == 1 and node not in self.sources:
                    err.where = f"{err.where} (a row of '{self.sources[0].node.name}')"
        return err

    def blamed_operator(self, err: BaseException) -> str | None:
        """The name of the operator that raised the error; None if no operator of this chain did."""
        known = self._blamed
        return known[1].node.name if known is not None and known[0] is err else None


class _Blame:
    """A block in which one operator runs. An error that leaves the block is blamed on that operator."""

    __slots__ = ("_chain", "_node")

    def __init__(self, chain: Chain, node: ChainNode) -> None:
        self._chain, self._node = chain, node

    def __enter__(self) -> None: ...

    def __exit__(self, kind: Any, err: BaseException | None, traceback: Any) -> None:
        if isinstance(err, (Exception, SystemExit)):
            self._chain.blame(err, self._node)
