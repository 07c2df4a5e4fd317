"""Options of who may use a cluster's REST servers. docs/security.md explains them."""

from __future__ import annotations

from penstock.config.option import define
from penstock.config.values import parse_bool, parse_duration_ms, parse_number

REST_TOKENS = define(
    "security.rest.tokens-file",
    "",
    str,
    "File of the bearer tokens that REST accepts, with their roles; `penstock token` makes its entries ([security](security.md#tokens)).",
    scope="cluster",
)
REST_SESSION_MS = define(
    "security.rest.session-timeout",
    12 * 3_600_000,
    parse_duration_ms,
    "Time after which a browser must log in again.",
    scope="cluster",
    least=1_000,
)
REST_SESSION_KEY = define(
    "security.rest.session-key-file",
    "",
    str,
    "File with 32 bytes or more that sign the cookies of browsers, the same for all dispatchers. Empty: each process "
    "chooses its own, so its sessions end with it.",
    scope="cluster",
)
REST_INSECURE = define(
    "security.rest.insecure-anyone-may-run-code",
    False,
    parse_bool,
    "`true` lets REST servers listen beyond loopback without authentication: whoever reaches the port runs code. Only for "
    "networks that are closed, such as that of a Compose project.",
    scope="cluster",
)
REST_HOSTS = define(
    "security.rest.allowed-hosts",
    "",
    str,
    "Names, separated by commas, that the `Host` header of a request may have, against DNS rebinding. Empty: those of loopback "
    "where a server listens there, else any.",
    scope="cluster",
)
REST_REQUESTS_PER_S = define(
    "security.rest.max-requests-per-second",
    1_000.0,
    parse_number,
    "Requests a second that one client (a name, else an address) may send on average; twice as many at once. More are answered "
    "with 429. 0: any number.",
    scope="cluster",
    least=0.0,
)
AUDIT_FILE = define(
    "security.audit.file",
    "",
    str,
    "File of the audit log, a line of JSON for each request that changes something or is refused. Empty: the service's log.",
    scope="cluster",
)
