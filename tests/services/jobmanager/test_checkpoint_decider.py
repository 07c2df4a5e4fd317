from __future__ import annotations

import pytest

from penstock_services.jobmanager.checkpoint_decider import (
    At,
    CheckpointConfig,
    Now,
    Schedule,
    Tolerance,
    decide,
)

READY = {"ready_since_ms": 1000, "any_running": True}


@pytest.mark.parametrize(
    ("interval_ms", "pause_ms", "schedule", "now_ms", "expected"),
    [
        (500, 0, {}, 9000, None),  # tasks are not running
        (500, 0, READY | {"any_running": False}, 9000, None),  # all finished
        (500, 0, READY | {"in_flight": 1}, 9000, None),
        (500, 0, READY, 1100, At(1500)),
        (500, 0, READY, 1500, Now("periodic")),
        (500, 0, READY | {"last_trigger_ms": 2000}, 2100, At(2500)),
        (500, 0, READY | {"last_trigger_ms": 200}, 1100, At(1500)),  # of an earlier attempt
        (500, 900, READY | {"last_trigger_ms": 2000, "last_end_ms": 2300}, 2600, At(3200)),
        (500, 900, READY | {"last_trigger_ms": 2000, "last_end_ms": 2300}, 3200, Now("periodic")),
        (0, 0, READY, 9000, None),
        (0, 0, READY | {"final_wanted": True}, 1000, Now("final")),
        (500, 900, READY | {"final_wanted": True, "last_end_ms": 1000}, 1000, Now("final")),
        (500, 0, READY | {"final_wanted": True, "last_end_ms": 1000, "last_failed": True}, 1000, At(1200)),
        (0, 0, READY | {"requested": True}, 1000, Now("requested")),
        (0, 0, {"requested": True, "any_running": True}, 1000, None),
    ],
)
def test_decide(interval_ms, pause_ms, schedule, now_ms, expected):
    config = CheckpointConfig(interval_ms, 60_000, pause_ms, 0, 1)
    assert decide(config, Schedule(**schedule), now_ms) == expected


def test_several_may_be_in_flight():
    config = CheckpointConfig(500, 60_000, 0, 0, 1, max_concurrent=2)
    since = READY | {"last_trigger_ms": 2000}
    assert decide(config, Schedule(**since, in_flight=1), 2100) == At(2500)
    assert decide(config, Schedule(**since, in_flight=1), 2500) == Now("periodic")
    assert decide(config, Schedule(**since, in_flight=2), 2500) is None


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({}, 3),
        ({"min-pause": "1 s"}, 1),
        ({"unaligned.enabled": "true"}, 1),
        ({"unaligned.enabled": "true", "mode": "AT_LEAST_ONCE"}, 3),  # nothing is ever overtaken
    ],
)
def test_how_many_may_be_in_flight(more, expected):
    prefix = "execution.checkpointing."
    config = {prefix + key: value for key, value in more.items()}
    found = CheckpointConfig.of(config | {prefix + "max-concurrent-checkpoints": "3"})
    assert found.max_concurrent == expected


def test_config_reads_flinks_keys():
    prefix = "execution.checkpointing."
    config = CheckpointConfig.of({prefix + "interval": "2 s", prefix + "num-retained": "3"})
    assert (config.interval_ms, config.num_retained) == (2000, 3)


def test_the_job_fails_when_more_in_a_row_fail_than_are_tolerated() -> None:
    tolerance = Tolerance(1)
    tolerance.failed(1, "was declined")
    assert tolerance.take_failure() is None
    tolerance.completed()
    tolerance.failed(2, "was declined")
    assert tolerance.take_failure() is None
    tolerance.failed(3, "expired")
    assert tolerance.take_failure() == "checkpoint 3 expired (2 in a row failed, 1 are tolerated)"
    assert tolerance.take_failure() is None
