import sys

from penstock_services.history.main import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
