"""Views of the dispatcher that need no cluster."""

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
