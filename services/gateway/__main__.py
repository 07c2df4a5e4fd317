import sys

from penstock_services.gateway.main import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
