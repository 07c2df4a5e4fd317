"""The functions of a job by name, for operators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class FunctionTable:
    """Calling it with a name gives the object of that name, the same one each time.

    ``load`` finds an object; ``job_config`` is the job's configuration, which ``open`` of a function may read.
    """

    def __init__(self, load: Callable[[str], Any], job_config: Mapping[str, str]) -> None:
        self._load = load
        self.job_config = job_config

    def __call__(self, name: str) -> Any:
        return self._load(name)
