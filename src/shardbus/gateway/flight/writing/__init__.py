"""What the lane writes: Arrow record batches as messages, staged piece by piece."""
