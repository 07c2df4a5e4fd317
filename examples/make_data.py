"""Make the data of the small examples anew: ``python -m examples.make_data``. The same rows every time.

Each file is ``examples/<example>/data/…``, in the order in which its rows arrive; event times are a little out of order.
"""

from __future__ import annotations

import datetime as dt
import json
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
START = dt.datetime(2026, 1, 5, 8, 0)

Row = dict[str, Any]


def at(seconds: float) -> str:
    """The event time ``seconds`` after the start, as SQL writes it."""
    return (START + dt.timedelta(seconds=seconds)).isoformat(sep=" ", timespec="milliseconds")


def shaken(rows: Iterable[tuple[float, Row]], by: float, draw: random.Random) -> list[Row]:
    """The rows of (seconds, row) as they arrive: each up to ``by`` seconds after it happened."""
    timed = sorted((seconds + draw.uniform(0, by), i, seconds, row) for i, (seconds, row) in enumerate(rows))
    return [{**row, "at": at(seconds)} for _, _, seconds, row in timed]


def transactions() -> list[Row]:
    """Payments of 20 accounts in an hour. Thieves try a card with some cents, and take much at once."""
    draw = random.Random(1)
    rows = [
        (draw.uniform(0, 3600), {"account": draw.randrange(20), "amount": round(draw.uniform(2, 480), 2)})
        for _ in range(380)
    ]
    for n in range(8):
        moment, account = draw.uniform(60, 3500), draw.randrange(20)
        # Of two thieves in eight the second payment comes too late to be counted as theirs.
        pause = draw.uniform(5, 50) if n % 4 else draw.uniform(70, 90)
        rows.append((moment, {"account": account, "amount": round(draw.uniform(0.01, 0.99), 2)}))
        rows.append((moment + pause, {"account": account, "amount": round(draw.uniform(501, 990), 2)}))
    return shaken(rows, 0, draw)


def readings() -> list[Row]:
    """Temperatures of four machines, one in 30 s for two hours. Two of them fail for a moment."""
    draw = random.Random(2)
    rows = []
    for tick in range(240):
        for machine, usual in enumerate((41.0, 55.0, 62.5, 48.0)):
            celsius = draw.gauss(usual + 2 * tick / 240, 0.4)
            if (machine, tick) in ((1, 90), (1, 91), (3, 170)):
                celsius += 9
            rows.append(
                (tick * 30 + machine, {"machine": f"press {machine + 1}", "celsius": round(celsius, 2)})
            )
    return shaken(rows, 0, draw)


def rides() -> tuple[list[Row], list[Row]]:
    """Requests of passengers and drivers who are free, in three zones; a concert ends in the second hour."""
    draw = random.Random(3)
    requests, drivers = [], []
    for minute in range(120):
        for zone, usual in (("harbour", 3), ("old town", 4), ("stadium", 2)):
            wanted = usual + (9 if zone == "stadium" and 70 <= minute < 95 else 0)
            for _ in range(max(0, round(draw.gauss(wanted, 1)))):
                requests.append(
                    (minute * 60 + draw.uniform(0, 60), {"zone": zone, "passenger": draw.randrange(9000)})
                )
            for _ in range(max(0, round(draw.gauss(usual, 1)))):
                drivers.append(
                    (minute * 60 + draw.uniform(0, 60), {"zone": zone, "driver": draw.randrange(300)})
                )
    return shaken(requests, 5, draw), shaken(drivers, 5, draw)


def trips() -> list[Row]:
    """Trips that eight drivers ended in six hours. Some drive much, and for a while."""
    draw = random.Random(4)
    names = ("Amir", "Bea", "Chen", "Dora", "Emil", "Fatou", "Goran", "Hana")
    rows = []
    for number, name in enumerate(names):
        moment = draw.uniform(0, 1800)
        while moment < 6 * 3600:
            rows.append((moment, {"driver": name, "fare": round(draw.uniform(6, 45), 2)}))
            busy = int(moment // 3600) in (number % 6, (number + 1) % 6)
            moment += draw.uniform(300, 700) if busy else draw.uniform(900, 4000)
    return shaken(rows, 20, draw)


def pings() -> list[Row]:
    """What telephones report of five cells, in 40 minutes; one cell is overloaded for ten of them."""
    draw = random.Random(5)
    rows = []
    for _ in range(1600):
        moment, cell = draw.uniform(0, 2400), f"cell {draw.randrange(1, 6)}"
        bad = cell == "cell 4" and 900 <= moment < 1500
        rows.append(
            (
                moment,
                {
                    "cell": cell,
                    "latency_ms": round(draw.lognormvariate(5.2 if bad else 3.6, 0.5), 1),
                    "lost": draw.random() < (0.12 if bad else 0.01),
                },
            )
        )
    return shaken(rows, 8, draw)


def orders() -> str:
    """Orders as a shop's old system writes them: comma-separated, and not always well."""
    draw = random.Random(6)
    lines = []
    for number in range(1, 121):
        country = draw.choice(("de", "DE", "fr", "it ", "IT", "pl"))
        lines.append(
            f"{number},{draw.randrange(40)},{country},{draw.randrange(100, 25000) / 100:.2f},{at(number * 20)}"
        )
    lines[17] = "18,12,de,12.9O,2026-01-05 08:06:00.000"  # an O in place of a zero
    lines[44] = "45,fr,19.00,2026-01-05 08:15:00.000"  # a field is missing
    lines[80] = '81,7,"it,55.10,2026-01-05 08:27:00.000'  # a quotation mark that never ends
    lines[99] = "100,31,pl,80.00,yesterday"
    return "\n".join(lines) + "\n"


def write(example: str, file: str, data: str | list[Row]) -> None:
    text = data if isinstance(data, str) else "".join(json.dumps(row) + "\n" for row in data)
    path = HERE / example / "data" / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def main() -> None:
    requests, drivers = rides()
    write("fraud_alert", "transactions.json", transactions())
    write("anomalies", "readings.json", readings())
    write("dynamic_pricing", "requests.json", requests)
    write("dynamic_pricing", "drivers.json", drivers)
    write("incentives", "trips.json", trips())
    write("quality_of_service", "pings.json", pings())
    write("orders_etl", "orders.csv", orders())


if __name__ == "__main__":
    main()
