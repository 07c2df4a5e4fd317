import sys

from penstock_services.common.main import run_service
from penstock_services.resourcemanager.service import ResourceManagerService


def main() -> int:
    """Runs the service; returns the exit code of the process."""
    return run_service("resourcemanager", ResourceManagerService)


if __name__ == "__main__":
    sys.exit(main())
