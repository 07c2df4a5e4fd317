from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from penstock.connectors.nexmark.connector import FIELDS, PLAIN
from penstock.connectors.nexmark.model import Model
from penstock.connectors.nexmark.source import CHUNK_EVENTS
from penstock.errors import ConnectorError
from penstock.types import Field, Schema
from penstock.types import logical as t


def row(kind, *names):
    return t.RowType(tuple(Field(k, v) for k, v in FIELDS[kind].items() if not names or k in names))


WIDE = Schema.of(
    ("event_type", PLAIN["event_type"]),
    ("person", row("person")),
    ("auction", row("auction")),
    ("bid", row("bid")),
    ("dateTime", PLAIN["dateTime"]),
    ("extra", PLAIN["extra"]),
)
N = CHUNK_EVENTS + 1234


def options(**more):
    return {"connector": "nexmark", "events.num": str(N), "rate": "1000", **more}


@pytest.fixture(scope="module")
def wide():
    """All N events, made once, as rows in the order of their numbers."""
    import asyncio

    from penstock.connectors.nexmark.rows import RowMaker

    async def make():
        maker = RowMaker(Model(rate=1000), WIDE, None)
        return maker.batch(np.arange(-(-N // 50), dtype=np.int64)).slice(0, N).to_pylist()

    return asyncio.run(make())


async def test_the_wide_table(harness, wide):
    connector = harness.connector(WIDE, options())
    assert connector.is_bounded(type("T", (), {"options": options()}))
    rows = await harness.read_all(WIDE, options())
    assert rows == wide
    kinds = Counter(r[0] for r in rows)
    assert abs(kinds[2] / kinds[0] - 46) < 0.2
    assert abs(kinds[1] / kinds[0] - 3) < 0.02
    for i, (kind, *parts, at, extra) in enumerate(rows):
        assert [p is not None for p in parts] == [kind == k for k in range(3)]
        assert parts[kind]["dateTime"] == at
        assert parts[kind]["extra"] == extra
        if i:
            assert at >= rows[i - 1][-2]


def test_ids_are_dense_and_references_exist(wide):
    persons = [r[1] for r in wide if r[0] == 0]
    auctions = [r[2] for r in wide if r[0] == 1]
    bids = [r[3] for r in wide if r[0] == 2]
    assert [p["id"] for p in persons] == list(range(1000, 1000 + len(persons)))
    assert [a["id"] for a in auctions] == list(range(1000, 1000 + len(auctions)))
    assert {a["category"] for a in auctions} == set(range(10, 15))
    assert all(a["reserve"] > a["initialBid"] >= 100 and a["expires"] > a["dateTime"] for a in auctions)
    known = len(auctions) + 1000 + 10
    assert all(1000 <= b["auction"] <= known and 100 <= b["price"] <= 100_000_000 for b in bids)
    assert all(1000 <= b["bidder"] <= 1000 + len(persons) + 10 for b in bids)
    hot = Counter(b["auction"] % 100 == 0 for b in bids)
    assert 0.48 < hot[True] / len(bids) < 0.54
    hot = Counter(b["bidder"] % 100 == 1 for b in bids)
    assert 0.73 < hot[True] / len(bids) < 0.79
    hot = sum(a["seller"] % 100 == 0 for a in auctions) / len(auctions)
    assert 0.72 < hot < 0.79
    logs = np.log10([b["price"] / 100 for b in bids])
    assert np.allclose(np.histogram(logs, 6, (0, 6))[0] / len(bids), 1 / 6, atol=0.01)


def test_texts_have_their_shape(wide):
    bids = [r[3] for r in wide if r[0] == 2]
    channels = Counter(b["channel"] for b in bids)
    hot = sum(channels[c] for c in ("Google", "Facebook", "Baidu", "Apple"))
    assert 0.48 < hot / len(bids) < 0.52
    urls = {}
    for bid in bids:
        assert urls.setdefault(bid["channel"], bid["url"]) == bid["url"]
        assert bid["url"].startswith("https://www.nexmark.com/")
    cold = [u for c, u in urls.items() if c.startswith("channel-")]
    assert 0.85 < sum("channel_id=" in u for u in cold) / len(cold) < 0.95
    if "channel-1" in urls and "channel_id=" in urls["channel-1"]:
        assert urls["channel-1"].endswith("channel_id=2147483648")
    person = next(r[1] for r in wide if r[0] == 0)
    assert len(person["creditCard"]) == 19
    assert "@" in person["emailAddress"]
    sizes = [32 + len(b["extra"]) for b in bids]
    assert 95 < np.mean(sizes) < 105
    size = [
        48 + sum(len(a[k]) for k in ("itemName", "description", "extra")) for a in (r[2] for r in wide) if a
    ]
    assert 480 < np.mean(size) < 520


@pytest.mark.parametrize("kind", [0, 1, 2])
async def test_pushing_down_changes_no_event(harness, wide, kind):
    name = ("person", "auction", "bid")[kind]
    schema = Schema.of((name, row(name)), ("dateTime", PLAIN["dateTime"]), ("extra", PLAIN["extra"]))
    pushed = harness.connector(WIDE, options()).push_down(
        type("T", (), {"schema": WIDE}), columns=(0,), equals={0: kind}
    )
    assert pushed == {"event_type": kind}
    rows = await harness.read_all(schema, options(), pushed=pushed)
    assert rows == [(r[1 + kind], r[4], r[5]) for r in wide if r[0] == kind]
    names = {0: ("id", "state"), 1: ("id", "seller", "expires"), 2: ("auction", "price", "channel")}[kind]
    narrow = await harness.read_all(Schema.of((name, row(name, *names))), options(), pushed=pushed)
    assert narrow == [({k: v for k, v in r[0].items() if k in names},) for r in rows]


@pytest.mark.parametrize("splits", [2, 5])
async def test_any_number_of_splits_makes_the_same_events(harness, wide, splits):
    rows = []
    found = await harness.splits(WIDE, options(splits=str(splits)))
    for split in found:
        rows += await harness.read_all(WIDE, options(), splits=[split])
    assert len(rows) == len(wide)
    assert sorted(map(repr, rows)) == sorted(map(repr, wide))
    assert await harness.read_all(WIDE, options(), splits=found) == wide


async def test_a_restart_makes_the_rest(harness, wide):
    splits, got = None, []
    for _ in range(10):
        reader = await harness.reader(WIDE, options(splits="2"), splits)
        got += [r for f in await harness.read(reader, rows=1) for r in f.batch.to_pylist()]
        splits = reader.snapshot()
    assert got == wide
    assert reader.finished_splits() == {s.id for s in splits}


async def test_disorder_is_bounded_and_the_seed_matters(harness, wide):
    schema = Schema.of(("dateTime", PLAIN["dateTime"]))
    rows = await harness.read_all(schema, options(**{"out-of-order": "3 s"}))
    lags = [(w[4] - r[0]).total_seconds() for w, r in zip(wide, rows, strict=True)]
    assert min(lags) == 0
    assert 2.9 < max(lags) <= 3.0
    schema = Schema.of(("bid", row("bid", "price")))
    other = await harness.read_all(schema, options(seed="7"), pushed={"event_type": 2})
    same = sum(a[0]["price"] == b[3]["price"] for a, b in zip(other, (w for w in wide if w[3]), strict=True))
    assert same < 0.01 * len(other)


async def test_slices_of_the_pools_cross_a_channel_small(harness):
    reader = await harness.reader(Schema.of(("bid", row("bid"))), options(), pushed={"event_type": 2})
    batch = reader.poll().batch
    rb = batch.to_arrow()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rb.schema) as writer:
        writer.write_batch(rb)
    assert sink.tell() < 300 * len(batch)
    assert batch.nbytes < 300 * len(batch)


@pytest.mark.parametrize(
    ("schema", "more", "says"),
    [
        (Schema.of(("bids", row("bid"))), {}, "did you mean 'bid'"),
        (Schema.of(("bid", t.BigIntType())), {}, "column 'bid' is of another type"),
        (Schema.of(("bid", t.RowType((Field("prise", t.BigIntType()),)))), {}, "did you mean 'price'"),
        (
            Schema.of(("bid", t.RowType((Field("price", t.IntType()),)))),
            {},
            "column 'bid.price' is of another",
        ),
        (WIDE, {"rate": "0"}, "option 'rate' must be positive"),
        (WIDE, {"events.nums": "5"}, "did you mean 'events.num'"),
    ],
)
def test_tables_are_checked(harness, schema, more, says):
    with pytest.raises(ConnectorError) as caught:
        harness.connector(schema, options(**more))
    assert says in str(caught.value)
