"""The sandbox of processes that run users' code.

``settings``  from the configuration to ``messages.sandbox.Sandbox``; ``syscalls``  the system calls that are refused;
``kernel``  the calls of Linux; ``enter``  what a process does to itself; ``probe``  whether this kernel allows it;
``python -m penstock.sandbox FD PROGRAM …``  runs a program in the sandbox that is read from a descriptor
"""
