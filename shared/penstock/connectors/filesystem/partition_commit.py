"""Partition commit: a partition that is complete gets a success file, or what a class of the user's does with it.

A partition is ripe when its own time has passed (trigger ``partition-time``: the watermark passed the partition's time and the
delay; ``process-time``: the clock passed its first row and the delay), and when the input has ended. It is committed behind the
checkpoint that showed its files. Rows that come later make it ripe again at the next checkpoint.
The planner sends all rows of a partition to one subtask if the watermark decides, and a restored partition goes to the
same subtask, so that no other writer has rows of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.connectors.filesystem.committables import OpenPartition
from penstock.connectors.filesystem.partition_time import PartitionTimes
from penstock.connectors.filesystem.paths import Files, join
from penstock.errors import ConnectorError
from penstock.plugins import IMPORT_PATH, Register, function

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from penstock.connectors.filesystem.partitions import Partitioning

COMMIT = "sink.partition-commit."
KIND = f"{COMMIT}policy.kind"
CLASS = f"{COMMIT}policy.class"
TRIGGER = f"{COMMIT}trigger"
_WHERE = "connector 'filesystem'"
#: The watermark (µs) when all input has ended.
END_OF_TIME = 2**63 - 1


@dataclass(frozen=True, slots=True)
class CommittedPartition:
    """What a commit policy is given: the partition's folder (a path, or the URL of a prefix), its columns and their values as
    texts (None: NULL), and the port ``files`` to its file system."""

    partition_path: str
    partition_keys: tuple[str, ...]
    partition_values: tuple[str | None, ...]
    files: Files

    @property
    def partition_spec(self) -> dict[str, str | None]:
        """Column → value."""
        return dict(zip(self.partition_keys, self.partition_values, strict=True))


class SuccessFile:
    """The policy ``success-file``: an empty file in the partition's folder."""

    def __init__(self, name: str) -> None:
        self._name = name

    def commit(self, context: CommittedPartition) -> None:
        """Write the file; one that is there is written again."""
        path = join(context.partition_path, self._name)
        context.files.open_output(path).close()
        context.files.sync(path)


def _needs_commit_method(value: Any) -> Callable[..., Any]:
    made = function(value)
    if not callable(getattr(value, "commit", None)):
        raise TypeError("a class without a method 'commit'")
    return made


_POLICIES: Register[Callable[..., Any]] = Register(
    "partition commit policy", "penstock.partition_commit_policies", builtin={}, make=_needs_commit_method,
    expected="a class with a method commit(context)", error=ConnectorError,
)  # fmt: skip


def policies(options: Mapping[str, Any]) -> list[Any]:
    """The commit policies of a table's typed options; ConnectorError for one that is unknown or cannot be imported."""
    out: list[Any] = []
    for kind in filter(None, (part.strip() for part in (options[KIND] or "").split(","))):
        match kind:
            case "success-file":
                out.append(SuccessFile(options[f"{COMMIT}success-file.name"]))
            case "custom":
                out.append(_custom(options))
            case _:
                raise ConnectorError(
                    f"option '{KIND}' names the policy '{kind}'",
                    expected="success-file, custom, or both with a comma between them",
                    got=repr(kind),
                    where=_WHERE,
                    remedy="there is no Hive metastore here to tell: use 'custom' and a class that tells it"
                    if kind == "metastore"
                    else f"write '{KIND}' = 'success-file'",
                )
    return out


def _custom(options: Mapping[str, Any]) -> Any:
    path = options[CLASS]
    if path is None:
        raise ConnectorError(
            f"option '{CLASS}' is missing",
            expected=f"with '{KIND}' = 'custom', the import path of a class: 'package.module:Class'",
            got="no such option",
            where=_WHERE,
            remedy=f"add '{CLASS}'",
        )
    made = _POLICIES.find(IMPORT_PATH + path.removeprefix(IMPORT_PATH), where=f"{_WHERE}, option '{CLASS}'")
    given = options[f"{CLASS}.parameters"]
    return made(*([] if given is None else given.split(";")))


@dataclass(slots=True)
class _Ripe:
    checkpoint_id: int
    partition: OpenPartition


@dataclass(slots=True)
class PartitionCommits:
    """The partitions that a writer has written and not committed. ``times``: the times of partitions; None: the clock decides.
    ``delay_ms``: how long after its time a partition is ripe."""

    times: PartitionTimes | None
    delay_ms: int
    _open: dict[str, OpenPartition] = field(default_factory=dict)
    _ripe: list[_Ripe] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self._open or self._ripe)

    def wrote(self, folder: str, now_ms: int) -> None:
        """A row of the partition was written. ConnectorError if the partition has no time and needs one."""
        if folder not in self._open:
            if self.times is not None:
                self.times.instant_ms(folder)
            self._open[folder] = OpenPartition(folder, now_ms)

    def adopt(self, partitions: Iterable[OpenPartition], *, ripe: bool) -> None:
        """Take the partitions of a checkpoint. ``ripe``: they are committed with the next commit."""
        for partition in partitions:
            if ripe:
                self._ripe.append(_Ripe(0, partition))
            else:
                self._open[partition.folder] = partition

    def cut(self, checkpoint_id: int, watermark: int, now_ms: int, *, ended: bool) -> set[str]:
        """A barrier: the partitions that are ripe at it, whose files must end. ``watermark``: µs, as of the barrier."""
        found = set()
        for folder, partition in list(self._open.items()):
            if ended or self._passed(partition, watermark, now_ms):
                found.add(folder)
                self._ripe.append(_Ripe(checkpoint_id, self._open.pop(folder)))
        return found

    def _passed(self, partition: OpenPartition, watermark: int, now_ms: int) -> bool:
        if self.times is None:
            return now_ms >= partition.created_ms + self.delay_ms
        return watermark // 1000 > self.times.instant_ms(partition.folder) + self.delay_ms

    def state(self) -> list[OpenPartition]:
        """What a checkpoint must keep."""
        return [*self._open.values(), *(ripe.partition for ripe in self._ripe)]

    def due(self, checkpoint_id: int) -> Sequence[str]:
        """The partitions to commit when the checkpoint is complete and its files are shown."""
        return sorted({r.partition.folder for r in self._ripe if r.checkpoint_id <= checkpoint_id})

    def committed(self, checkpoint_id: int) -> None:
        """The partitions of ``due`` are committed."""
        self._ripe = [r for r in self._ripe if r.checkpoint_id > checkpoint_id]


def partition_commits(
    options: Mapping[str, Any], partitioning: Partitioning | None
) -> PartitionCommits | None:
    """The book of a table's partitions; None if they are not committed."""
    if options[KIND] is None or partitioning is None:
        return None
    by_time = options[TRIGGER] == "partition-time"
    return PartitionCommits(
        PartitionTimes.of(options, partitioning) if by_time else None, options[f"{COMMIT}delay"]
    )


def check(options: Mapping[str, Any], partitioning: Partitioning | None) -> None:
    """ConnectorError for options of partition commits that do not fit each other, or a class that cannot be imported."""
    if options[KIND] is None:
        return
    if partitioning is None:
        raise ConnectorError(
            f"option '{KIND}' for a table without partitions",
            expected="a table with PARTITIONED BY",
            got=repr(options[KIND]),
            where=_WHERE,
            remedy=f"add PARTITIONED BY, or remove '{KIND}'",
        )
    policies(options)
    partition_commits(options, partitioning)
