"""`python -m acenode.cli`."""

import sys

from acenode.cli import main

sys.exit(main())
