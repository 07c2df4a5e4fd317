"""What slots of a standing cluster print: seen over REST and with ``penstock logs``, and bounded."""

from __future__ import annotations

from collections.abc import Callable

import httpx
import pytest

from penstock.api.client import ClusterClient
from penstock.cli.logs import show_logs
from penstock.embedded import EmbeddedCluster

pytestmark = pytest.mark.cluster

PRINT = """
CREATE TABLE numbers (n BIGINT) WITH
    ('connector' = 'datagen', 'fields.n.kind' = 'sequence', 'fields.n.start' = '1', 'fields.n.end' = 'LAST');
CREATE TABLE shown (n BIGINT) WITH ('connector' = 'print', 'print-identifier' = 'IDENTIFIER');
INSERT INTO shown SELECT n FROM numbers;
"""
MAX_BYTES = 64 * 1024


def test_print_of_a_job_is_seen_and_bounded(
    make_cluster: Callable[..., EmbeddedCluster], capfd: pytest.CaptureFixture[str]
) -> None:
    config = {"taskmanager.slot.output.max-size": str(MAX_BYTES), "taskmanager.slot.output.max-files": "2"}
    url = make_cluster(slots=1, config=config).rest_url
    with ClusterClient(url) as client:

        def run(identifier: str, last: int) -> str:
            sql = PRINT.replace("LAST", str(last)).replace("IDENTIFIER", identifier)
            job_id = client.submit({"sql": sql, "config": {"execution.engine": "streaming"}})
            assert client.wait(job_id)["state"] == "FINISHED"
            return job_id

        few, many = run("few", 3), run("many", 50_000)
        manager = client.taskmanagers()[0]["id"]
        files = client.log_files(manager)
    rows = [f"few> +I[{n}]" for n in (1, 2, 3)]

    stdout = httpx.get(f"{url}/taskmanagers/{manager}/stdout").text.splitlines()
    assert [line for line in stdout if line.startswith("few")] == rows
    assert "slot_started" in httpx.get(f"{url}/taskmanagers/{manager}/log").text
    kept = [file["size"] for file in files if file["name"].startswith(f"{many}.")]
    assert len(kept) == 2
    assert max(kept) <= MAX_BYTES

    capfd.readouterr()
    show_logs(url, few[:12], follow=False)
    assert capfd.readouterr().out.splitlines() == rows
    show_logs(url, many, follow=True)  # it is over: so is the following
    shown = capfd.readouterr()
    numbers = [int(line.removeprefix("many> +I[").removesuffix("]")) for line in shown.out.splitlines()]
    assert numbers == list(range(numbers[0], 50_001))
    assert "no longer kept" in shown.err
