"""Which modules pytest compiles anew, so that a failed ``assert`` shows its values."""

from __future__ import annotations

import sys

from _pytest.assertion.rewrite import AssertionRewritingHook


def leave_product_code() -> None:
    """pytest would rewrite all of Penstock, because a plugin of pytest's lies in it: some 780 modules in each
    worker of a fresh checkout, and once more as they are for the processes that tests start. The kits in
    ``penstock.testing`` are tests, and stay."""
    for finder in sys.meta_path:
        if isinstance(finder, AssertionRewritingHook):
            finder._must_rewrite.discard("penstock")
            finder.mark_rewrite("penstock.testing.conformance", "penstock.testing.operators")
