"""An archive of Spark's classes, from which Java starts Spark faster.

A starting Spark loads and verifies some 15,000 classes, which is most of what its start costs. Java can keep them
in an archive, verified and laid out (class data sharing). ``penstock.spark.archive_classes`` makes one. Each Spark
that Penstock starts afterwards uses the archive, if it has the same Java and the same jars. Without an archive
everything works, with a slower start.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from penstock.spark.java import PACKAGED, java_environment

#: The environment variable with the folder of archives. Default: a folder in the user's cache.
FOLDER_VARIABLE = "PENSTOCK_SPARK_CLASSES"


def archive_path() -> Path:
    """The path of the archive for this Java and this PySpark. Raises JavaMissingError if there is no Java."""
    import pyspark

    given = os.environ.get(FOLDER_VARIABLE)
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    java = java_environment()
    # The name need not cover the jars: Java compares their paths and times, and ignores an archive that does
    # not fit.
    what = [*sorted(java.values()), _release(java), pyspark.__file__, pyspark.__version__]
    name = hashlib.sha256("\n".join(what).encode()).hexdigest()[:16]
    return (Path(given) if given else Path(cache) / "penstock" / "spark-classes") / f"{name}.jsa"


def _release(java: dict[str, str]) -> str:
    """The release text of this Java, so that each version of Java has an archive of its own."""
    home = Path(java[PACKAGED]).parents[1] if PACKAGED in java else Path(java["JAVA_HOME"])
    try:
        return (home / "release").read_text()
    except OSError:
        return ""


def java_options() -> str:
    """Java's options for the archive; empty if there is no archive. Raises JavaMissingError if there is no
    Java."""
    path = archive_path()
    if not path.exists() or " " in str(path):  # Spark splits the options at spaces
        return ""
    # Without the second option Java would warn of an archive that does not fit, on the standard output of the
    # process that starts Spark.
    return f"-XX:SharedArchiveFile={path} -Xlog:cds*=off"
