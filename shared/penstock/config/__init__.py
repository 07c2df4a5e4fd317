"""Configuration: Flink's keys, typed, with defaults, from YAML, the environment and ``-D``.

Values are kept as the text that the user wrote. ``ConfigOption.read`` converts them; its errors name the
key, the expected form and the value. Durations are written ``200 ms``, ``10 s``, ``3 h`` (a number alone
is milliseconds), sizes ``64 mb``. An option declares its bounds, and whether it belongs to a job or to the
cluster.

``values``  the forms of values; ``option``  one option, and the table of all; ``cluster``, ``job``,
``checkpointing``, ``sandbox``, ``security``  the options; ``checks``  checks of a whole configuration; ``defaults``  what jobs inherit; ``page``  the page docs/configuration.md
"""

# This module only exports. It exports whole tables of options, because a list of their names would become stale.
# ruff: noqa: F401, F403

from penstock.config.checkpointing import *
from penstock.config.checks import (
    check_cluster,
    check_job,
    check_keys,
    is_cluster_option,
    is_known_option,
    texts,
)
from penstock.config.cluster import *
from penstock.config.defaults import client_defaults, job_defaults, planning_defaults
from penstock.config.job import *
from penstock.config.option import FAMILIES, OPTIONS, ConfigFamily, ConfigOption, Scope
from penstock.config.page import markdown
from penstock.config.sandbox import *
from penstock.config.security import *
from penstock.config.values import (
    MOST_SUBTASKS,
    one_of,
    parse_bool,
    parse_bytes,
    parse_duration_ms,
    parse_int,
)
