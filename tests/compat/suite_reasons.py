"""Why tests of PyFlink's own fail: by a part of the test's name."""

REASONS: dict[str, str] = {}
