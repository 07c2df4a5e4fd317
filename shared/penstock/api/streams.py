"""Makes the stream that a method of another stream returns.

A keyed stream makes plain streams, and a plain stream makes keyed ones. Both use this factory, which the
environment holds, so their modules need not import each other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.api.all_windowed import AllWindowedStream
from penstock.api.connected import BroadcastStream, ConnectedStreams
from penstock.api.datastream import DataStream
from penstock.api.joins import IntervalJoin
from penstock.api.keyed import KeyedStream
from penstock.api.window_joins import Where
from penstock.api.windowed import WindowedStream

if TYPE_CHECKING:
    from penstock.api.environment import StreamExecutionEnvironment
    from penstock.api.transformations import Transformation
    from penstock.api.window_assigner import WindowAssigner


class StreamFactory:
    """The streams of one environment."""

    def __init__(self, env: StreamExecutionEnvironment) -> None:
        self._env = env

    def plain(self, step: Transformation) -> DataStream:
        return DataStream(self._env, step)

    def keyed(self, records: Transformation, step: Transformation, keys: tuple[int, ...]) -> KeyedStream:
        """``keys``: columns of ``step``, which has the columns of ``records`` first."""
        return KeyedStream(self._env, records, step, keys)

    def windowed(self, keyed: KeyedStream, assigner: WindowAssigner) -> WindowedStream:
        return WindowedStream(keyed, assigner)

    def all_windowed(self, keyed: KeyedStream, assigner: WindowAssigner) -> AllWindowedStream:
        """``keyed``: the stream with one key for all records."""
        return AllWindowedStream(WindowedStream(keyed, assigner))

    def interval_join(self, left: KeyedStream, right: KeyedStream) -> IntervalJoin:
        return IntervalJoin(left, right)

    def window_join(self, first: DataStream, second: DataStream, kind: str) -> Where:
        """``kind``: ``join`` or ``co_group``."""
        return Where(first, second, kind)

    def broadcast(self, stream: DataStream, descriptors: tuple[Any, ...]) -> BroadcastStream:
        return BroadcastStream(stream, descriptors)

    def connected(
        self, first: DataStream | KeyedStream, second: DataStream | KeyedStream | BroadcastStream
    ) -> ConnectedStreams:
        return ConnectedStreams(first, second)
