"""What the lane is given: Arrow record batches as messages, staged piece by piece."""
