import sys

from services.common.main import run_service
from services.dispatcher.service import DispatcherService

if __name__ == "__main__":
    sys.exit(run_service("dispatcher", DispatcherService))
