"""The settings of a table environment: ``EnvironmentSettings``, ``TableConfig`` and enumerations."""

from __future__ import annotations

import datetime as dt
import enum
from typing import TYPE_CHECKING, Any

from penstock.api.configuration import Configuration
from penstock.api.execution_config import PARAMETERS
from penstock.config import LOCAL_TIME_ZONE, STATE_TTL_MS, check_job, texts
from penstock.errors import SpecError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.sql.session import SqlSession

RUNTIME_MODE_KEY = "execution.runtime-mode"
#: Keys of older versions of Flink that programs still set, and that Flink 2 no longer reads either.
RETIRED_KEYS = frozenset({"pipeline.time-characteristic"})
#: Flink's key of the values that functions read by ``get_job_parameter``.
PARAMETERS_KEY = "pipeline.global-job-parameters"


class ResultKind(enum.Enum):
    """The content of a ``TableResult``: SUCCESS for the word OK alone, SUCCESS_WITH_CONTENT for rows."""

    SUCCESS = 0
    SUCCESS_WITH_CONTENT = 1


class ExplainDetail(enum.Enum):
    """What EXPLAIN prints besides the plans."""

    ESTIMATED_COST = 0
    CHANGELOG_MODE = 1
    JSON_EXECUTION_PLAN = 2
    PLAN_ADVICE = 3


class SqlDialect(enum.Enum):
    """The SQL dialect of ``execute_sql``. Only DEFAULT, Flink's own, is supported."""

    DEFAULT = 0
    HIVE = 1


class EnvironmentSettings:
    """The mode and configuration of a table environment. Use ``in_streaming_mode()``, ``in_batch_mode()`` or
    ``new_instance()``."""

    class Builder:
        """Builds ``EnvironmentSettings``."""

        def __init__(self) -> None:
            self._config: dict[str, str] = {RUNTIME_MODE_KEY: "STREAMING"}

        def with_configuration(self, config: Any) -> EnvironmentSettings.Builder:
            """Add the keys and values of ``config``, a dictionary or a Configuration."""
            self._config.update(configuration_texts(config))
            self._config[RUNTIME_MODE_KEY] = self._config[RUNTIME_MODE_KEY].upper()
            return self

        def in_streaming_mode(self) -> EnvironmentSettings.Builder:
            """Choose the streaming mode: a result is a changelog, and its
            rows come while sources give rows."""
            self._config[RUNTIME_MODE_KEY] = "STREAMING"
            return self

        def in_batch_mode(self) -> EnvironmentSettings.Builder:
            """Choose the batch mode: all sources are bounded, and a result has final rows only."""
            self._config[RUNTIME_MODE_KEY] = "BATCH"
            return self

        def with_built_in_catalog_name(self, built_in_catalog_name: str) -> EnvironmentSettings.Builder:
            """Name the built-in catalog. Its name is always ``default_catalog``.

            Raises:
                UnsupportedError: The name is another one.
            """
            _only("catalog", built_in_catalog_name, "default_catalog")
            return self

        def with_built_in_database_name(self, built_in_database_name: str) -> EnvironmentSettings.Builder:
            """Name the built-in database. Its name is always ``default_database``.

            Raises:
                UnsupportedError: The name is another one.
            """
            _only("database", built_in_database_name, "default_database")
            return self

        def build(self) -> EnvironmentSettings:
            """The settings."""
            return EnvironmentSettings(self._config)

    def __init__(self, config: Mapping[str, str]) -> None:
        self._config = dict(config)

    def get_built_in_catalog_name(self) -> str:
        """The name of the built-in catalog, ``default_catalog``."""
        return "default_catalog"

    def get_built_in_database_name(self) -> str:
        """The name of the built-in database, ``default_database``."""
        return "default_database"

    def is_streaming_mode(self) -> bool:
        """Whether results are changelogs."""
        return self._config.get(RUNTIME_MODE_KEY) != "BATCH"

    def get_configuration(self) -> Configuration:
        """A copy of the configuration keys and their values."""
        return Configuration(self._config)

    @staticmethod
    def new_instance() -> EnvironmentSettings.Builder:
        """A builder of settings. The streaming mode is the default."""
        return EnvironmentSettings.Builder()

    @staticmethod
    def in_streaming_mode() -> EnvironmentSettings:
        """Settings of the streaming mode."""
        return EnvironmentSettings.new_instance().in_streaming_mode().build()

    @staticmethod
    def in_batch_mode() -> EnvironmentSettings:
        """Settings of the batch mode."""
        return EnvironmentSettings.new_instance().in_batch_mode().build()


