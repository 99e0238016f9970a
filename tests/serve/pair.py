"""Which pair these tests serve."""

import os

from simsd.config import SHIPPED

_ELSEWHERE = os.environ.get("SIMSD_TEST_PAIR")
TARGET = f"{_ELSEWHERE}/target" if _ELSEWHERE else SHIPPED
DRAFT = f"{_ELSEWHERE}/draft" if _ELSEWHERE else SHIPPED
