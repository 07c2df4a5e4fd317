"""The control plane's work grows with the subtasks, not with their square."""

from __future__ import annotations

import cProfile
import pstats

from bench.control_plane import measure


def calls(subtasks: int) -> int:
    """Function calls from the declared need to a completed checkpoint of which all were told."""
    profile = cProfile.Profile()
    profile.enable()
    n, _, _ = measure(subtasks, taskmanagers=400)
    profile.disable()
    assert n == subtasks + 1
    return pstats.Stats(profile).total_calls  # type: ignore[attr-defined]


def test_deployment_and_checkpoint_of_four_times_the_subtasks_cost_four_times_as_much():
    calls(100)  # imports, encoders
    fixed = calls(100)
    small, large = calls(400) - fixed, calls(1_600) - fixed
    # Without what does not hang on the job (400 task managers that register): 300 and 1,500 more.
    assert large < 5.5 * small
