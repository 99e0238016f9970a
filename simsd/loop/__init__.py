"""The block loop: requests, rounds, and how much to draft. No torch."""
