"""The events as files that both engines read: JSON lines and Parquet, two of each.

Made by the generator of the peers' bench. Its Parquet is written anew with 96-bit times,
because Flink reads no others inside a row.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

PARTS = 2
_ROWS = 50_000


def prepare(folder: Path, peers: Path, events: int, rate: int) -> dict[str, Path]:
    """Folder by source; what is there from an earlier run is taken."""
    base = folder / f"nexmark-{events}-{rate}"
    found = {"json": base / "jsonl", "parquet": base / "parquet"}
    if not (base / "complete").exists():
        shutil.rmtree(base, ignore_errors=True)
        argv = [sys.executable, str(peers / "nexmark_gen.py"), str(base), "--events", str(events)]
        argv += ["--rate", str(rate), "--layouts", "wide,jsonl", "--jsonl-parts", str(PARTS)]
        subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
        _dealt_out(base / "wide", found["parquet"])
        shutil.rmtree(base / "wide")
        (base / "complete").touch()
    return found


def _dealt_out(wide: Path, out: Path) -> None:
    """Blocks of rows to each file in turn, so that two readers move through time together."""
    out.mkdir()
    writers: list[pq.ParquetWriter] = []
    block = 0
    for path in sorted(wide.glob("*.parquet")):
        for rows in pq.ParquetFile(path).iter_batches(_ROWS):
            if len(writers) < PARTS:
                name = out / f"part-{len(writers):04}.parquet"
                writers.append(pq.ParquetWriter(name, rows.schema, use_deprecated_int96_timestamps=True))
            writers[block % PARTS].write_table(pa.Table.from_batches([rows]))
            block += 1
    for writer in writers:
        writer.close()
