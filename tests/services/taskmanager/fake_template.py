"""A template and slots of the plainest kind, for tests of the task manager alone: the
protocol of ``messages/slot.py`` with the standard library and msgspec.

What a slot does stands in its deployment's ``config["do"]``: ``run`` (report RUNNING, answer
commands by reports), ``exit:<code>``, ``hang`` (never reads), ``nonsense``.
"""

import array
import os
import socket
import sys
import threading

import msgspec

from penstock.messages.forking import ChildExited, Forked, FromTemplate, TemplateReady
from penstock.messages.slot import (
    CancelTasks,
    CheckpointAcknowledged,
    CheckpointComplete,
    Deploy,
    ForkSlot,
    FromSlot,
    ShutdownSlot,
    SlotReady,
    StateHandle,
    TaskMetricsReport,
    TaskStateChanged,
    ToSlot,
    TriggerCheckpoint,
)
from penstock.messages.states import ExecutionState

encode = msgspec.msgpack.encode


def recv_exactly(sock: socket.socket, n: int) -> bytes:
    data = b""
    while len(data) < n:
        chunk = sock.recv(n - len(data))
        if not chunk:
            os._exit(0)
        data += chunk
    return data


def slot(allocation_id: str, control: socket.socket, fds: socket.socket) -> None:
    def read() -> ToSlot:
        length = int.from_bytes(recv_exactly(control, 4), "big")
        return msgspec.msgpack.decode(recv_exactly(control, length), type=ToSlot)

    def send(message: FromSlot) -> None:
        data = encode(message)
        control.sendall(len(data).to_bytes(4, "big") + data)

    deploy = read()
    assert isinstance(deploy, Deploy)
    do = deploy.config.get("do", "run")
    print(f"slot of {allocation_id} does {do}", flush=True)
    send(SlotReady(allocation_id=allocation_id, pid=os.getpid()))

    def state(to: ExecutionState) -> None:
        send(
            TaskStateChanged(
                job_id=deploy.job_id,
                job_attempt=deploy.job_attempt,
                execution_id="e",
                vertex_id="v",
                subtask_index=0,
                state=to,
                timestamp_ms=0,
            )
        )

    state(ExecutionState.RUNNING)
    if do.startswith("exit:"):
        print("these are my last words", flush=True)
        os._exit(int(do[5:]))
    if do == "nonsense":
        control.sendall(b"\x00\x00\x00\x01\xc1")
    if do in ("hang", "nonsense"):
        threading.Event().wait()

    def serve_data() -> None:
        """Says over each data connection for which attempt this slot is."""
        while True:
            data, passed, _, _ = socket.recv_fds(fds, 65536, 1)
            if not data:
                return
            with socket.socket(fileno=passed[0]) as peer:
                got = msgspec.msgpack.decode(data)
                peer.sendall(f"{allocation_id} {got['job_attempt']} ".encode() + peer.recv(100))

    threading.Thread(target=serve_data, daemon=True).start()
    while True:
        match read():
            case TriggerCheckpoint(checkpoint_id=n):
                handle = StateHandle(vertex_id="v", subtask_index=0, checkpoint_id=n, inline=b"x" * 60_000)
                send(
                    CheckpointAcknowledged(
                        job_id=deploy.job_id,
                        job_attempt=deploy.job_attempt,
                        execution_id="e",
                        vertex_id="v",
                        subtask_index=0,
                        checkpoint_id=n,
                        handle=handle,
                    )
                )
            case CheckpointComplete():
                send(
                    TaskMetricsReport(
                        job_id=deploy.job_id,
                        job_attempt=deploy.job_attempt,
                        allocation_id=allocation_id,
                        tasks=(),
                    )
                )
            case CancelTasks():
                state(ExecutionState.CANCELED)
            case ShutdownSlot():
                os._exit(0)


def main() -> None:
    sock = socket.socket(fileno=int(sys.argv[1]))
    lock = threading.Lock()

    def tell(message: FromTemplate) -> None:
        with lock:
            sock.send(encode(message))

    def reap(pid: int) -> None:
        _, status = os.waitpid(pid, 0)
        tell(ChildExited(pid=pid, status=status))

    tell(TemplateReady(pid=os.getpid(), import_ms=0.0))
    while True:
        data, ancillary, _, _ = sock.recvmsg(65536, socket.CMSG_SPACE(8))
        if not data:
            os._exit(0)
        order = msgspec.msgpack.decode(data, type=ForkSlot)
        passed = array.array("i", ancillary[0][2])
        pid = os.fork()
        if pid == 0:
            sock.close()
            os.makedirs(order.local_dir)
            log = os.open(order.log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.dup2(log, 1)
            os.dup2(log, 2)
            slot(order.allocation_id, socket.socket(fileno=passed[0]), socket.socket(fileno=passed[1]))
            os._exit(1)
        for fd in passed:
            os.close(fd)
        tell(Forked(order=order.allocation_id, pid=pid))
        threading.Thread(target=reap, args=(pid,), daemon=True).start()


if __name__ == "__main__":
    main()
