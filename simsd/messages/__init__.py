"""What front ends, the loop and the workers say to each other. Plain data, no torch."""
