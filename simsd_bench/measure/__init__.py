"""What is measured, in process and over a server."""
