"""Dead letters that are sent again: a source's first subtask looks for them in the object store.

A request is an object that names an object of letters. The rows of its letters are emitted once: which requests were
done is part of the source's state (union ``replayed``), and after a complete checkpoint a mark in the store says so.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from penstock.config import DEAD_LETTER_REPLAY_MS
from penstock.errors import PenstockError
from penstock.log_events import EventLog
from penstock.messages.layout import replayed_prefix, replays_prefix
from penstock.operators.letters import Letter
from penstock.operators.sources import SourceOperator

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from penstock.ports import Store
    from penstock.runtime.chain_nodes import ChainNode
    from penstock.runtime.environment import Environment
    from penstock.runtime.task import Task
    from penstock.snapshots.contract import OperatorSnapshot, RestoredState
    from penstock.types.batch import Batch

_log = EventLog("penstock.dead_letters")

_REPLAYED = "replayed"


class Replays:
    """The requests of one task's sources to send dead letters again."""

    def __init__(self, task: Task, environment: Environment) -> None:
        self._task = task
        self._job_id = environment.job_id
        self._store = environment.store
        self._interval_s = DEAD_LETTER_REPLAY_MS.read(environment.config) / 1000
        #: Uid → names of the requests whose rows were emitted.
        self._done: dict[str, set[str]] = {}
        #: (uid, name) of emitted requests → the checkpoint that holds them; None: no checkpoint yet.
        self._unmarked: dict[tuple[str, str], int | None] = {}

    def start(self, restored: Mapping[str, RestoredState]) -> None:
        """The operators run: look for requests from now on."""
        if self._task.descriptor.subtask_index != 0:
            return
        for node in self._task.chain.sources:
            if node.letters is None or not isinstance(node.operator, SourceOperator):
                continue
            uid = node.node.uid
            state = restored.get(uid)
            done = set() if state is None else {x.decode() for x in state.unions.get(_REPLAYED, [])}
            self._done[uid] = done
            if state is not None:
                self._unmarked.update({(uid, name): state.checkpoint_id for name in done})
            assert self._store is not None
            self._task.spawn(self._watch(node, node.operator, self._store))

    async def _watch(self, node: ChainNode, source: SourceOperator, store: Store) -> None:
        taken = set(self._done[node.node.uid])
        prefix = replays_prefix(self._job_id, node.node.uid)
        while True:
            try:
                for key, _ in await store.list(prefix):
                    name = key.removeprefix(prefix)
                    if name not in taken:
                        batches = await source.replayed(await _letters(store, key))
                        taken.add(name)
                        self._task.do(self._send(node, name, batches))
            except PenstockError as err:
                # The request stays: the store or a server may come back, or a job that can read the letters goes on
                # from here. A job that runs well does not fail for letters of another one.
                _log.warning("dead_letters_not_replayed", operator=node.node.name, error=err)
            await asyncio.sleep(self._interval_s)

    def _send(self, node: ChainNode, name: str, batches: Sequence[Batch]) -> Iterator[None]:
        """Emits the rows of a request. No barrier comes between its rows."""
        checkpoints = self._task.checkpoints
        if node.ended or checkpoints.closing or checkpoints.stopping is not None:
            return  # The request stays for the job that goes on from here.
        yield from self._task.chain.emit(node, iter(batches))
        uid = node.node.uid
        self._done[uid].add(name)
        self._unmarked[uid, name] = None
        rows = sum(batch.num_rows for batch in batches)
        _log.info("dead_letters_replayed", operator=node.node.name, request=name, rows=rows)

    def add_to(self, snapshots: Mapping[str, OperatorSnapshot], checkpoint_id: int) -> None:
        """Adds the requests that were done to the snapshots of their sources."""
        for uid, names in self._done.items():
            snapshots[uid].unions[_REPLAYED] = [name.encode() for name in sorted(names)]
        for request, at in self._unmarked.items():
            if at is None:
                self._unmarked[request] = checkpoint_id

    async def complete(self, checkpoint_id: int) -> None:
        """The checkpoint is complete: marks its requests as replayed. May be repeated."""
        done = [x for x, at in self._unmarked.items() if at is not None and at <= checkpoint_id]
        for uid, name in done:
            assert self._store is not None
            await self._store.create(f"{replayed_prefix(self._job_id)}{uid}/{name}", b"")
            self._unmarked.pop((uid, name), None)


async def _letters(store: Store, key: str) -> list[Letter]:
    """The letters of a request that can be replayed."""
    request = msgspec.json.decode(await store.get(key))
    lines = (await store.get(request["letters"])).splitlines()
    found = [msgspec.json.decode(line, type=Letter) for line in lines if line]
    return [letter for letter in found if not letter.kept]
