"""A few faults, so that ``make test`` sees that chaos can be made and its output compared."""

from pathlib import Path
from typing import Any

import pytest

from tests.chaos.plan import plan
from tests.chaos.run import fault_free, one_run

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


def test_a_few_faults_change_no_record(tmp_path: Path) -> None:
    size, seed = 150_000, 5
    want = fault_free("q5", tmp_path / "calm", size)
    assert want["rows"].num_rows > 50
    kinds = ["kill-slot", "kill-jobmanager", "kill-taskmanager"]
    lines: list[dict[str, Any]] = []
    run = one_run("q5", plan(seed, "q5", 3, kinds), seed, tmp_path / "run", want, lines.append, size)
    assert run.wrong == []
    assert run.faults == 3
    assert run.attempts > 1
    thrown = [line for line in lines if line["must"] == "restart"]
    assert thrown
    assert all(line["attempt"][1] > line["attempt"][0] and line["restored"] >= 1 for line in thrown)
