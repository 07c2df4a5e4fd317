"""``ExecutionConfig``: how a job is executed, as settings of an environment under Flink's names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.config import WATERMARK_INTERVAL_MS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.api.settings import Settings

#: The prefix of a program's own keys; ``RuntimeContext.get_job_parameter`` reads them.
PARAMETERS = "user."


class ExecutionConfig:
    """How a job is executed. Made by ``StreamExecutionEnvironment.get_config``; ``env``: its settings."""

    def __init__(self, env: Settings) -> None:
        self._env = env

    def set_parallelism(self, parallelism: int) -> ExecutionConfig:
        """Run each step in ``parallelism`` subtasks, unless the step has its own."""
        self._env.set_parallelism(parallelism)
        return self

    def get_parallelism(self) -> int:
        """The number of subtasks of a step that has no parallelism of its own."""
        return self._env.get_parallelism()

    def set_max_parallelism(self, max_parallelism: int) -> ExecutionConfig:
        """Divide keyed state into ``max_parallelism`` key groups."""
        self._env.set_max_parallelism(max_parallelism)
        return self

    def get_max_parallelism(self) -> int:
        """The number of key groups; -1 while none is set."""
        return self._env.get_max_parallelism()

    def set_auto_watermark_interval(self, interval: int) -> ExecutionConfig:
        """Make watermarks every ``interval`` ms."""
        self._env.set(WATERMARK_INTERVAL_MS.key, interval)
        return self

    def get_auto_watermark_interval(self) -> int:
        """Time between two watermarks of a source, ms."""
        return WATERMARK_INTERVAL_MS.read(self._env.configuration)

    def set_global_job_parameters(self, global_job_parameters_dict: Mapping[str, Any]) -> ExecutionConfig:
        """Set ``global_job_parameters_dict``: values that functions read with
        ``RuntimeContext.get_job_parameter``."""
        for key, value in global_job_parameters_dict.items():
            self._env.set(f"{PARAMETERS}{key}", value)
        return self

    def get_global_job_parameters(self) -> dict[str, str]:
        """The values that ``set_global_job_parameters`` has set."""
        found = self._env.configuration
        return {k.removeprefix(PARAMETERS): v for k, v in found.items() if k.startswith(PARAMETERS)}

    def enable_object_reuse(self) -> ExecutionConfig:
        """Changes nothing: a stream's only consumer always gets its records without a copy, and several consumers
        have records of their own."""
        return self

    def is_object_reuse_enabled(self) -> bool:
        """True."""
        return True

    def enable_closure_cleaner(self) -> ExecutionConfig:
        """Changes nothing: a function is always pickled with everything that it uses."""
        return self

    disable_closure_cleaner = enable_closure_cleaner

    def enable_generic_types(self) -> ExecutionConfig:
        """Changes nothing: records without a declared type may always be any Python value."""
        return self

    def has_generic_types_disabled(self) -> bool:
        """False."""
        return False
