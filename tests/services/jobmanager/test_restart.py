from __future__ import annotations

import pytest

from penstock.errors import (
    ConnectorError,
    ExternalError,
    FunctionError,
    InternalError,
    PeerLostError,
    SlotLostError,
    SparkBusyError,
)
from penstock_services.jobmanager.restart import (
    BUSY_FAILURES,
    SYMPTOM_MS,
    TRIAL_MS,
    FailureHandler,
    GiveUp,
    Restart,
    strategy_of,
)

P = "restart-strategy."


@pytest.mark.parametrize(
    ("config", "failures_ms", "delays"),
    [
        ({P + "type": "none"}, [0], [None]),
        (
            {P + "type": "fixed-delay", P + "fixed-delay.attempts": "2", P + "fixed-delay.delay": "3 s"},
            [0, 10, 20],
            [3000, 3000, None],
        ),
        (
            {
                P + "type": "failure-rate",
                P + "failure-rate.max-failures-per-interval": "2",
                P + "failure-rate.failure-rate-interval": "1 min",
                P + "failure-rate.delay": "5 s",
            },
            [0, 1000, 61_000, 61_500, 61_600],
            [5000, 5000, 5000, 5000, None],
        ),
        (
            {
                P + "type": "exponential-delay",
                P + "exponential-delay.initial-backoff": "1 s",
                P + "exponential-delay.max-backoff": "3 s",
                P + "exponential-delay.backoff-multiplier": "2",
                P + "exponential-delay.reset-backoff-threshold": "1 min",
                P + "exponential-delay.jitter-factor": "0",
            },
            [0, 1000, 5000, 9000, 9000 + 3000 + 60_000],
            [1000, 2000, 3000, 3000, 1000],
        ),
        (
            {
                P + "type": "exponential-delay",
                P + "exponential-delay.attempts-before-reset-backoff": "2",
                P + "exponential-delay.jitter-factor": "0",
            },
            [0, 1, 2],
            [1000, 1500, None],
        ),
    ],
)
def test_strategies(config, failures_ms, delays):
    strategy = strategy_of(config)
    assert [strategy.decide(ms) for ms in failures_ms] == delays
    assert strategy.describe()


def test_delays_are_spread_by_job_and_the_same_each_time():
    delays = [
        [strategy_of({P + "exponential-delay.initial-backoff": "10 s"}, seed).decide(5) for _ in range(2)]
        for seed in ("a", "b", "c")
    ]
    assert all(len(set(d)) == 1 and 9_000 <= d[0] <= 11_000 for d in delays)
    assert len({d[0] for d in delays}) == 3


def test_losses_by_accident_need_no_pause_unless_they_come_fast():
    lost = {**SlotLostError("slot lost").to_dict(), "lost": True}
    handler = FailureHandler({})
    delays = [handler.decide(lost, 7, ms).delay_ms for ms in (0, 10, 20, 30, 40)]
    assert delays[:3] == [0, 0, 0]
    assert all(900 <= d <= 1_650 for d in delays[3:])
    assert handler.decide(lost, 7, 60_000).delay_ms == 0
    assert FailureHandler({}).decide(PeerLostError("broke").to_dict(), 7, 0) == Restart(SYMPTOM_MS)
    asked = FailureHandler({P + "type": "fixed-delay", P + "fixed-delay.delay": "3 s"})
    assert asked.decide(lost, 7, 0) == Restart(3_000), "whoever names a strategy gets its delays"


def test_what_cannot_help_is_not_tried():
    handler = FailureHandler({P + "type": "fixed-delay"})
    decision = handler.decide(ConnectorError("no such stream").to_dict(), 0, 0)
    assert isinstance(decision, GiveUp)


def test_the_same_failure_from_the_same_checkpoint_ends_it_unless_retries_were_asked_for():
    error = FunctionError("boom").to_dict()
    default, asked = FailureHandler({}), FailureHandler({P + "type": "exponential-delay"})
    assert [type(default.decide(error, 7, ms)) for ms in (0, 1, 2)] == [Restart, Restart, GiveUp]
    assert {type(asked.decide(error, 7, ms)) for ms in range(10)} == {Restart}


def test_a_machine_that_is_too_busy_for_sparks_python_is_given_time():
    error = SparkBusyError("a Python process did not connect to Spark in time").to_dict()
    handler = FailureHandler({})
    decided = [type(handler.decide(error, 0, 10_000 * n)) for n in range(BUSY_FAILURES)]
    assert decided == [*[Restart] * (BUSY_FAILURES - 1), GiveUp]


@pytest.mark.parametrize("change", ["checkpoint", "message", "lost"])
def test_failures_that_differ_are_retried(change):
    handler = FailureHandler({})
    for n in range(10):
        error = InternalError(f"slot {n if change == 'message' else 0}").to_dict()
        if change == "lost":
            error["lost"] = True
        assert isinstance(handler.decide(error, n if change == "checkpoint" else 0, n), Restart)


def raised(message: str = "no") -> dict:
    return FunctionError(message, where="operator 'Map'").to_dict()


def test_a_function_that_raises_is_an_answer_in_less_than_a_second():
    handler = FailureHandler({})
    decided = [handler.decide(raised(), 0, now_ms) for now_ms in (0, 200, 500)]
    assert decided[:2] == [Restart(TRIAL_MS), Restart(2 * TRIAL_MS)]
    assert isinstance(decided[2], GiveUp)


def test_failures_that_go_on_have_the_strategys_pauses():
    """Each with another text: nothing says that they repeat themselves, and nothing may spin."""
    handler = FailureHandler({P + "exponential-delay.jitter-factor": "0"})
    assert [handler.decide(raised(str(n)), 0, n * 10_000) for n in range(2)] == [Restart(1000), Restart(1500)]
    handler = FailureHandler({})
    pauses = [handler.decide(raised(str(n)), 0, n * 10_000).delay_ms for n in range(6)]
    assert pauses[:2] == [TRIAL_MS, 2 * TRIAL_MS]
    assert min(pauses[2:]) >= 900
    assert pauses[2:] == sorted(pauses[2:])


@pytest.mark.parametrize(
    ("config", "error", "checkpoint"),
    [
        ({}, raised(), 7),
        ({}, ExternalError("the broker is away").to_dict(), 0),
        ({P + "exponential-delay.initial-backoff": "2 s"}, raised(), 0),
        ({P + "type": "exponential-delay"}, raised(), 0),
    ],
    ids=["after a checkpoint", "outside", "a pause of one's own", "a strategy of one's own"],
)
def test_what_may_need_a_pause_gets_it(config, error, checkpoint):
    assert FailureHandler(config).decide(error, checkpoint, 0).delay_ms >= 900
