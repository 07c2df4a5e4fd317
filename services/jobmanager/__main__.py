import sys

from penstock_services.common.main import run_service
from penstock_services.jobmanager.service import JobManagerService


def main() -> int:
    """Runs the service; returns the exit code of the process."""
    return run_service("jobmanager", JobManagerService)


if __name__ == "__main__":
    sys.exit(main())
