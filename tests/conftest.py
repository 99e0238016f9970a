"""One thread for torch in all tests: processes share two cores, and its default is not made for small matrices.

Set before anything imports torch, and inherited by what tests start.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
