"""Configuration: Flink's keys, typed, with defaults, from YAML, environment and ``-D``.

Values are kept as text (what a user wrote); ``ConfigOption.read`` types them and names
the key, the expected form and the value when they do not fit. Durations are written
``200 ms``, ``10 s``, ``3 h`` (a bare number is milliseconds); sizes ``64 mb``. An option says
itself which values make sense and whether it is a job's or the cluster's.

``values``  what a value may look like; ``option``  one option, and all there are; ``cluster``,
``job``, ``checkpointing``  the options; ``checks``  a configuration as a whole; ``page``  its page
"""

# A front. The tables of options come as they are: naming each a second time would only go stale.
# ruff: noqa: F401, F403

from penstock.config.checkpointing import *
from penstock.config.checks import check_cluster, check_job, check_keys, is_cluster_option, texts
from penstock.config.cluster import *
from penstock.config.job import *
from penstock.config.option import FAMILIES, OPTIONS, ConfigFamily, ConfigOption, Scope
from penstock.config.page import markdown
from penstock.config.values import (
    MOST_SUBTASKS,
    one_of,
    parse_bool,
    parse_bytes,
    parse_duration_ms,
    parse_int,
)
