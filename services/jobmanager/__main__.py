import sys

from penstock_services.common.main import run_service
from penstock_services.jobmanager.service import JobManagerService

if __name__ == "__main__":
    sys.exit(run_service("jobmanager", JobManagerService))
