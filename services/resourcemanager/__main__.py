import sys

from services.common.main import run_service
from services.resourcemanager.service import ResourceManagerService

if __name__ == "__main__":
    sys.exit(run_service("resourcemanager", ResourceManagerService))
