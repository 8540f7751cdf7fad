"""What operators can see: health, metrics, and the fragments."""
