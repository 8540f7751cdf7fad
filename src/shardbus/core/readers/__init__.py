"""The commands about readers: what each has claimed, completed and given back."""
