"""Object storage: its ports' implementations, the conditional create, and the decision log.

``open``    ``open_store(url, options)``: file://, s3:// (and what else obstore supports), memory://
``local``   a folder: atomic and durable (fsync of file and folder)
``objects`` any object storage that obstore supports
``memory``  objects within one process
``routed``  keys that are whole URLs, and copies
``probe``   refuses a store whose conditional create overwrites
``log``     the decision log
"""

from penstock.store.log import DecisionLog, job_log, role_log
from penstock.store.memory import MemoryStore
from penstock.store.open import open_store
from penstock.store.probe import probe_conditional_create
from penstock.store.routed import copy_object

__all__ = [
    "DecisionLog",
    "MemoryStore",
    "copy_object",
    "job_log",
    "open_store",
    "probe_conditional_create",
    "role_log",
]
