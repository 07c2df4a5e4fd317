"""The examples with a cluster of their own: a service over NATS, and an upgrade with roll-back."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def printed_by(example: str, *words: str, folder: Path) -> list[str]:
    command = [sys.executable, "-m", f"examples.{example}", *words]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


@pytest.mark.cluster
@pytest.mark.parametrize(("words", "bob"), [((), -150), (("--python",), 750)])
def test_the_service_answers_with_the_balance(tmp_path: Path, words: tuple[str, ...], bob: int) -> None:
    lines = printed_by("request_reply", *words, folder=tmp_path)
    assert [line.split("answered ")[1] for line in lines if "answered " in line] == [
        '{"account": "ann", "balance": 500}',
        '{"account": "bob", "balance": 750}',
        '{"account": "ann", "balance": 725}',
        f'{{"account": "bob", "balance": {bob}}}',
        '{"account": "ann", "balance": 825}',
    ]


@pytest.mark.cluster
def test_an_upgrade_keeps_the_counts_and_is_rolled_back(tmp_path: Path) -> None:
    lines = printed_by("upgrade", folder=tmp_path)
    totals = [
        sum(ast.literal_eval(line.split(": ", 1)[1]).values())
        for line in lines
        if line.startswith("table totals")
    ]
    assert len(totals) == 3
    assert totals == sorted(totals)
    assert "is refused, since its meaning in the job has changed: nothing" in lines
    assert "would be dropped: nothing" in lines
    assert any("orders where <(500:BIGINT, orders.cents)" in line for line in lines)
