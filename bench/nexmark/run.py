"""Nexmark on an embedded cluster, and Flink SQL beside it on the same cores. Prints Markdown.

Two task managers with a slot each, parallelism 2, streaming mode, checkpoints to disk
every 10 seconds; the sink consumes every column and keeps a checksum.

    python -m bench [--queries q5,q7] [--seconds 20 | --events 5000000] [--push-down off|on|both]
    python -m bench --peers FOLDER --sources generator,json,parquet --results FILE --docs docs/nexmark.md
    python -m bench report FILE [--docs docs/nexmark.md]
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from bench.nexmark import files, flink
from bench.nexmark.measure import QueryRun, Result
from bench.nexmark.queries import QUERIES
from bench.nexmark.report import SOURCES, Figure, append, into_docs, read, report
from penstock.api.client import ClusterClient
from penstock.embedded import EmbeddedCluster
from penstock.errors import PenstockError

#: Without it the source makes every event whole, as Flink's does, and the plan filters afterwards.
NO_PUSH_DOWN = {"table.optimizer.source.push-down-enabled": "false"}
MODES = {"off": [False], "on": [True], "both": [False, True]}
FILE_EVENTS = 5_000_000


def figure_of(result: Result, source: str, push_down: bool) -> Figure:
    return Figure(
        engine="penstock", query=result.query, source=source, push_down=push_down, events=result.events,
        seconds=result.seconds, cpu_s=result.cpu_s, peak_bytes=result.peak_bytes, evenness=result.evenness,
        shuffled_bytes=result.shuffled_bytes, checkpoints=result.checkpoints, rows=result.rows,
        checksum=f"{result.checksum:016x}",
    )  # fmt: skip


def measurements(args: argparse.Namespace) -> Iterator[tuple[str, Callable[[], Figure]]]:
    """(what it is, what measures it): each query on both engines before the next."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-bench-")))
        events_as_files: dict[str, Path] = {}
        if set(args.sources) - {"generator"}:
            events_as_files = files.prepare(args.data or folder, args.peers, args.file_events, args.rate)
        cluster = stack.enter_context(EmbeddedCluster(taskmanagers=2, slots=1, data_dir=folder / "cluster"))
        client = stack.enter_context(ClusterClient(cluster.rest_url))

        def ours(query: str, source: str, push_down: bool) -> Figure:
            config = {**({} if push_down else NO_PUSH_DOWN), **dict(args.set)}
            run = QueryRun(client, query, rate=args.rate, parallelism=args.parallelism, config=config)
            if source != "generator":
                result = run.of_files(source, events_as_files[source], args.file_events)
            else:
                result = run.whole(args.events) if args.events else run.steady(args.seconds)
            return figure_of(result, source, push_down)

        def peer(query: str, source: str) -> Figure:
            beside = flink.Flink(
                args.peers, args.parallelism, args.rate, args.flink_events, args.flink_warm_events
            )
            if source == "generator":
                return beside.generated(query)
            return beside.from_files(query, source, events_as_files[source], args.file_events)

        for source in args.sources:
            for query in args.queries:
                for push_down in MODES[args.push_down]:
                    what = f"{query} {SOURCES[source]}, push-down {'on' if push_down else 'off'}"
                    yield what, lambda q=query, s=source, p=push_down: ours(q, s, p)
                if args.flink and query in flink.QUERIES:
                    yield f"{query} {SOURCES[source]}, Flink", lambda q=query, s=source: peer(q, s)


def main(argv: Sequence[str] | None = None) -> int:
    args = _arguments(argv)
    figures: list[Figure] = []
    failed = 0
    for what, measure in measurements(args):
        try:
            figure = measure()
        except (PenstockError, RuntimeError) as err:
            failed += 1
            print(f"{what} failed: {err}", file=sys.stderr, flush=True)
            continue
        print(
            f"{what}: {figure.rate:,.0f} k events/s, {figure.cpu_rate:,.0f} a CPU second",
            file=sys.stderr,
            flush=True,
        )
        figures.append(figure)
        if args.results:
            append(args.results, figure)
    _out(figures, args.docs)
    return 1 if failed or not figures else 0


def again(argv: Sequence[str]) -> int:
    """The tables of an earlier run."""
    parser = argparse.ArgumentParser(prog="python -m bench report")
    parser.add_argument("results", type=Path)
    parser.add_argument("--docs", type=Path)
    args = parser.parse_args(argv)
    _out(read(args.results), args.docs)
    return 0


def _out(figures: Sequence[Figure], docs: Path | None) -> None:
    text = report(figures)
    print(text, flush=True)
    if docs is not None:
        into_docs(docs, text)


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--queries", type=_queries, default=list(QUERIES), metavar="q0,q5,…",
                        help="or 'flink': those that Flink's suite has too")  # fmt: skip
    parser.add_argument("--sources", type=_sources, default=["generator"], metavar=",".join(SOURCES))
    parser.add_argument("--push-down", choices=MODES, default="off")
    parser.add_argument("--seconds", type=float, default=20, help="steady state to measure of each query")
    parser.add_argument("--events", type=int, help="events of each query to its end, instead of --seconds")
    parser.add_argument("--file-events", type=int, default=FILE_EVENTS, help="events in the files")
    parser.add_argument("--data", type=Path, help="folder for the files; they are kept there")
    parser.add_argument("--rate", type=int, default=100_000, help="events a second of event time")
    parser.add_argument("--parallelism", type=int, default=2)
    parser.add_argument("--set", type=_pair, action="append", default=[], metavar="KEY=VALUE")
    peers = os.environ.get(flink.PEERS)
    parser.add_argument("--peers", type=Path, default=Path(peers) if peers else None,
                        help="folder of the peers' bench: runs Flink beside each query")  # fmt: skip
    parser.add_argument("--flink-events", type=int, help="events of one of Flink's runs from the generator")
    parser.add_argument("--flink-warm-events", type=int, default=flink.WARM_EVENTS)
    parser.add_argument("--results", type=Path, help="file to append each figure to, as JSON")
    parser.add_argument("--docs", type=Path, help="file whose marked part the tables replace")
    args = parser.parse_args(argv)
    why = flink.unavailable(args.peers)
    args.flink = why is None
    if why:
        print(f"Flink is not run: {why}.", file=sys.stderr, flush=True)
    if args.peers is None and args.sources != ["generator"]:
        parser.error("files are made by the generator of the peers' bench: give its folder with --peers")
    return args


def _queries(text: str) -> list[str]:
    names = list(flink.QUERIES) if text == "flink" else text.split(",")
    unknown = [n for n in names if n not in QUERIES]
    if unknown:
        raise argparse.ArgumentTypeError(f"no such query: {', '.join(unknown)} (known: {', '.join(QUERIES)})")
    return names


def _sources(text: str) -> list[str]:
    names = text.split(",")
    unknown = [n for n in names if n not in SOURCES]
    if unknown:
        raise argparse.ArgumentTypeError(
            f"no such source: {', '.join(unknown)} (known: {', '.join(SOURCES)})"
        )
    return names


def _pair(text: str) -> tuple[str, str]:
    key, _, value = text.partition("=")
    return key, value


if __name__ == "__main__":
    sys.exit(main())
