"""What the lane reads: stored messages as Arrow record batches."""
