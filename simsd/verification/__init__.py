"""The ways to verify an open block: its rows, which rows see each other, and what is accepted. No torch."""
