"""What a job guarantees, as EXPLAIN, REST and the dashboard state it."""

from __future__ import annotations

import msgspec


class Guarantee(msgspec.Struct, frozen=True, kw_only=True):
    """What one source, or one sink, gives by itself."""

    uid: str
    name: str
    gives: str


class ChainGuarantee(msgspec.Struct, frozen=True, kw_only=True):
    """What holds from the sources of one sink to its table.

    ``gives``: of the whole chain; ``because``: what makes it less than the sink gives, or more than it seems.
    ``latency``: how long a transactional sink keeps rows back; empty: it does not.
    """

    sink: Guarantee
    sources: tuple[Guarantee, ...]
    gives: str
    because: str = ""
    latency: str = ""
