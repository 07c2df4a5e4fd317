"""Write the flights and the weather into Kafka, a message a row: ``python -m examples.flights_kafka.replay``"""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console

from examples.flights.dataset import AIRPORTS, Dataset, load
from examples.flights.replay import messages

if TYPE_CHECKING:
    from collections.abc import Iterator

#: The topics, by the tables that read them.
TOPICS = {"flights": "flights", "weather": "weather"}


def rows(data: Dataset, limit: int | None = None) -> Iterator[tuple[str, int, bytes]]:
    """(table, partition, row as JSON) in the order of the replay; each airport has a partition of its own."""
    for message in messages(data, limit):
        table, _, airport = message.subject.partition(".")
        for line in message.data.splitlines():
            yield table, AIRPORTS.index(airport), line


def create_topics(servers: str, names: list[str], partitions: int = len(AIRPORTS)) -> None:
    """The topics that the job reads and writes. KafkaException, if one is there already."""
    admin = AdminClient({"bootstrap.servers": servers})
    for future in admin.create_topics([NewTopic(name, partitions) for name in names]).values():
        future.result()


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--servers", default="localhost:9092", help="addresses of the brokers")
    parser.add_argument("--rate", type=float, default=8_000, help="rows a second; 0 = as fast as it goes")
    parser.add_argument("--limit", type=int, help="only so many flights")
    args = parser.parse_args(argv)
    create_topics(args.servers, [*TOPICS.values(), "board"])
    producer, started, sent = Producer({"bootstrap.servers": args.servers}), time.monotonic(), 0
    for sent, (table, partition, row) in enumerate(rows(load(), args.limit), 1):
        while True:
            try:
                producer.produce(TOPICS[table], row, partition=partition)
                break
            except BufferError:  # the client holds as much as it may
                producer.poll(0.1)
        producer.poll(0)
        if args.rate and sent % 1_000 == 0:
            time.sleep(max(0.0, sent / args.rate - (time.monotonic() - started)))
    left = producer.flush(60)
    Console().print(f"{sent - left:,} rows written" + (f", {left:,} not" if left else ""))
    return 1 if left else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KafkaException as err:
        sys.exit(f"error: {err}")
