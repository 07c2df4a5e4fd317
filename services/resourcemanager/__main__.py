import sys

from penstock_services.common.main import run_service
from penstock_services.resourcemanager.service import ResourceManagerService

if __name__ == "__main__":
    sys.exit(run_service("resourcemanager", ResourceManagerService))
