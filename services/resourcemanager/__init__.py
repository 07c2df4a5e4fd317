"""The resource manager: who has which slot, and who waits for some.

``registry``    task managers and their slots, as reported
``assignment``  which job gets which free slots
``core``        the pure core: messages in, commands out
``service``     the shell: election, bus
"""
