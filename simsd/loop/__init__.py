"""The block loop: requests, rounds, and how much to draft. Nothing here imports torch."""
