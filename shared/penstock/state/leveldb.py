"""The state backend LevelDB: state larger than memory on the local disk.

Live values are in a bounded write-back cache of two generations. A generation that is dropped is first
written in key order. Under a limit of memory timers lie there, too (``stored_timers``). A row is
``key group ‖ state ‖ key ‖ namespace`` → value, so that key groups and states are contiguous. The files are
private to one attempt: a restore fills them again.
"""

from __future__ import annotations

import itertools
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.errors import UnsupportedError
from penstock.snapshots.by_key import NAMESPACE_BYTES
from penstock.state.backend import KeyedStateBackend
from penstock.state.blocks import KeyLayout, decode_namespace, encode_namespace
from penstock.state.codec import codec, tuple_codec
from penstock.state.key_changes import KeyChanges
from penstock.state.key_rows import Registered
from penstock.state.memory import StateMemory
from penstock.state.stored_timers import MOST_FETCHED, TIMER_BYTES, EntryCodec, StoredTimers
from penstock.types.logical import RawType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from penstock.state.descriptors import StateDescriptor
    from penstock.state.epochs import Epochs

_PREFIX = struct.Struct(">HH")
_EXPIRES = struct.Struct("<q")
_ABSENT: Any = object()
#: How many live values all states of the operator keep in memory.
DEFAULT_CACHE_ENTRIES = 200_000
_RESTORE_ROWS = 10_000
#: How many bytes of values are written back at once.
_WRITTEN_BYTES = 1 << 20
#: The size of LevelDB's write buffer, of which there may be two, and of its cache.
_BUFFER_BYTES = 32 << 20
#: If the slot's state has a limit, the buffer is at most the limit divided by the first, but not below the
#: second.
_BUFFER_SHARE, _LEAST_BUFFER = 16, 256 << 10
#: A live value takes about so many bytes, and so many times its encoded size.
_OBJECT_BYTES, _OBJECT_TIMES = 300, 2
#: Timers go to the disk when they are more than one part in so many of the limit, and the record of the changed keys
#: of a state is given up at one part in so many; a changed key takes about so many bytes.
_TIMER_SHARE, _CHANGED_SHARE, _CHANGED_BYTES = 16, 4, 200
#: Timers that are due come back from the disk one part in so many of the limit at once, but not fewer than the second.
_FETCHED_SHARE, _LEAST_FETCHED = 64, 16
#: The assumed encoded size of a value before the first sample, and the weight of each sample.
_FIRST_VALUE_BYTES, _SAMPLE_WEIGHT = 256.0, 1 / 8


class CachedTable(dict[Any, Any]):
    """The young generation of the cache of one state. None means that the key is known to be absent."""

    __slots__ = ("changes", "dirty", "load", "old")

    def __init__(self, load: Callable[[Any], Any], epochs: Epochs) -> None:
        super().__init__()
        self.load = load
        self.changes = KeyChanges(epochs, self.peek)
        self.old: dict[Any, Any] = {}
        self.dirty: set[Any] = set()

    def __missing__(self, key: Any) -> Any:
        value = self.old.pop(key, _ABSENT)
        if value is _ABSENT:
            value = self.load(key)
        dict.__setitem__(self, key, value)
        return value

    def __setitem__(self, key: Any, value: Any) -> None:
        self.changes.note(key)
        dict.__setitem__(self, key, value)
        self.dirty.add(key)

    def remove(self, key: Any) -> None:
        self[key] = None
        self.changes.removed(key)

    def touch(self, key: Any) -> None:
        self.changes.note(key)
        self.dirty.add(key)

    def peek(self, key: Any) -> Any:
        """The value of ``key``, without putting it into the cache."""
        if key in self:
            return dict.__getitem__(self, key)
        value = self.old.get(key, _ABSENT)
        return self.load(key) if value is _ABSENT else value

    def current(self, key: Any) -> Any:
        """The value of a dirty key, in either generation."""
        return self[key] if key in self else self.old[key]

    def rotate(self) -> None:
        """The young generation becomes the old one, and the old one is dropped. All dirty values must have
        been written."""
        self.old = dict(self)
        self.clear()


