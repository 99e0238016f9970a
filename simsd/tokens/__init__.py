"""From text to token ids and back. Nothing here imports torch."""
