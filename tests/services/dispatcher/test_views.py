"""Views of the dispatcher that need no cluster."""

from penstock.messages.cluster import SubtaskDetails, VertexDetails
from penstock.messages.states import ExecutionState
from services.dispatcher import views


def test_redacted_hides_secrets_by_key_and_in_urls():
    config = {
        "nats.url": "nats://me:hidden@a:4222,nats://b:4222",
        "storage.options.secret_access_key": "hidden",
        "rest.port": "8081",
    }
    assert views.redacted(config) == {
        "nats.url": "nats://******@a:4222,nats://b:4222",
        "storage.options.secret_access_key": "******",
        "rest.port": "8081",
    }


def test_how_far_a_vertex_is_restored():
    def subtask(index: int, state: ExecutionState, **metrics: int) -> SubtaskDetails:
        return SubtaskDetails(subtask_index=index, execution_id="e", attempt=1, state=state, metrics=metrics)

    busy = subtask(
        0, ExecutionState.INITIALIZING, restore_bytes=800, restored_bytes=300, restored_local_bytes=100
    )
    done = subtask(1, ExecutionState.RUNNING, restore_bytes=900, restored_bytes=900)
    vertex = VertexDetails(id="v", name="v", parallelism=2, max_parallelism=128, subtasks=[busy, done])
    assert views.vertex_metrics(vertex)["restore"] == {"bytes": 800, "read": 300, "local": 100}
    vertex.subtasks = [done]
    assert views.vertex_metrics(vertex)["restore"] is None
