"""Makes the context of each operator of a task from the task's environment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.columnar.hashing import key_group_range
from penstock.errors import InternalError
from penstock.functions.function_table import TaskFunctions
from penstock.jobgraph.letters import LETTERS_TAG, keeps_letters
from penstock.operators.bad_records import BadRecords
from penstock.operators.drivers import SinkDriver, SourceDriver
from penstock.operators.letters import Letters
from penstock.operators.operator import OperatorContext
from penstock.operators.user_code import RuntimeContext
from penstock.state.epochs import Epochs

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.messages.slot import TaskDescriptor
    from penstock.runtime.chain import Chain
    from penstock.runtime.chain_nodes import ChainNode
    from penstock.runtime.environment import Environment
    from penstock.types.logical import Schema


class OperatorContexts:
    """Makes the contexts when the chain opens. ``arm(at_ms)`` wakes the task at that processing time.

    ``letters``: what its operators set aside; it is written with a checkpoint, and confirmed once that is complete.
    """

    def __init__(
        self,
        environment: Environment,
        descriptor: TaskDescriptor,
        chain: Chain,
        gate_schemas: list[Schema],
        arm: Callable[[int], None],
    ) -> None:
        self._environment = environment
        self._descriptor = descriptor
        self._chain = chain
        self._gate_schemas = gate_schemas
        self._arm = arm
        self.letters: list[Letters] = []
        self.epochs = Epochs()

    def make(self, node: ChainNode) -> OperatorContext:
        """The context of one operator."""
        env, chain, index = self._environment, self._chain, self._descriptor.subtask_index
        vertex = chain.vertex
        local_dir = env.local_dir / f"{vertex.id}-{index}" / str(chain.nodes.index(node))

        def wake_at(at_ms: int) -> None:
            if node.wake_ms is None or at_ms < node.wake_ms:
                node.wake_ms = at_ms
                self._arm(at_ms)

        local_dir.mkdir(parents=True, exist_ok=True)
        ctx = OperatorContext(
            job_id=env.job_id,
            job_name=env.job_name,
            vertex_id=vertex.id,
            uid=node.node.uid,
            name=node.node.name,
            subtask_index=index,
            parallelism=vertex.parallelism,
            max_parallelism=vertex.max_parallelism,
            attempt=env.job_attempt,
            input_schemas=chain.input_schemas(node, self._gate_schemas),
            output_schema=node.node.output,
            config=env.config,
            metrics=node.metrics,
            key_groups=key_group_range(index, vertex.parallelism, vertex.max_parallelism),
            local_dir=local_dir,
            now_ms=env.now_ms,
            wake_at=wake_at,
            function=env.function,
            store=env.store,
            storage=env.storage,
            run=env.helper.run,
            memory=env.memory,
            epochs=self.epochs,
        )
        ctx.function = TaskFunctions(env.function, RuntimeContext(ctx), env.config)
        if keeps_letters(node.node.spec):
            if env.store is None:
                raise InternalError("on-error = dead-letter needs the job's object store", where=ctx.name)
            ctx.letters = Letters(ctx, env.store, to_table=LETTERS_TAG in node.node.side_outputs)
            self.letters.append(ctx.letters)
            # Sources and sinks report their own bad records, with the raw bytes.
            if not isinstance(node.operator, SourceDriver | SinkDriver):
                bad = BadRecords(ctx, "dead-letter")
                ctx.report_error = lambda err, record: bad.keep(err, record, node.node.name)
        return ctx

    async def confirm_letters(self, checkpoint_id: int) -> None:
        """The checkpoint is complete: its dead letters may be replayed."""
        for letters in self.letters:
            await letters.confirm(checkpoint_id)

    async def last_letters(self, checkpoint_id: int) -> None:
        """The task ends: writes and confirms the dead letters since the last checkpoint."""
        for letters in self.letters:
            await letters.write(checkpoint_id)
            await letters.confirm(checkpoint_id)
