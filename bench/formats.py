"""Decoding and encoding of message formats: rows a CPU second, one process, no job around it.

``python -m bench.formats [--rows 100000] [--formats json,avro,protobuf]``. The rows are Nexmark-like bids of seven
columns, one message a row, 10,000 messages at once. The figures of one run stand beside one another.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from penstock.formats import get_format
from penstock.formats.api import FormatContext
from penstock.types import Batch, Schema
from penstock.types import logical as t

_BATCH = 10_000
_BID = Schema.of(
    ("auction", t.BigIntType()), ("bidder", t.BigIntType()), ("price", t.BigIntType()),
    ("channel", t.VarCharType()), ("url", t.VarCharType()), ("dateTime", t.TimestampType(3)),
    ("extra", t.VarCharType()),
)  # fmt: skip


def bids(count: int) -> Batch:
    """So many rows, the same in each run."""
    random = np.random.default_rng(7)
    numbers = random.integers(1, 10_000_000, (count, 3)).tolist()
    start = np.datetime64("2026-01-01T00:00:00.000")
    rows = [
        (a, b, p, f"channel-{a % 100}", f"https://www.nexmark.com/{a:x}/item.htm?query=1&channel_id={b}",
         (start + np.timedelta64(i, "ms")).astype(object), "x" * (p % 60))
        for i, (a, b, p) in enumerate(numbers)
    ]  # fmt: skip
    return Batch.of(_BID, rows)


def protobuf_options(folder: Path) -> dict[str, str]:
    """A descriptor set of the rows: optional fields, the time as google.protobuf.Timestamp."""
    from google.protobuf import descriptor_pb2 as d

    kinds = {t.BigIntType: "TYPE_INT64", t.VarCharType: "TYPE_STRING", t.TimestampType: "TYPE_MESSAGE"}
    file = d.FileDescriptorProto(
        name="bid.proto", package="bench", syntax="proto2", dependency=["google/protobuf/timestamp.proto"]
    )
    message = file.message_type.add(name="Bid")
    for i, field in enumerate(_BID.fields, 1):
        added = message.field.add(
            name=field.name, number=i, label="LABEL_OPTIONAL", type=kinds[type(field.type)]
        )
        if isinstance(field.type, t.TimestampType):
            added.type_name = ".google.protobuf.Timestamp"
    path = folder / "bid.binpb"
    path.write_bytes(d.FileDescriptorSet(file=[file]).SerializeToString())
    return {"protobuf.message-class-name": "bench.Bid", "protobuf.descriptor-set": str(path)}


def _cpu_s(call: Callable[[], object]) -> float:
    start = time.process_time()
    call()
    return time.process_time() - start


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.formats", description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--formats", default="json,avro,protobuf")
    args = parser.parse_args(argv)
    rows = bids(args.rows)
    parts = [rows.slice(i, _BATCH) for i in range(0, len(rows), _BATCH)]
    print("| format | bytes a row | decoded k rows/CPU s | decoded MB/CPU s | encoded k rows/CPU s |")
    print("|---|---|---|---|---|")
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        for name in args.formats.split(","):
            options = protobuf_options(Path(folder)) if name == "protobuf" else {}
            encoder = get_format(name).encoder(_BID, options)
            messages = [encoder.encode(part) for part in parts]
            context = FormatContext(_BID, range(len(_BID)), options, _fail)
            decoder = get_format(name).decoder(context)
            decode_s = min(_cpu_s(lambda: [decoder.decode(m, str) for m in messages]) for _ in range(3))  # noqa: B023
            encode_s = min(_cpu_s(lambda: [encoder.encode(p) for p in parts]) for _ in range(3))  # noqa: B023
            size = sum(len(m) for part in messages for m in part)
            rates = f"{args.rows / decode_s / 1e3:,.0f} | {size / decode_s / 1e6:,.0f} | {args.rows / encode_s / 1e3:,.0f}"
            print(f"| {name} | {size / args.rows:,.0f} | {rates} |", flush=True)
    return 0


def _fail(error: Exception, raw: bytes | None, where: str) -> None:
    raise error


if __name__ == "__main__":
    raise SystemExit(main())
