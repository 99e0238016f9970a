"""How many pairs a load needs: the arithmetic of `simsd plan`. Nothing here imports torch."""
