"""Nexmark from Kafka to Kafka, with Flink SQL and its Kafka connector on the same broker, in the same run.

    python -m bench.kafka --events 2000000 --queries q0,q5,q17 --formats json,avro --peers FOLDER

One broker (``make test-servers`` fetches it), two partitions a topic, parallelism 2, checkpoints every 10 s. Whole events are
read, as ``python -m bench --sources json`` does. Both engines read the same topic to its end and write a topic of their own;
q17 is written by key. Compared are events a CPU second of the engine's processes: of Penstock all of an embedded cluster's,
control plane included; of Flink the JVM in the job's net run time. Both are warm: of ``--runs`` and ``--flink-runs`` the last
one counts. The broker's CPU time is not counted. Environment as in ``bench.nexmark.flink``; FLINK_JARS names the connector's jars.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench.cpu import Tree
from bench.jobs import run_sql
from bench.nexmark import flink
from bench.nexmark.queries import QUERIES, TABLE, VIEWS
from penstock.api.client import TERMINAL, ClusterClient
from penstock.embedded import EmbeddedCluster
from tests.servers import cache
from tests.servers.kafka_server import KafkaServer

PARTITIONS = 2
#: Queries that are written by key, and their key.
KEYS = {"q17": "auction, `day`"}


def options_of(table: dict[str, str]) -> str:
    return ", ".join(f"'{key}' = '{value}'" for key, value in table.items())


def source_of(server: KafkaServer, topic: str, format_: str) -> dict[str, str]:
    return {
        "connector": "kafka", "topic": topic, "properties.bootstrap.servers": server.bootstrap, "format": format_,
        "scan.startup.mode": "earliest-offset", "scan.bounded.mode": "latest-offset",
    }  # fmt: skip


def sink_of(server: KafkaServer, query: str, format_: str, guarantee: str) -> dict[str, str]:
    topic = server.topic(PARTITIONS)
    found = {
        "topic": topic, "properties.bootstrap.servers": server.bootstrap, "sink.delivery-guarantee": guarantee,
        "sink.transactional-id-prefix": topic,
    }  # fmt: skip
    if guarantee == "exactly-once":
        # Flink asks for an hour, which a broker refuses that has Kafka's default of 15 minutes.
        found["properties.transaction.timeout.ms"] = "600000"
    if query in KEYS:
        return {"connector": "upsert-kafka", **found, "key.format": format_, "value.format": format_}
    return {"connector": "kafka", **found, "format": format_}


def columns_of(query: str) -> str:
    key = KEYS.get(query)
    return QUERIES[query].columns + (f", PRIMARY KEY ({key}) NOT ENFORCED" if key else "")


def fill(server: KafkaServer, format_: str, events: int, rate: int) -> str:
    """A topic of ``events`` whole events."""
    topic = server.topic(PARTITIONS)
    made = {"connector": "nexmark", "events.num": str(events), "rate": str(rate)}
    sink = {
        "connector": "kafka", "topic": topic, "properties.bootstrap.servers": server.bootstrap, "format": format_,
        "sink.partitioner": "round-robin",
    }  # fmt: skip
    columns = TABLE.split("(", 1)[1].split("`dateTime` AS CASE")[0].rstrip().rstrip(",")
    run_sql(
        TABLE.format(options=options_of(made))
        + f"CREATE TABLE topic ({columns}) WITH ({options_of(sink)});\n"
        + "INSERT INTO topic SELECT event_type, person, auction, bid FROM nexmark"
    )
    return topic


def ours(
    client: ClusterClient,
    query: str,
    source: dict[str, str],
    sink: dict[str, str],
    args: argparse.Namespace,
    broker: int,
) -> tuple[float, float]:
    """(seconds, CPU seconds) of the job."""
    script = TABLE.format(options=options_of(source)) + VIEWS
    script += f"CREATE TABLE sink ({columns_of(query)}) WITH ({options_of(sink)});\n"
    script += f"INSERT INTO sink\n{QUERIES[query].select};\n"
    config = {
        "execution.engine": "streaming", "execution.runtime-mode": "STREAMING",
        "execution.checkpointing.interval": "10 s", **dict(args.set),
    }  # fmt: skip
    job = client.submit({"name": query, "sql": script, "parallelism": 2, "config": config})
    tree = Tree({broker})  # planning is not counted, as in Flink
    tree.start()
    while client.job(job)["state"] not in TERMINAL:
        time.sleep(0.2)
    used = tree.stop()
    print(f"{query} CPU s by process: {tree.by_name()}", file=sys.stderr)
    found = client.job(job)
    if found["state"] != "FINISHED":
        raise RuntimeError(f"{query} ended as {found['state']}: {client.exceptions(job)}")
    started = min(v["start-time"] for v in found["vertices"] if v["start-time"] > 0)
    return (max(v["end-time"] for v in found["vertices"]) - started) / 1000, used


def theirs(
    query: str, source: dict[str, str], sinks: list[dict[str, str]], args: argparse.Namespace
) -> tuple[float, float]:
    """The same of Flink's last run; each run writes a topic of its own."""
    argv = [str(flink.python()), str(Path(flink.__file__).with_name("flink_job.py")), query]
    argv += ["--peers", str(args.peers.absolute()), "--jars", os.environ.get(flink.MORE_JARS, "")]
    argv += ["--source", json.dumps(source), "--sinks", json.dumps(sinks), "--runs", str(len(sinks))]
    argv += ["--key", KEYS.get(query, ""), "--set", "execution.checkpointing.interval=10 s"]
    argv += ["--set", "restart-strategy.type=none"]
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        # Without a folder Flink keeps checkpoints in its job manager's memory, and q17's are too large for that.
        argv += ["--set", f"execution.checkpointing.dir=file://{folder}"]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
    runs = [json.loads(x.removeprefix("RUN ")) for x in done.stdout.splitlines() if x.startswith("RUN ")]
    if done.returncode or len(runs) != len(sinks):
        raise RuntimeError(f"Flink failed at {query}:\n{done.stderr[-3000:]}")
    return runs[-1]["seconds"], runs[-1]["cpu_s"]


