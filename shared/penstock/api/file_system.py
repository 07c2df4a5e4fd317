"""Files as sources and sinks, under Penstock's names (``builder()``) and under Flink's (``for_row_format`` …)."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from penstock.api.common import duration_us
from penstock.api.connectors import Builder, PreparedSink, Sink, Source
from penstock.api.serialization import Encoder, as_text
from penstock.api.typeinfo import Types
from penstock.errors import SpecError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable


class _FileBuilder(Builder):
    _connector = "filesystem"

    def set_path(self, path: str) -> Any:
        """A file, folder or glob, as a plain path or a URL."""
        return self.set("path", path)


@dataclasses.dataclass(frozen=True)
class StreamFormat:
    """The contents of files of records. ``format``: Penstock's name of the format; ``schema``: the columns;
    ``options``: the format's options."""

    format: str
    schema: Any
    options: dict[str, str] = dataclasses.field(default_factory=dict)

    @staticmethod
    def text_line_format(charset_name: str = "UTF-8") -> StreamFormat:
        """Each line is a text. ``charset_name``: ``UTF-8``; SpecError for another."""
        Encoder.simple_string_encoder(charset_name)
        return StreamFormat("raw", Types.STRING())


class _StreamFormatBuilder:
    def __init__(self, stream_format: StreamFormat, paths: tuple[str, ...]) -> None:
        if len(paths) != 1:
            raise UnsupportedError(
                "a file source of several paths",
                expected="one file, folder or glob",
                got=", ".join(paths) or "none",
                remedy="name their folder or a glob, or union a source for each",
            )
        self._format = stream_format
        self._path = paths[0]
        self._options: dict[str, Any] = {}

    def process_static_file_set(self) -> _StreamFormatBuilder:
        """Read the files that are there when the job starts (the default)."""
        self._options.pop("source.monitor-interval", None)
        return self

    def monitor_continuously(self, discovery_interval: Any) -> _StreamFormatBuilder:
        """Look for new files every ``discovery_interval``, a ``Duration`` or ms: an unbounded source."""
        interval_ms = duration_us(discovery_interval, "discovery_interval") // 1_000
        self._options["source.monitor-interval"] = f"{interval_ms} ms"
        return self

    def build(self) -> Source:
        """The source."""
        found = self._format
        options = {"path": self._path, "format": found.format, **found.options, **self._options}
        return Source.connector("filesystem", found.schema, options)


class FileSource:
    """``FileSource.builder().set_path("in/").set_format("parquet").set_schema(…).build()``."""

    @staticmethod
    def builder() -> _FileBuilder:
        """A builder; ``build()`` makes the ``Source``."""
        return _FileBuilder()

    @staticmethod
    def for_record_stream_format(stream_format: StreamFormat, *paths: str) -> _StreamFormatBuilder:
        """A builder for files of ``stream_format``; ``paths``: one file, folder or glob.

        Raises:
            UnsupportedError: There are several paths.
        """
        return _StreamFormatBuilder(stream_format, paths)


@dataclasses.dataclass(frozen=True)
class OutputFileConfig:
    """The beginning and the end of file names: ``part_prefix`` and ``part_suffix``."""

    part_prefix: str = "part"
    part_suffix: str = ""

    @staticmethod
    def builder() -> _OutputFileConfigBuilder:
        """A builder; ``build()`` makes the configuration."""
        return _OutputFileConfigBuilder()


class _OutputFileConfigBuilder:
    def __init__(self) -> None:
        self._made = OutputFileConfig()

    def with_part_prefix(self, prefix: str) -> _OutputFileConfigBuilder:
        """Begin the names with ``prefix``."""
        self._made = dataclasses.replace(self._made, part_prefix=prefix)
        return self

    def with_part_suffix(self, suffix: str) -> _OutputFileConfigBuilder:
        """End the names with ``suffix``."""
        self._made = dataclasses.replace(self._made, part_suffix=suffix)
        return self

    def build(self) -> OutputFileConfig:
        """The configuration."""
        return self._made


@dataclasses.dataclass(frozen=True)
class RollingPolicy:
    """Says when a file is closed: at each checkpoint, and before it at ``part_size`` bytes. None: the
    connector's default size."""

    part_size: int | None = None

    @staticmethod
    def default_rolling_policy(
        part_size: int = 128 * 1024 * 1024,
        rollover_interval: int = 60 * 1000,
        inactivity_interval: int = 60 * 1000,
    ) -> RollingPolicy:
        """A file is closed at a checkpoint, or before it at ``part_size`` bytes.

        Args:
            part_size: Bytes.
            rollover_interval: Ignored: each checkpoint closes the files.
            inactivity_interval: Ignored, for the same reason.
        """
        return RollingPolicy(part_size)

    @staticmethod
    def on_checkpoint_rolling_policy() -> RollingPolicy:
        """A file is closed at a checkpoint."""
        return RollingPolicy()


class _RowFormatBuilder:
    def __init__(self, base_path: str, encoder: Encoder) -> None:
        if not isinstance(encoder, Encoder):
            raise SpecError("not an encoder", expected="Encoder.simple_string_encoder()", got=repr(encoder))
        self._options: dict[str, Any] = {"path": base_path, "format": "raw"}
        self._prepare: Callable[[Any], Any] = as_text

    def with_output_file_config(self, output_file_config: OutputFileConfig) -> _RowFormatBuilder:
        """Let ``output_file_config`` say how file names begin and end."""
        self._options["sink.part-prefix"] = output_file_config.part_prefix
        self._options["sink.part-suffix"] = output_file_config.part_suffix
        return self

    def with_rolling_policy(self, policy: RollingPolicy) -> _RowFormatBuilder:
        """Let ``policy`` say when a file is closed."""
        if policy.part_size is not None:
            self._options["sink.rolling-policy.file-size"] = policy.part_size
        return self

    def with_bucket_check_interval(self, interval: int) -> _RowFormatBuilder:
        """Changes nothing: files are closed at checkpoints. ``interval``: ms."""
        return self

    def with_bucket_assigner(self, bucket_assigner: Any) -> _RowFormatBuilder:
        """Flink's way to choose a folder by a record's contents.

        Raises:
            UnsupportedError: Always.
        """
        raise UnsupportedError(
            "a bucket assigner",
            expected="one folder",
            got=repr(bucket_assigner),
            remedy="declare the table with PARTITIONED BY, and write with stream.insert_into(table)",
        )

    def build(self) -> Sink:
        """The sink."""
        made = Sink.connector("filesystem", self._options)
        return PreparedSink(made.name, made.schema, made.options, prepare=self._prepare)


class FileSink:
    """``FileSink.builder().set_path("out/").set_format("parquet").build()``."""

    @staticmethod
    def builder() -> _FileBuilder:
        """A builder; ``build()`` makes the ``Sink``."""
        made = _FileBuilder()
        made._make = Sink
        return made

    @staticmethod
    def for_row_format(base_path: str, encoder: Encoder) -> _RowFormatBuilder:
        """A builder for files of lines in the folder ``base_path``. ``encoder``: ``Encoder.simple_string_encoder()``."""
        return _RowFormatBuilder(base_path, encoder)