class LevelDBStateBackend(KeyedStateBackend):
    """The state backend ``leveldb``.

    ``cache_entries`` limits the live values, which may exceed it by the keys of one batch. The limit of
    ``memory`` applies in the same way; live values count there by their encoded size. Raises
    UnsupportedError for a RAW key.
    """

    def __init__(
        self,
        space: KeyLayout,
        local_dir: Path | str,
        *,
        now_ms: Callable[[], int],
        uid: str,
        undo: bool = False,
        epochs: Epochs | None = None,
        cache_entries: int = DEFAULT_CACHE_ENTRIES,
        memory: StateMemory | None = None,
    ) -> None:
        super().__init__(space, now_ms=now_ms, uid=uid, undo=undo, epochs=epochs)
        if any(isinstance(type_, RawType) for type_ in space.types):
            # The pickles of two equal values may differ, and would then be two keys.
            raise UnsupportedError(
                "a key without a declared type in the LevelDB backend",
                expected="key_by(…, key_type=Types.…), or a column of a declared type",
                got=", ".join(map(str, space.types)),
                where=f"operator '{uid}'",
                remedy="declare the key's type, or set state.backend.type to hashmap",
            )
        # Imported here, because a slot with state in memory never needs it.
        import plyvel

        self.path = Path(local_dir) / "leveldb"
        self.path.mkdir(parents=True, exist_ok=True)
        self._memory = memory or StateMemory()
        buffer_bytes = _BUFFER_BYTES
        if self._memory.limit_bytes:
            buffer_bytes = min(buffer_bytes, max(self._memory.limit_bytes // _BUFFER_SHARE, _LEAST_BUFFER))
        self._db = plyvel.DB(
            str(self.path),
            create_if_missing=True,
            write_buffer_size=buffer_bytes,
            lru_cache_size=buffer_bytes,
            bloom_filter_bits=10,
        )
        self._value_bytes = _FIRST_VALUE_BYTES
        self._holder = self._memory.add(uid, self.live_bytes, evicts=True)
        self._cache_entries = cache_entries
        self._key_codec = tuple_codec(space.types)
        self._groups: dict[Any, int] = {}
        self._codecs: dict[int, tuple[Any, Any]] = {}
        self._ids: dict[str, int] = {}
        self._stored_timers: list[StoredTimers] = []
        if self._memory.limit_bytes:
            entries = EntryCodec(self._encode_entry, self._decode_entry, lambda: self.timer_namespaces)
            fetched = self._memory.limit_bytes // (_FETCHED_SHARE * TIMER_BYTES)
            fetched = min(max(fetched, _LEAST_FETCHED), MOST_FETCHED)
            event, processing = (
                StoredTimers(self.epochs, self._db, kind, entries, fetched) for kind in range(2)
            )
            self._use_timers(event, processing)
            self._stored_timers = [event, processing]
            for queue in self._stored_timers:
                queue.changes.forget()

    # -- keys and values -----------------------------------------------------------------

    def _make_table(self, desc: StateDescriptor, namespaced: bool) -> CachedTable:
        state_id = self._ids[desc.state_name] = len(self._ids)
        value_codec = codec(desc.stored_type)
        if desc.ttl is None:
            encode, decode = value_codec
        else:

            def encode(pair: tuple[Any, int]) -> bytes:
                return _EXPIRES.pack(pair[1]) + value_codec.encode(pair[0])

            def decode(data: bytes) -> tuple[Any, int]:
                return value_codec.decode(data[_EXPIRES.size :]), _EXPIRES.unpack_from(data)[0]

        self._codecs[state_id] = (encode, decode)
        get = self._db.get

        def load(key: Any) -> Any:
            data = get(self._row_key(state_id, namespaced, key))
            return None if data is None else decode(data)

        table = CachedTable(load, self.epochs)
        if self._memory.limit_bytes:
            # The first snapshot is whole, so nobody needs to know what changed before it.
            table.changes.forget()
        return table

    def _encode_entry(self, entry: Any) -> bytes:
        if not self.timer_namespaces:
            return self._key_codec.encode(entry)
        key, window = entry
        return self._key_codec.encode(key) + encode_namespace(window)

    def _decode_entry(self, data: bytes) -> Any:
        if not self.timer_namespaces:
            return self._key_codec.decode(data)
        return self._key_codec.decode(data[:-NAMESPACE_BYTES]), decode_namespace(data[-NAMESPACE_BYTES:])

    def _row_key(self, state_id: int, namespaced: bool, key: Any, group: int | None = None) -> bytes:
        user_key, namespace = key if namespaced else (key, None)
        if group is None:
            group = self._group_of(user_key)
        prefix = _PREFIX.pack(group, state_id) + self._key_codec.encode(user_key)
        return prefix if namespace is None else prefix + encode_namespace(namespace)

    def _group_of(self, user_key: Any) -> int:
        group = self._groups.get(user_key)
        if group is None:
            group = self._groups[user_key] = self.space.group_of(user_key)
        return group

    # -- batches and write-back --------------------------------------------------------------

    def begin_batch(self, keys: Sequence[Any], groups: Sequence[int] | None = None) -> None:
        super().begin_batch(keys, groups)
        if groups is not None:
            self._groups.update(zip(keys, groups, strict=True))

    def end_batch(self) -> None:
        states = self._registered.values()
        if sum(len(s.table) for s in states) * 2 > self._cache_entries:
            self._rotate()
        if self._memory.limit_bytes:
            self._sample()
            self._shorten()
        # The first rotation drops the old generation, the second one the young generation.
        for _ in range(2):
            if self._memory.excess(self._holder):
                self._rotate()
                self._groups.clear()
        if len(self._groups) > self._cache_entries:
            self._groups.clear()
        self._memory.check()

    def _shorten(self) -> None:
        """Moves timers to the disk if the slot holds too much and they are a part of it, and gives up records of
        changed keys that are."""
        limit = self._memory.limit_bytes
        many = sum(queue.in_memory for queue in self._stored_timers) * TIMER_BYTES
        if many > limit // _TIMER_SHARE and self._memory.excess(self._holder):
            moved = sum(queue.spill() for queue in self._stored_timers)
            self._memory.moved(moved * TIMER_BYTES)
        for changes in self._changes():
            if changes.recorded * _CHANGED_BYTES > limit // _CHANGED_SHARE:
                changes.forget()

    def _changes(self) -> list[KeyChanges]:
        return [x.table.changes for x in self._registered.values()] + [x.changes for x in self._stored_timers]

    def _rotate(self) -> None:
        self._write_back()
        for state in self._registered.values():
            state.table.rotate()

    def _sample(self) -> None:
        """Estimates the size of values from one changed value of each state."""
        for name, state in self._registered.items():
            key = next(iter(state.table.dirty), None)
            value = None if key is None else state.table.current(key)
            if value is not None:
                size = len(self._codecs[self._ids[name]][0](value))
                self._value_bytes += _SAMPLE_WEIGHT * (size - self._value_bytes)

    def live_bytes(self) -> int:
        live = sum(len(s.table) + len(s.table.old) for s in self._registered.values())
        small = 100 * len(self._groups)
        small += sum(queue.in_memory for queue in self._stored_timers) * TIMER_BYTES
        if self._memory.limit_bytes:
            small += sum(changes.recorded for changes in self._changes()) * _CHANGED_BYTES
            # Neither can shrink while a cut is copied or timers fire, which must not make the slot fail.
            small = min(small, self._memory.limit_bytes // 2)
        return int(live * (_OBJECT_BYTES + _OBJECT_TIMES * self._value_bytes)) + small

    def _write_back(self) -> None:
        """Writes all dirty values in key order, in pieces, for a batch has all its rows in memory twice."""
        rows: list[tuple[bytes, Any, Any]] = []
        for name, state in self._registered.items():
            state_id = self._ids[name]
            encode = self._codecs[state_id][0]
            dirty = list(state.table.dirty)
            self._learn_groups([k for k, _ in dirty] if state.namespaced else dirty)
            for key in dirty:
                value = state.table.current(key)
                rows.append((self._row_key(state_id, state.namespaced, key), value, encode))
            state.table.dirty.clear()
        if not rows:
            return
        rows.sort(key=lambda row: row[0])
        left = iter(rows)
        row = next(left, None)
        while row is not None:
            written = 0
            with self._db.write_batch() as batch:
                while row is not None and written < _WRITTEN_BYTES:
                    row_key, value, encode = row
                    if value is None:
                        batch.delete(row_key)
                    else:
                        data = encode(value)
                        batch.put(row_key, data)
                        written += len(data)
                    row = next(left, None)

    def _learn_groups(self, keys: Sequence[Any]) -> None:
        """Computes the key groups of many keys at once, because hashing them one by one would cost 20 µs
        each."""
        unknown = [k for k in keys if k not in self._groups]
        if unknown:
            found = self.space.groups(self.space.columns(unknown))
            self._groups.update(zip(unknown, found.tolist(), strict=True))

    # -- whole states -----------------------------------------------------------------------------

    def _rows(self, state: Registered) -> Iterator[tuple[Any, Any]]:
        """The rows in LevelDB that are not dirty, then the dirty ones from the cache."""
        table = state.table
        dirty = set(table.dirty)
        return itertools.chain(
            (row for row in self._stored_rows(state, self._db.snapshot()) if row[0] not in dirty),
            ((key, table.peek(key)) for key in dirty),
        )

    def _stored_rows(self, state: Registered, stored: Any) -> Iterator[tuple[Any, Any]]:
        state_id = self._ids[state.desc.state_name]
        decode_value = self._codecs[state_id][1]
        decode_key = self._key_codec.decode
        for group in range(self.space.max_parallelism):
            prefix = _PREFIX.pack(group, state_id)
            for row_key, data in stored.iterator(prefix=prefix, include_value=True, fill_cache=False):
                key_bytes = row_key[_PREFIX.size :]
                if state.namespaced:
                    key = decode_key(key_bytes[:-NAMESPACE_BYTES])
                    namespace = decode_namespace(key_bytes[-NAMESPACE_BYTES:])
                    yield (key, namespace), decode_value(data)
                else:
                    yield decode_key(key_bytes), decode_value(data)
        stored.close()

    def _put_all(self, state: Registered, rows: Iterable[tuple[Any, Any]]) -> None:
        state_id = self._ids[state.desc.state_name]
        encode = self._codecs[state_id][0]
        rows = list(rows)
        state.table.changes.restored(key for key, _ in rows)
        for at in range(0, len(rows), _RESTORE_ROWS):
            part = rows[at : at + _RESTORE_ROWS]
            user_keys = [k[0] for k, _ in part] if state.namespaced else [k for k, _ in part]
            groups = self.space.groups(self.space.columns(user_keys)).tolist()
            encoded = [
                (self._row_key(state_id, state.namespaced, key, group), encode(value))
                for (key, value), group in zip(part, groups, strict=True)
            ]
            encoded.sort()
            with self._db.write_batch() as batch:
                for row_key, data in encoded:
                    batch.put(row_key, data)

    def close(self) -> None:
        self._memory.remove(self._holder)
        self._db.close()
