import sys

from penstock_services.common.main import run_service
from penstock_services.dispatcher.service import DispatcherService

if __name__ == "__main__":
    sys.exit(run_service("dispatcher", DispatcherService))
