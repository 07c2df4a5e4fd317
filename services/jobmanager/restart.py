"""Restart strategies: whether and when to restart after a failure. Pure.

``decide(now_ms)`` is called once for each failure of a running job. It returns the delay in ms before the
restart, or None: give up. ``none``, ``fixed-delay``, ``failure-rate`` and ``exponential-delay`` behave as
Flink's.
"""

from __future__ import annotations

import zlib
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from penstock import config as keys
from penstock.errors import PeerLostError, SparkBusyError, error_from_dict

if TYPE_CHECKING:
    from collections.abc import Mapping

#: A loss by accident (a killed process, a dead machine) needs no pause, up to this often within this time.
LOSSES, LOSSES_MS = 3, 10_000
#: After its first symptom, a broken connection, the restart waits until the loss itself is known.
SYMPTOM_MS = 200
#: A failure that occurs this often from the same checkpoint is no accident.
SAME_FAILURES = 3
#: The same of a Spark that waits too briefly for its Python processes: the machine is busy for a while, or its
#: Python cannot start at all.
BUSY_FAILURES = 10
#: The delay before the first retry of a failure; before the second it is twice as long. It is short because
#: the user who submitted the job is waiting. Later retries have the delays of the strategy.
TRIAL_MS = 100


class RestartStrategy(Protocol):
    """A strategy for one job."""

    def decide(self, now_ms: int) -> int | None:
        """The delay in ms before the restart, or None: give up. Called once for each failure."""

    def describe(self) -> str:
        """What the strategy allows, for error messages."""


class NoRestart:
    """The strategy ``none``."""

    def decide(self, now_ms: int) -> int | None:
        return None

    def describe(self) -> str:
        return "restart-strategy.type is 'none'"


@dataclass
class FixedDelay:
    """The strategy ``fixed-delay``."""

    attempts: int
    delay_ms: int
    used: int = 0

    def decide(self, now_ms: int) -> int | None:
        if self.used >= self.attempts:
            return None
        self.used += 1
        return self.delay_ms

    def describe(self) -> str:
        return f"fixed-delay allows {self.attempts} restarts"


@dataclass
class FailureRate:
    """The strategy ``failure-rate``."""

    max_failures: int
    interval_ms: int
    delay_ms: int
    failures: deque[int] = field(default_factory=deque)

    def decide(self, now_ms: int) -> int | None:
        while self.failures and self.failures[0] <= now_ms - self.interval_ms:
            self.failures.popleft()
        self.failures.append(now_ms)
        return self.delay_ms if len(self.failures) <= self.max_failures else None

    def describe(self) -> str:
        return f"failure-rate allows {self.max_failures} failures in {self.interval_ms} ms"


@dataclass
class ExponentialDelay:
    """The strategy ``exponential-delay``."""

    initial_ms: int
    max_ms: int
    multiplier: float
    reset_ms: int
    attempts: int
    jitter_factor: float = 0.0
    #: Makes the jitter differ between jobs.
    seed: str = ""
    used: int = 0
    next_ms: float = 0.0
    restarted_ms: int | None = None

    def decide(self, now_ms: int) -> int | None:
        stable = self.restarted_ms is not None and now_ms - self.restarted_ms >= self.reset_ms
        if self.restarted_ms is None or stable:
            self.used, self.next_ms = 0, float(self.initial_ms)
        if self.used >= self.attempts:
            return None
        delay_ms = round(min(self.next_ms, self.max_ms) * self._jitter(now_ms))
        self.used += 1
        self.next_ms = min(self.next_ms * self.multiplier, float(self.max_ms))
        self.restarted_ms = now_ms + delay_ms
        return delay_ms

    def _jitter(self, now_ms: int) -> float:
        """A factor between 1 − jitter and 1 + jitter, so that jobs that failed together do not restart
        together. It is not random: the same history gives the same delays."""
        spread = zlib.crc32(f"{self.seed}:{now_ms}".encode()) / 0xFFFFFFFF
        return 1 + self.jitter_factor * (2 * spread - 1)

    def describe(self) -> str:
        return f"exponential-delay allows {self.attempts} restarts"


