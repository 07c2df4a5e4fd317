"""The task manager: its slots and what runs in them.

``slot_table``  the pure core: a slot's life cycle, who may command it
``events``      what comes into it and what goes out
``template``    the template process, from which slots are forked
``slot``        one slot process: control channel, fd channel, death
``relay``       a slot's reports to its job's master, in order
``data_port``   data connections: prefaces checked, sockets passed on
``service``     the shell: bus, heartbeats, shutdown
"""
