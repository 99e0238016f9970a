"""Models: families of checkpoints, their files and settings, the layers that they share, and loading."""
