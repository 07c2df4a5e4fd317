import sys

from services.common.main import run_service
from services.taskmanager.service import TaskManagerService

if __name__ == "__main__":
    sys.exit(run_service("taskmanager", TaskManagerService))
