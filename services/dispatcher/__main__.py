import sys

from penstock_services.common.main import ServiceContext, run_service
from penstock_services.dispatcher.service import DispatcherService


def build(context: ServiceContext) -> DispatcherService:
    service = DispatcherService(context)
    service.own_log.attach()  # GET /jobmanager/log reads it there
    return service


if __name__ == "__main__":
    sys.exit(run_service("dispatcher", build))
