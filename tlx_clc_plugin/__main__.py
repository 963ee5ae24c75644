"""``python -m tlx_clc_plugin``: the same as ``tlx-clc``."""

import sys

from .cli import main

sys.exit(main())
