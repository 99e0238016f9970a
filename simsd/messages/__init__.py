"""The messages that front ends, the loop and the workers send to each other. They are plain data, without torch."""
