"""The resource manager: which job has which slot, and which jobs wait.

``registry``: task managers and their slots, as reported; ``assignment``: which job gets which free slots;
``core``: the pure core, messages in, commands out; ``service``: the shell, election and bus.
"""
