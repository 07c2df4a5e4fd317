"""Checks of a whole configuration: keys are known, values fit, and each key is set where it belongs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.config.cluster import HEARTBEAT_INTERVAL_MS, HEARTBEAT_TIMEOUT_MS
from penstock.config.job import RESTART_EXP_INITIAL_MS, RESTART_EXP_MAX_MS
from penstock.config.option import FAMILIES, OPTIONS, ConfigFamily, ConfigOption
from penstock.errors import SpecError, nearest

if TYPE_CHECKING:
    from collections.abc import Mapping


def texts(config: Mapping[str, Any]) -> dict[str, str]:
    """Values of YAML, JSON or Python as the texts of a configuration: ``True`` becomes ``true``."""
    return {k: str(v).lower() if isinstance(v, bool) else str(v) for k, v in config.items()}


#: Flink's options that have no effect in Penstock → what to do instead.
WITHOUT_EFFECT = {
    "taskmanager.memory.process.size": "limit the task manager's container or cgroup; of each slot "
    "'state.backend.memory.per-slot' and 'taskmanager.memory.network.size' bound what it keeps",
}


#: Former names of Flink's options → their current names.
FORMER_NAMES = {
    "execution.checkpointing.unaligned": "execution.checkpointing.unaligned.enabled",
    "execution.savepoint.ignore-unclaimed-state": "execution.state-recovery.ignore-unclaimed-state",
    "execution.savepoint.path": "execution.state-recovery.path",
    "restart-strategy": "restart-strategy.type",
    "state.backend": "state.backend.type",
    "state.backend.incremental": "execution.checkpointing.incremental",
    "state.savepoints.dir": "execution.checkpointing.savepoint-dir",
}


def check_keys(config: Mapping[str, Any]) -> None:
    """Raises SpecError for a known key whose value does not fit, and, with the nearest name, for an unknown key."""
    for key in config:
        if key in WITHOUT_EFFECT:
            raise SpecError(
                f"'{key}' has no effect in Penstock",
                expected="a key of docs/configuration.md",
                got=f"{key} = {config[key]}",
                where=f"configuration key '{key}'",
                remedy=f"leave it out: {WITHOUT_EFFECT[key]}",
            )
        # PyFlink's programs set keys of its second process (python.fn-execution.bundle.size), which is not there.
        if not is_known_option(key) and not key.startswith("python."):
            raise SpecError(
                f"unknown configuration key '{key}'",
                expected="a key of docs/configuration.md (your own: 'user.…')",
                got=repr(key),
                remedy=f"the option's name is '{FORMER_NAMES[key]}'"
                if key in FORMER_NAMES
                else nearest(key, OPTIONS),
            )
        if key in OPTIONS:
            OPTIONS[key].read(config)


def check_job(config: Mapping[str, Any]) -> None:
    """``check_keys`` for a job. Also raises SpecError for a key of the cluster and for values that contradict
    each other."""
    check_keys(config)
    for key in config:
        if is_cluster_option(key):
            raise SpecError(
                f"'{key}' is the cluster's, a job cannot set it",
                expected="options of jobs (docs/configuration.md says whose an option is)",
                # The value of a key that Penstock does not list may be a secret.
                got=f"{key} = {config[key]}" if key in OPTIONS else key,
                where=f"configuration key '{key}'",
                remedy="give it to the services: in their configuration file, or penstock up -D key=value",
            )
    _check_backoff(config)


def check_cluster(config: Mapping[str, Any]) -> None:
    """``check_keys`` for a service, from whose configuration jobs inherit. Also raises SpecError for an option that
    can be no default of jobs, and for values that contradict each other."""
    check_keys(config)
    for key in config:
        if key in OPTIONS and OPTIONS[key].scope == "one job":
            raise SpecError(
                f"'{key}' is of one job, it cannot be the default of a cluster's jobs",
                expected="options of the cluster, or of jobs (docs/configuration.md says whose an option is)",
                got=f"{key} = {config[key]}",
                where=f"configuration key '{key}'",
                remedy="leave it out here; the job that means it sets it: in its spec, by SET or -D",
            )
    _check_order(config, HEARTBEAT_INTERVAL_MS, HEARTBEAT_TIMEOUT_MS)
    _check_backoff(config)


def _check_backoff(config: Mapping[str, Any]) -> None:
    # A missing key may be set elsewhere, because a job inherits from its cluster.
    if RESTART_EXP_INITIAL_MS.key in config and RESTART_EXP_MAX_MS.key in config:
        _check_order(config, RESTART_EXP_INITIAL_MS, RESTART_EXP_MAX_MS)


def _check_order(config: Mapping[str, Any], lower: ConfigOption[int], upper: ConfigOption[int]) -> None:
    low, high = lower.read(config), upper.read(config)
    if low > high:
        raise SpecError(
            f"'{lower.key}' is above '{upper.key}'",
            expected=f"at most {upper.shown(high)}",
            got=lower.shown(low),
            where=f"configuration key '{lower.key}'",
            remedy=f"lower it, or raise '{upper.key}'",
        )


def is_cluster_option(key: str) -> bool:
    """Whether ``key`` is an option of the cluster, which a job cannot set. False for unknown keys."""
    of = OPTIONS.get(key) or family_of(key)
    return of is not None and of.scope == "cluster"


def is_known_option(key: str) -> bool:
    """Whether Penstock knows ``key``."""
    return key in OPTIONS or family_of(key) is not None


def family_of(key: str) -> ConfigFamily | None:
    """The family to which ``key`` belongs by its prefix, or None."""
    return next((family for family in FAMILIES if key.startswith(family.prefix)), None)