@contextmanager
def broker(folder: Path) -> Iterator[KafkaServer]:
    if why := cache.missing("kafka"):
        raise SystemExit(why)
    server = KafkaServer(folder)
    server.start()
    try:
        yield server
    finally:
        server.stop()


def rows_of(server: KafkaServer, sink: dict[str, str]) -> int:
    """Messages of a topic, as far as offsets tell; transactions add a few."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": server.bootstrap, "group.id": "bench", "log_level": 0})
    ends = [
        consumer.get_watermark_offsets(TopicPartition(sink["topic"], p), timeout=60)[1] for p in range(PARTITIONS)
    ]  # fmt: skip
    consumer.close()
    return sum(ends)


def main(argv: Sequence[str] | None = None) -> int:
    args = _arguments(argv)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-bench-")))
        server = stack.enter_context(broker(folder / "kafka"))
        cluster = stack.enter_context(EmbeddedCluster(taskmanagers=2, slots=1, data_dir=folder / "cluster"))
        client = stack.enter_context(ClusterClient(cluster.rest_url))
        print(
            "| format | guarantee | query | Penstock k ev/CPU s | Flink | ratio | rows |\n|---|---|---|---|---|---|---|",
            flush=True,
        )
        for format_ in args.formats:
            source = source_of(server, fill(server, format_, args.events, args.rate), format_)
            for guarantee in args.guarantees:
                for query in args.queries:
                    for _ in range(args.runs):
                        sink = sink_of(server, query, format_, guarantee)
                        seconds, used = ours(client, query, source, sink, args, server.pid)
                        print(
                            f"{query} {format_} {guarantee}: {seconds:.1f} s, {used:.1f} CPU s",
                            file=sys.stderr,
                            flush=True,
                        )
                    mine = args.events / used / 1000
                    rows, peer, ratio = str(rows_of(server, sink)), "", ""
                    if args.peers:
                        sinks = [sink_of(server, query, format_, guarantee) for _ in range(args.flink_runs)]
                        seconds, used = theirs(query, source, sinks, args)
                        print(
                            f"Flink {query} {format_} {guarantee}: {seconds:.1f} s, {used:.1f} CPU s",
                            file=sys.stderr,
                            flush=True,
                        )
                        flinks = args.events / used / 1000
                        peer, ratio = f"{flinks:,.0f}", f"{mine / flinks:.2f}"
                        rows += f" / {rows_of(server, sinks[-1])}"
                    print(
                        f"| {format_} | {guarantee} | {query} | {mine:,.0f} | {peer} | {ratio} | {rows} |",
                        flush=True,
                    )
    return 0


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.kafka", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    words = lambda text: text.split(",")  # noqa: E731
    parser.add_argument("--queries", type=words, default=["q0", "q5", "q17"])
    parser.add_argument("--formats", type=words, default=["json", "avro"])
    parser.add_argument("--guarantees", type=words, default=["at-least-once", "exactly-once"])
    parser.add_argument("--events", type=int, default=2_000_000)
    parser.add_argument("--rate", type=int, default=100_000, help="events a second of event time")
    parser.add_argument("--runs", type=int, default=2, help="in one cluster; the last counts")
    parser.add_argument("--flink-runs", type=int, default=4, help="in one JVM; the last counts")
    parser.add_argument(
        "--set", type=lambda text: text.partition("=")[::2], action="append", default=[], metavar="KEY=VALUE"
    )
    peers = os.environ.get(flink.PEERS)
    parser.add_argument("--peers", type=Path, default=Path(peers) if peers else None, help="folder of the peers' bench: runs Flink beside each query")  # fmt: skip
    args = parser.parse_args(argv)
    if args.peers and not flink.python().exists():
        parser.error(f"no Python with apache-flink at {flink.python()} (set {flink.VENVS})")
    return args


if __name__ == "__main__":
    sys.exit(main())
