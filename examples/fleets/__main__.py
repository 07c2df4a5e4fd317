"""Find the fleets of 2013's flights from New York, and the airports each keeps to.

``python -m examples.fleets``
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

import pyarrow.dataset as ds
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

from examples.flights.dataset import load
from examples.running import run, steps_of
from penstock.api.client import ClusterClient
from penstock.embedded import EmbeddedCluster
from penstock.errors import PenstockError

HERE = Path(__file__).parent
OUT = HERE.parents[1] / "out" / "fleets"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=OUT, help="folder for the results")
    console, out = Console(), parser.parse_args(argv).out.absolute()
    prepare(out)
    with console.status("starting the cluster …"):
        cluster = EmbeddedCluster(taskmanagers=1, slots=4, on_event=console.print)
        cluster.start()
    try:
        with ClusterClient(cluster.rest_url) as client:
            for step in steps_of(HERE / "project.yaml", out):
                run(console, client, step)
    finally:
        cluster.stop()
    show(console, out)
    return 0


def prepare(out: Path) -> None:
    """Fresh: the flights as one Parquet file."""
    shutil.rmtree(out, ignore_errors=True)
    (out / "flights").mkdir(parents=True)
    pq.write_table(load().flights.select(["tailnum", "dest"]), out / "flights" / "2013.parquet")


def show(console: Console, out: Path) -> None:
    members = ds.dataset(out / "components", format="parquet").to_table().to_pylist()
    sizes = ds.dataset(out / "sizes", format="parquet").to_table().to_pylist()
    table = Table(title="Aircraft and the airports they flew to at least 50 times")
    table.add_column("aircraft", justify="right")
    table.add_column("airports", justify="right")
    table.add_column("namely")
    for row in sorted(sizes, key=lambda r: -r["aircraft"]):
        own = sorted(m["node"] for m in members if m["component"] == row["component"])
        airports = [n.removeprefix("airport ") for n in own if n.startswith("airport ")]
        table.add_row(str(row["aircraft"]), str(row["airports"]), " ".join(airports))
    console.print(table)
    console.print(f"The components are {out / 'components'} (Parquet).")


if __name__ == "__main__":
    try:
        sys.exit(main())
    except PenstockError as err:
        sys.exit(f"error: {err}")
    except KeyboardInterrupt:
        sys.exit(130)
