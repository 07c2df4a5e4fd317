"""Submissions are read in threads: the first ones, at once, must not end the process."""

from __future__ import annotations

import json
import subprocess
import sys

import msgspec

from penstock.sql.session import SqlSession

READ = """
import json, sys, threading
from penstock_services.dispatcher.spec import graph_of, spec_of

tree = json.load(sys.stdin)
sys.setswitchinterval(1e-5)
start = threading.Barrier(16)
read = []


def run():
    start.wait()
    for _ in range(20):
        read.append(len(graph_of(spec_of({"job_graph": tree}).job_graph).vertices))


threads = [threading.Thread(target=run) for _ in range(16)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(sum(read))
"""
SQL = """
CREATE TABLE numbers (v BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' = '1');
CREATE TABLE nowhere (v BIGINT) WITH ('connector' = 'blackhole');
INSERT INTO nowhere SELECT v FROM numbers WHERE v > 3
"""


def test_many_threads_read_their_first_graphs_at_once() -> None:
    (job,) = [result.job for result in SqlSession().run_script(SQL) if result.job is not None]
    tree = json.dumps(msgspec.to_builtins(job.job_graph))
    done = subprocess.run([sys.executable, "-c", READ], input=tree, capture_output=True, text=True)
    assert done.returncode == 0, f"signal {-done.returncode}: {done.stderr[-2000:]}"
    assert int(done.stdout) == 16 * 20 * len(job.job_graph.vertices)
