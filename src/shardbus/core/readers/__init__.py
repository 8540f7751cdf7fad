"""The commands about readers: claims that are made, completed and released."""
