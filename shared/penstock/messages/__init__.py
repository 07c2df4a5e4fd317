"""Messages between processes: tagged, frozen msgspec structs, one union a subject.

``slot``     task manager ↔ slot process, and what is relayed to the job master
``cluster``  dispatcher, job master, resource manager, task manager: the subjects, replies and submissions;
             ``job_master``, ``resource_manager`` and ``task_manager`` have what is said to each
``details``  what is shown and archived of a job; ``decision_log``  what is decided of it
``states``   the life cycles they speak of

Encoding is JSON on the bus (so that any NATS client can take part) and MessagePack on
the socket between a task manager and its slots. Fields are only added, with defaults.
"""
