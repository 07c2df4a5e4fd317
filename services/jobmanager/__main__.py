import sys

from services.common.main import run_service
from services.jobmanager.service import JobManagerService

if __name__ == "__main__":
    sys.exit(run_service("jobmanager", JobManagerService))
