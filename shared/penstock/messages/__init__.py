"""Messages between processes: tagged, frozen msgspec structs, with one union for each receiver.

``slot``     task manager ↔ slot process, and what the task manager relays to the job master
``cluster``  dispatcher, job master, resource manager, task manager: the subjects, replies and submissions;
             ``job_master``, ``resource_manager`` and ``task_manager`` hold the messages to each of them
``details``  what REST shows of a job and the archive keeps; ``decision_log``  the entries of a job's log
``states``   the life cycles of jobs and executions

The encoding is JSON on the bus, so that any NATS client can take part, and MessagePack on the socket
between a task manager and its slots. Fields are only added, with defaults.
"""
