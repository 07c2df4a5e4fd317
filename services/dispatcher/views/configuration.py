"""Options of a job and of the cluster. Secrets are hidden."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.redaction import shown_options
from penstock_services.dispatcher.views.common import Kebab, Shape

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.messages.cluster import JobDetails


class ExecutionConfig(Kebab, frozen=True, kw_only=True):
    """The configuration of a job. ``user-config``: all its options."""

    restart_strategy: str
    job_parallelism: int
    object_reuse_mode: bool = True
    user_config: dict[str, str]


class JobConfig(Kebab, frozen=True, kw_only=True):
    """``GET /jobs/{id}/config``"""

    jid: str
    name: str
    execution_config: ExecutionConfig


class Option(Shape, frozen=True, kw_only=True):
    """An option that is set."""

    key: str
    value: str


def options(config: Mapping[str, str]) -> list[Option]:
    """The options that are set, with hidden secrets."""
    return [Option(key=k, value=v) for k, v in sorted(shown_options(config).items())]


def job_config(details: JobDetails) -> JobConfig:
    """The configuration of a job, with hidden secrets."""
    config = shown_options(details.config)
    return JobConfig(
        jid=details.job_id,
        name=details.name,
        execution_config=ExecutionConfig(
            restart_strategy=config.get("restart-strategy.type", "exponential-delay"),
            job_parallelism=max((v.parallelism for v in details.vertices), default=1),
            user_config=config,
        ),
    )
