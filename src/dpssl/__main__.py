"""`python -m dpssl` is `dpssl`."""

import sys

from dpssl.cli import main

if __name__ == "__main__":
    sys.exit(main())
