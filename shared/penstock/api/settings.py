"""The settings of an environment: configuration values by methods with Flink's names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.api.checkpoint_config import CheckpointConfig, CheckpointingMode
from penstock.api.execution_config import ExecutionConfig
from penstock.api.jars import refuse_foreign_jar
from penstock.config import (
    BUFFER_TIMEOUT_MS,
    IDLE_TIMEOUT_MS,
    OBJECT_REUSE_CHAINING,
    PYTHON_ARCHIVES,
    PYTHON_REQUIREMENTS,
    SAVEPOINT_DIR,
    check_keys,
    texts,
)
from penstock.errors import SpecError
from penstock.jobgraph.artifacts import classes_in, shipped_entry
from penstock.jobgraph.dependencies import archives_value, requirements_value

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Self

    from penstock.api.common import RuntimeExecutionMode
    from penstock.api.slot_sharing_group import SlotSharingGroup
    from penstock.types.pickling import ClassName

_defaults: dict[str, str] = {}


def set_defaults(config: Mapping[str, str], python_path: Iterable[str] = ()) -> None:
    """Configuration that every new environment begins with (a job spec's, in the planner)."""
    _defaults.clear()
    _defaults.update(config)
    _default_path[:] = list(python_path)


_default_path: list[str] = []


def defaults() -> tuple[dict[str, str], list[str]]:
    """The configuration and the folders that every new environment begins with."""
    return dict(_defaults), list(_default_path)


class Settings:
    """The configuration methods of ``StreamExecutionEnvironment``. ``configuration``: initial values, of any
    kind.

    Raises:
        SpecError: A key is unknown, or a value malformed.
    """

    def __init__(self, configuration: Mapping[str, Any] | None = None) -> None:
        self.configuration: dict[str, str] = {**_defaults, **texts(configuration or {})}
        check_keys(self.configuration)
        self._python_path = list(_default_path)
        self._classes: list[ClassName] = []

    def set(self, key: str, value: Any) -> Self:
        """Set the configuration value ``key`` to ``value``.

        Raises:
            SpecError: The key is unknown (the error names the nearest known one), or the value is malformed.
        """
        added = texts({key: value})
        check_keys(added)
        self.configuration.update(added)
        return self

    def configure(self, configuration: Mapping[str, Any]) -> Self:
        """Set several configuration values, as ``set`` does."""
        for key, value in configuration.items():
            self.set(key, value)
        return self

    def set_parallelism(self, parallelism: int) -> Self:
        """Run each step in ``parallelism`` subtasks, unless the step has its own.

        Raises:
            SpecError: ``parallelism`` is below 1.
        """
        if parallelism < 1:
            raise SpecError("not a parallelism", expected=">= 1", got=str(parallelism))
        return self.set("parallelism.default", parallelism)

    def get_parallelism(self) -> int:
        """The number of subtasks of a step that has no parallelism of its own."""
        return int(self.configuration.get("parallelism.default", "1"))

    def set_max_parallelism(self, max_parallelism: int) -> Self:
        """Divide keyed state into ``max_parallelism`` key groups. It bounds the parallelism and cannot change later."""
        return self.set("pipeline.max-parallelism", max_parallelism)

    def get_max_parallelism(self) -> int:
        """The number of key groups; -1 while none is set."""
        return int(self.configuration.get("pipeline.max-parallelism", "-1"))

    def set_runtime_mode(self, execution_mode: str | RuntimeExecutionMode) -> Self:
        """When results are emitted.

        Args:
            execution_mode: ``STREAMING`` (default): results as they come. ``BATCH``: of bounded input, final results
                only. ``AUTOMATIC``: ``BATCH`` if every source is bounded.
        """
        return self.set("execution.runtime-mode", getattr(execution_mode, "name", execution_mode))

    def set_buffer_timeout(self, timeout_millis: int) -> Self:
        """Let an output hold rows for at most ``timeout_millis`` milliseconds before it sends them."""
        return self.set("execution.buffer-timeout", timeout_millis)

    def get_buffer_timeout(self) -> int:
        """The longest time that an output holds rows before it sends them, ms."""
        return BUFFER_TIMEOUT_MS.read(self.configuration)

    def disable_operator_chaining(self) -> Self:
        """Make a vertex of every operator."""
        return self.set(OBJECT_REUSE_CHAINING.key, False)

    def is_chaining_enabled(self) -> bool:
        """Whether operators of equal parallelism are chained into one vertex."""
        return OBJECT_REUSE_CHAINING.read(self.configuration)

    def get_config(self) -> ExecutionConfig:
        """Settings of how the job is executed, under Flink's names."""
        return ExecutionConfig(self)

    def get_checkpoint_config(self) -> CheckpointConfig:
        """Settings of how checkpoints are taken, under Flink's names."""
        return CheckpointConfig(self)

    def get_checkpoint_interval(self) -> int:
        """Time between two checkpoints, ms; -1 for none."""
        return self.get_checkpoint_config().get_checkpoint_interval()

    def get_checkpointing_mode(self) -> CheckpointingMode:
        """What a record counts after a restart."""
        return self.get_checkpoint_config().get_checkpointing_mode()

    get_checkpointing_consistency_mode = get_checkpointing_mode

    def is_unaligned_checkpoints_enabled(self) -> bool:
        """Whether barriers overtake records when channels are full."""
        return self.get_checkpoint_config().is_unaligned_checkpoints_enabled()

    def is_force_unaligned_checkpoints(self) -> bool:
        """False: Flink has this switch for iterations, which Penstock has not."""
        return False

    def set_default_savepoint_directory(self, directory: str) -> Self:
        """Write a savepoint to ``directory`` if its trigger names no other."""
        return self.set(SAVEPOINT_DIR.key, directory)

    def get_default_savepoint_directory(self) -> str | None:
        """The directory of savepoints whose trigger names none."""
        return self.configuration.get(SAVEPOINT_DIR.key)

    def set_state_backend(self, kind: str) -> Self:
        """Keep keyed state in the backend ``kind``: ``hashmap`` (memory), ``leveldb`` (on the local disk, for more
        than memory holds), an installed package's name, or ``package.module:factory``."""
        return self.set("state.backend.type", kind)

    def enable_checkpointing(
        self, interval: int, mode: str | CheckpointingMode = CheckpointingMode.EXACTLY_ONCE
    ) -> Self:
        """Take a checkpoint every ``interval`` milliseconds. ``mode``: ``EXACTLY_ONCE`` or ``AT_LEAST_ONCE``."""
        self.set("execution.checkpointing.interval", interval)
        return self.set("execution.checkpointing.mode", getattr(mode, "name", mode))

    def add_python_file(self, file_path: str) -> Self:
        """Put the folder or zip ``file_path`` on ``sys.path`` in the slots; it must be there on every task manager. For
        a module (``utils.py``), its folder is put on the path. What is added last is found first, as in PyFlink.

        The slots import those modules from the path, too. All other code of the program is shipped with the
        job.
        """
        self._python_path.insert(0, shipped_entry(file_path))
        return self

    def set_python_requirements(
        self, requirements_file_path: str, requirements_cache_dir: str | None = None
    ) -> Self:
        """Install packages for the job's functions, once on each task manager.

        Args:
            requirements_file_path: A requirements file of pip. Its text travels with the job.
            requirements_cache_dir: A folder of wheels, as ``pip download`` makes it. It travels with the job, and
                packages come from it alone. None: task managers ask their package index.
        """
        return self.set(
            PYTHON_REQUIREMENTS.key, requirements_value(requirements_file_path, requirements_cache_dir)
        )

    def add_python_archive(self, archive_path: str, target_dir: str | None = None) -> Self:
        """Unpack a zip or tar file for the job's functions, which find its content in ``target_dir`` of their working
        folder.

        Args:
            archive_path: The file. It travels with the job.
            target_dir: A relative folder. None: the name of the file.
        """
        known = PYTHON_ARCHIVES.read(self.configuration)
        return self.set(PYTHON_ARCHIVES.key, archives_value(known, archive_path, target_dir))

    def add_jars(self, *jars_path: str) -> Self:
        """Flink's way to bring a connector written in Java.

        A connector that Penstock has itself needs no JAR: a JAR whose name is that of such a connector
        (``flink-sql-connector-kafka-…``) is left out.

        Raises:
            UnsupportedError: A JAR is another one.
        """
        for path in jars_path:
            refuse_foreign_jar(path)
        return self

    def add_classpaths(self, *classpaths: str) -> Self:
        """As ``add_jars``, by URL. ``classpaths``: as there."""
        return self.add_jars(*classpaths)

    def register_slot_sharing_group(self, slot_sharing_group: SlotSharingGroup) -> Self:
        """Declare ``slot_sharing_group``; steps name it. A group needs no declaration.

        Raises:
            UnsupportedError: The group asks for resources.
        """
        slot_sharing_group.checked_name()
        return self

    def close(self) -> None:
        """Does nothing: an environment holds nothing open."""

    def register_type(self, cls: type) -> Self:
        """Ship the class ``cls`` with the job.

        Call this for a class whose instances occur in the job (in a savepoint, from a library) although no
        function of the job names it.
        """
        self._classes += classes_in(cls)
        return self

    def idle_timeout_ms(self) -> int:
        """After this many ms without rows a split holds no watermark back; 0: never."""
        return IDLE_TIMEOUT_MS.read(self.configuration)

    @property
    def idle_sources(self) -> bool:
        """Whether a source without rows is idle as a whole, since the time-out was set and is not the default."""
        return IDLE_TIMEOUT_MS.key in self.configuration
