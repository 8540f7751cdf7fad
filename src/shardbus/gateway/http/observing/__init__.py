"""What operators are told: health, metrics, and where the fragments are."""
