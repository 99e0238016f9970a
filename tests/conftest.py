"""For all tests: one thread for torch, so that two processes of tests share two cores, and as its default is not tuned for
matrices of this size anyway. Set before anything imports torch, and inherited by what tests start."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
