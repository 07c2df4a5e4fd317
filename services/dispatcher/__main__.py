import sys

from penstock_services.common.main import ServiceContext, run_service
from penstock_services.dispatcher.service import DispatcherService


def build(context: ServiceContext) -> DispatcherService:
    service = DispatcherService(context)
    service.own_log.attach()  # GET /jobmanager/log reads it there
    return service


def main() -> int:
    """Runs the service; returns the exit code of the process."""
    return run_service("dispatcher", build)


if __name__ == "__main__":
    sys.exit(main())
