"""The task manager: its slots and what runs in them.

``slot_table``: the pure core, a slot's life cycle and who may command it; ``events``: its events and
effects; ``template``: the template process, from which slots are forked; ``slot``: one slot process, with
control channel, fd channel and end; ``relay``: a slot's reports to its job's master, in order;
``data_port``: data connections, prefaces checked, sockets passed on; ``service``: the shell, with bus,
heartbeats and shutdown.
"""
