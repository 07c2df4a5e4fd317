import sys

from penstock_services.common.logs import also_into
from penstock_services.common.main import ServiceContext, run_service
from penstock_services.taskmanager.service import TaskManagerService


def build(context: ServiceContext) -> TaskManagerService:
    service = TaskManagerService(context)
    also_into(service.own_log)  # GET /taskmanagers/{id}/log reads it there
    return service


def main() -> int:
    """Runs the service; returns the exit code of the process."""
    return run_service("taskmanager", build)


if __name__ == "__main__":
    sys.exit(main())