def strategy_of(config: Mapping[str, Any], seed: str = "") -> RestartStrategy:
    """The strategy in the job's configuration. ``seed``: the job's id."""
    kind = keys.RESTART_STRATEGY.read(config)
    if kind == "none":
        return NoRestart()
    if kind == "fixed-delay":
        return FixedDelay(keys.RESTART_FIXED_ATTEMPTS.read(config), keys.RESTART_FIXED_DELAY_MS.read(config))
    if kind == "failure-rate":
        return FailureRate(
            keys.RESTART_RATE_MAX.read(config),
            keys.RESTART_RATE_INTERVAL_MS.read(config),
            keys.RESTART_RATE_DELAY_MS.read(config),
        )
    return ExponentialDelay(
        keys.RESTART_EXP_INITIAL_MS.read(config),
        keys.RESTART_EXP_MAX_MS.read(config),
        keys.RESTART_EXP_MULTIPLIER.read(config),
        keys.RESTART_EXP_RESET_MS.read(config),
        keys.RESTART_EXP_ATTEMPTS.read(config),
        keys.RESTART_EXP_JITTER.read(config),
        seed,
    )


@dataclass(frozen=True)
class Restart:
    """Restart after this delay."""

    delay_ms: int


@dataclass(frozen=True)
class GiveUp:
    """Fail the job, for this reason."""

    reason: str


class FailureHandler:
    """Decides about failures. Errors that cannot go away are not retried; otherwise the strategy decides.

    With the default strategy (the user did not ask for endless restarts) an identical error that occurs
    ``SAME_FAILURES`` times in a row from the same checkpoint ends the job. Without a checkpoint the delays
    between these retries are short, so that a function that raises is reported in less than a second.
    """

    def __init__(self, config: Mapping[str, Any], seed: str = "") -> None:
        self.strategy = strategy_of(config, seed)
        self._losses: deque[int] = deque()
        self._explicit = keys.RESTART_STRATEGY.key in config
        self._paced = any(key.startswith("restart-strategy.") for key in config)
        self._last: tuple[Any, ...] | None = None
        self._same = 0
        self._trials = 0
        #: (exit code, restored checkpoint) of the last process that the job's code ended, and how often in a
        #: row.
        self._ended: tuple[Any, ...] | None = None
        self._ended_times = 0

    def cause(self, error: dict[str, Any], restored_checkpoint_id: int) -> GiveUp | None:
        """A loss was reported after the decision about its symptom (a broken connection). Returns GiveUp if
        the loss ends the job."""
        if error.get("ended") is None:
            return None
        signature = (error["ended"], restored_checkpoint_id)
        self._ended_times = self._ended_times + 1 if signature == self._ended else 1
        self._ended = signature
        if self._explicit or self._ended_times < SAME_FAILURES:
            return None
        return GiveUp(
            f"the job's code ended its process {self._ended_times} times from the same checkpoint "
            "(set restart-strategy.type to retry as that strategy says)"
        )

    def _after_loss(self, error: dict[str, Any], now_ms: int) -> int | None:
        """The delay in ms after a loss by accident. None: it was no accident, or losses come too fast."""
        symptom = error.get("type") == PeerLostError.__name__
        if not (error.get("lost") or symptom):
            return None
        while self._losses and self._losses[0] <= now_ms - LOSSES_MS:
            self._losses.popleft()
        if len(self._losses) >= LOSSES:
            return None
        self._losses.append(now_ms)
        return SYMPTOM_MS if symptom else 0

    def decide(self, error: dict[str, Any], restored_checkpoint_id: int, now_ms: int) -> Restart | GiveUp:
        """Whether to restart after ``error`` (a dict), and when."""
        known = error_from_dict(error)
        if known.domain == "user" and not known.retryable:
            return GiveUp("trying again cannot help: the error is in the program or its data")
        ended = self.cause(error, restored_checkpoint_id)
        if ended is not None:
            return ended
        signature = (error.get("type"), error.get("message"), error.get("where"), restored_checkpoint_id)
        self._same = self._same + 1 if signature == self._last else 1
        self._last = signature
        # An external system may come back. But a job without a checkpoint is more likely to have a wrong
        # address, and the user who submitted it is waiting.
        outside = known.domain == "external" and restored_checkpoint_id > 0
        deterministic = not error.get("lost") and not outside
        often = BUSY_FAILURES if isinstance(known, SparkBusyError) else SAME_FAILURES
        if deterministic and not self._explicit and self._same >= often:
            return GiveUp(
                f"the same failure came {self._same} times in a row from the same checkpoint "
                "(set restart-strategy.type to retry as that strategy says)"
            )
        if not self._explicit and (pause_ms := self._after_loss(error, now_ms)) is not None:
            return Restart(pause_ms)
        # A delay may help an external system, and a job with a checkpoint can wait for it.
        trial = deterministic and known.domain != "external" and restored_checkpoint_id == 0
        if trial and not self._paced and self._trials < SAME_FAILURES - 1:
            self._trials += 1
            return Restart(TRIAL_MS * self._trials)
        delay_ms = self.strategy.decide(now_ms)
        return GiveUp(self.strategy.describe()) if delay_ms is None else Restart(delay_ms)
