"""Options of who may use a cluster's REST servers. docs/securing.md explains them."""

from __future__ import annotations

from penstock.config.option import define, define_family
from penstock.config.values import one_of, parse_bool, parse_bytes, parse_duration_ms, parse_int, parse_number

REST_TOKENS = define(
    "security.rest.tokens-file",
    "",
    str,
    "File of the bearer tokens that REST accepts, with their roles; `penstock token` makes its entries ([security](securing.md#tokens)).",
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
SSL_REST_CERTIFICATE = define(
    "security.ssl.rest.certificate",
    "",
    str,
    "PEM file of the certificate (and its chain) with which REST servers speak TLS; read again when it changes. Empty: no TLS.",
    scope="cluster",
)
SSL_REST_KEY = define(
    "security.ssl.rest.key",
    "",
    str,
    "PEM file of the certificate's key. Empty: it is in the certificate's file.",
    scope="cluster",
)
SSL_REST_CLIENT_CA = define(
    "security.ssl.rest.client-ca",
    "",
    str,
    "PEM file of the authorities whose client certificates REST servers accept.",
    scope="cluster",
)
SSL_REST_AUTHENTICATION = define(
    "security.ssl.rest.authentication-enabled",
    False,
    parse_bool,
    "Whether REST servers refuse connections without a client certificate of `security.ssl.rest.client-ca`.",
    scope="cluster",
)
REST_CERTIFICATE_ROLES = define(
    "security.rest.certificate-roles",
    "",
    str,
    "Common names of client certificates and their roles, such as `ci=submit,prometheus=read`.",
    scope="cluster",
)
SSL_INTERNAL_CERTIFICATE = define(
    "security.ssl.internal.certificate",
    "",
    str,
    "PEM file of the certificate that this process shows other processes of the cluster: data connections between hosts, NATS at "
    "`tls://…`, Redis at `rediss://…`. Empty: no TLS on data connections.",
    scope="cluster",
)
SSL_INTERNAL_KEY = define(
    "security.ssl.internal.key",
    "",
    str,
    "PEM file of that certificate's key. Empty: it is in the certificate's file.",
    scope="cluster",
)
SSL_INTERNAL_CA = define(
    "security.ssl.internal.ca",
    "",
    str,
    "PEM file of the authority that signed the certificates of the cluster's processes and servers; no other one is accepted.",
    scope="cluster",
)
NATS_CREDENTIALS = define(
    "security.nats.credentials-file",
    "",
    str,
    "File of NATS credentials (`.creds`: a JWT and its nkey) with which this service connects. User and password, or a token, stand in `nats.url`.",
    scope="cluster",
)
NATS_NKEY = define(
    "security.nats.nkey-file",
    "",
    str,
    "File of the nkey seed with which this service connects to NATS.",
    scope="cluster",
)
SECRETS_ALLOWED = define(
    "secrets.allowed",
    "*",
    str,
    "Patterns, separated by commas, of the names of secrets that a job may name (`shop.*`); one that fits none is refused at submission.",
    scope="cluster",
)
SECRETS_ALLOWED_PREFIX = define_family(
    "secrets.allowed.",
    "By who submits: `secrets.allowed.user.NAME` for a name, else `secrets.allowed.role.ROLE` for a role, instead of `secrets.allowed`.",
    scope="cluster",
)
SUBMISSION_ROOTS = define(
    "security.submission.roots",
    "",
    str,
    "Folders, separated by commas, below which the `files` of a job spec, and folders of savepoints, must lie. Empty: any.",
    scope="cluster",
)
SUBMISSION_KINDS = define(
    "security.submission.programs",
    "sql,python,job_graph",
    str,
    "The kinds of programs that a spec may have, separated by commas. A job graph may hold pickled functions, so it is code as Python is.",
    scope="cluster",
)
SUBMISSION_SANDBOX = define(
    "security.submission.sandbox",
    False,
    parse_bool,
    "Planners, which load Python programs beside the dispatcher, enter the measures that `taskmanager.sandbox.…` names in the dispatcher's "
    "configuration; the object store stays read-only for them ([sandbox](securing.md#sandbox-of-slots)).",
    scope="cluster",
)
SUBMISSIONS_PER_MINUTE = define(
    "security.submission.max-per-minute",
    0.0,
    parse_number,
    "Submissions a minute that one client may send on average, and at once. 0: any number.",
    scope="cluster",
    least=0.0,
)
MAX_SQL_CHARS = define(
    "security.submission.max-sql-length",
    1_000_000,
    parse_int,
    "Characters of a spec's `sql` or `python`, and of a statement of the SQL gateway.",
    scope="cluster",
    least=1,
)
MAX_PACKAGE_BYTES = define(
    "security.submission.max-package-size",
    64 << 20,
    parse_bytes,
    "Bytes of an uploaded [code package](packages.md).",
    scope="cluster",
    least=1,
)
MAX_PACKAGES = define(
    "security.submission.max-packages",
    1_000,
    parse_int,
    "How many [code packages](packages.md) the cluster keeps. Another one is refused until one is deleted.",
    scope="cluster",
    least=1,
)
PACKAGES_KEPT_MS = define(
    "security.submission.packages-kept",
    0,
    parse_duration_ms,
    "A [code package](packages.md) that was uploaded longer ago is deleted at the next upload; jobs that were run from it "
    "have copies. 0: it stays until somebody deletes it.",
    scope="cluster",
)
TAP_ROLE = define(
    "security.tap.role",
    "submit",
    one_of("read", "operate", "submit", "admin"),
    "The role of those who may see rows of running jobs ([taps](taps.md)).",
    scope="cluster",
)
TAP_HIDDEN = define(
    "security.tap.hidden-columns",
    "",
    str,
    "Patterns, separated by commas, of names of columns and fields whose values taps never show (`iban,*email*`), beside those "
    "whose names say that they hold a secret.",
    scope="cluster",
)
OIDC_ISSUER = define(
    "security.rest.oidc.issuer",
    "",
    str,
    "Issuer of the JWTs that REST accepts as bearer tokens (OpenID Connect; package `penstock[oidc]`). Empty: none.",
    scope="cluster",
)
OIDC_CLIENT = define(
    "security.rest.oidc.client-id",
    "",
    str,
    "The client as which this cluster is registered at the provider: the login page then offers the provider's own login. Empty: it asks for a token.",
    scope="cluster",
)
OIDC_CLIENT_SECRET = define(
    "security.rest.oidc.client-secret-file",
    "",
    str,
    "File of that client's secret. Empty: it has none (a public client; PKCE protects it).",
    scope="cluster",
)
OIDC_REDIRECT = define(
    "security.rest.oidc.redirect-url",
    "",
    str,
    "Where the provider sends browsers back: `https://HOST:PORT/auth/callback`, as browsers reach the dispatchers.",
    scope="cluster",
)
OIDC_SCOPES = define(
    "security.rest.oidc.scopes",
    "openid profile",
    str,
    "The scopes that a browser's login asks for, separated by spaces.",
    scope="cluster",
)
OIDC_AUDIENCE = define(
    "security.rest.oidc.audience",
    "",
    str,
    "The audience that a JWT must name: this cluster.",
    scope="cluster",
)
OIDC_ROLES = define(
    "security.rest.oidc.roles",
    "",
    str,
    "Values of the claim and their roles, such as `stream-admins=admin,everybody=read`; the highest counts.",
    scope="cluster",
)
OIDC_ROLES_CLAIM = define(
    "security.rest.oidc.roles-claim",
    "roles",
    str,
    "The claim with roles or groups, a list or words; dots go into nested claims (`realm_access.roles`).",
    scope="cluster",
)
OIDC_NAME_CLAIM = define(
    "security.rest.oidc.name-claim",
    "sub",
    str,
    "The claim that is the name in the audit log and in `secrets.allowed.user.NAME`. Take none that people choose for themselves.",
    scope="cluster",
)
OIDC_JWKS = define(
    "security.rest.oidc.jwks-url",
    "",
    str,
    "URL of the provider's keys. Empty: the one that the issuer's `.well-known/openid-configuration` names.",
    scope="cluster",
)
OIDC_ALGORITHMS = define(
    "security.rest.oidc.algorithms",
    "RS256,PS256,ES256,EdDSA",
    str,
    "Algorithms of signatures that are accepted; all are asymmetric.",
    scope="cluster",
)
OIDC_SKEW_MS = define(
    "security.rest.oidc.clock-skew",
    30_000,
    parse_duration_ms,
    "By how much the clocks of provider and cluster may differ.",
    scope="cluster",
    least=0,
    most=300_000,
)
