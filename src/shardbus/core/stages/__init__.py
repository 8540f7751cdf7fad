"""The commands about stages: what is staged, published and discarded, and by which producer."""
