"""How many pairs a load needs: arithmetic for `simsd plan`. No torch."""
