"""The measurements, in this process and over a server."""