def configuration_texts(config: Any) -> dict[str, str]:
    """The keys and values of a dictionary or Configuration, as texts. Raises SpecError for another object."""
    to_dict = getattr(config, "to_dict", None)
    found = config if isinstance(config, dict) else to_dict() if to_dict is not None else None
    if not isinstance(found, dict):
        raise SpecError("not a configuration", expected="a dictionary of keys and values", got=repr(config))
    return texts(found)


def _parameters(text: str) -> dict[str, str]:
    """The keys and values of ``pipeline.global-job-parameters``: ``a:1,b:2``. Functions read them as ``user.KEY``."""
    found = {}
    for part in filter(None, text.split(",")):
        key, colon, value = part.partition(":")
        if not colon:
            raise SpecError(
                f"'{PARAMETERS_KEY}' does not fit", expected="name:value,name:value", got=text,
                where=f"configuration key '{PARAMETERS_KEY}'",
            )  # fmt: skip
        found[f"{PARAMETERS}{key.strip()}"] = value.strip()
    return found


def _only(what: str, name: str, known: str) -> None:
    if name != known:
        raise UnsupportedError(
            f"{what} '{name}'", expected=known, got=repr(name), remedy=f"leave the name of the {what} out"
        )


class TableConfig:
    """The configuration of a table environment, as SET changes it.

    Programs get it from ``TableEnvironment.get_config``; ``session`` is the environment's SQL session.
    """

    def __init__(self, session: SqlSession) -> None:
        self._session = session

    def get(self, key: str, default_value: str) -> str:
        """The value of ``key``, or ``default_value``."""
        return self._session.config.get(key, default_value)

    def set(self, key: str, value: Any) -> TableConfig:
        """Set ``key`` to ``value``, as SET does.

        Raises:
            SpecError: The key is unknown (the error names the nearest known one), or the value is malformed.
        """
        if key in RETIRED_KEYS:
            return self
        added = _parameters(str(value)) if key == PARAMETERS_KEY else texts({key: value})
        check_job(added)
        self._session.config.update(added)
        return self

    def add_configuration(self, configuration: Any) -> None:
        """Set all keys of ``configuration``, a dictionary or a Configuration."""
        for key, value in configuration_texts(configuration).items():
            self.set(key, value)

    @staticmethod
    def get_default() -> TableConfig:
        """The configuration of a new environment."""
        from penstock.sql.session import SqlSession

        return TableConfig(SqlSession())

    def get_configuration(self) -> Configuration:
        """All keys and values. A key that is set in them is set here, too."""
        return SessionConfiguration(self)

    def get_local_timezone(self) -> str:
        """The session's time zone."""
        return LOCAL_TIME_ZONE.read(self._session.config)

    def set_local_timezone(self, timezone_id: str) -> None:
        """Show points in time in the zone ``timezone_id`` ('Europe/Berlin', 'UTC', '+02:00')."""
        self.set(LOCAL_TIME_ZONE.key, timezone_id)

    def get_sql_dialect(self) -> SqlDialect:
        """The SQL dialect, which is always Flink's own."""
        return SqlDialect.DEFAULT

    def set_sql_dialect(self, sql_dialect: SqlDialect) -> None:
        """Set the SQL dialect. Flink's own is the only one.

        Raises:
            UnsupportedError: The dialect is another one.
        """
        if getattr(sql_dialect, "name", sql_dialect) != "DEFAULT":
            raise UnsupportedError(
                f"the SQL dialect {sql_dialect}", expected="SqlDialect.DEFAULT", remedy="write Flink SQL"
            )

    def set_idle_state_retention(self, duration: Any) -> None:
        """Drop keyed state that was not used for ``duration`` (a timedelta, a Duration, or ms)."""
        from penstock.api.common import duration_us

        self.set("table.exec.state.ttl", f"{duration_us(duration, 'duration') // 1000} ms")

    def get_idle_state_retention(self) -> dt.timedelta:
        """The time for which unused state is kept. 0 means for ever."""
        return dt.timedelta(milliseconds=STATE_TTL_MS.read(self._session.config))


class SessionConfiguration(Configuration):
    """The keys and values of a ``TableConfig``, which setting a key changes."""

    def __init__(self, config: TableConfig) -> None:
        super().__init__(config._session.config)
        self._config = config

    def set(self, key: str, value: Any) -> SessionConfiguration:
        """Set ``key`` to ``value``, as SET does."""
        self._config.set(key, value)
        super().set(key, value)
        return self
